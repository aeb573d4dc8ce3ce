"""The script that starts MLflow's server on a head node, run with a server that says how it was started."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow_server import free_port

SCRIPT = Path(__file__).parents[2] / "ray_cluster_mlflow.sh"
DATABASE = "postgresql://lab:very-secret-word@10.0.0.9/results"
SERVER = f"""#!{sys.executable}
import http.server, json, os, signal, sys, time
def end_late(*_):
    os.close(9)  # the lock, some time before the port
    time.sleep(0.5)
    os._exit(0)
signal.signal(signal.SIGTERM, end_late)
arguments = dict(zip(sys.argv[2::2], sys.argv[3::2]))
class Said(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        said = {{"command": sys.argv[1], "arguments": arguments, "environment": dict(os.environ), "pid": os.getpid()}}
        self.wfile.write(json.dumps(said).encode())
if os.environ["MLFLOW_BACKEND_STORE_URI"].endswith("broken"):
    sys.exit(1)
http.server.HTTPServer((arguments["--host"], int(arguments["--port"])), Said).serve_forever()
"""


class Head:
    """A head node: a folder for results, an address for the server, and a program `mlflow`."""

    def __init__(self, home: Path) -> None:
        self.results = home / "results"
        programs = home / "bin"
        programs.mkdir()
        (programs / "mlflow").write_text(SERVER)
        (programs / "mlflow").chmod(0o755)
        (programs / "python").symlink_to(sys.executable)
        self.uri = f"http://127.0.0.1:{free_port()}"
        self.environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "MLFLOW_TRACKING_URI": self.uri,
        }

    def start(self, **environment: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", str(SCRIPT), str(self.results)]
        env = self.environment | environment
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    def keep(self, database: str) -> None:
        self.results.mkdir(exist_ok=True)
        (self.results / "database").write_text(database)

    def said(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.uri, timeout=10) as reply:
            return json.load(reply)

    def end(self) -> None:
        pid = self.results / "mlflow.pid"
        if pid.exists():
            try:
                os.killpg(int(pid.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pid.unlink()


def ended(pid: int) -> bool:
    """Whether a process that nobody waits for has ended; the system may keep its number for a while."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    made = Head(tmp_path)
    yield made
    made.end()


def test_runs_go_to_sqlite_and_artifacts_through_the_server_by_default(head: Head) -> None:
    done = head.start()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    said = head.said()
    host = head.uri.removeprefix("http://")
    address, _, port = host.partition(":")
    assert said["command"] == "server"
    assert said["environment"]["MLFLOW_BACKEND_STORE_URI"] == f"sqlite:///{head.results}/mlflow.db"
    assert said["arguments"] == {
        "--host": address,
        "--port": port,
        "--allowed-hosts": f"{host},localhost:{port},127.0.0.1:{port}",
        "--artifacts-destination": f"{head.results}/artifacts",
    }
    assert (head.results / "mlflow.log").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\nnot this\n"])
def test_a_database_is_named_in_the_environment_and_nowhere_else(head: Head, ending: str) -> None:
    head.keep(DATABASE + ending)
    done = head.start()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    said = head.said()
    assert said["environment"]["MLFLOW_BACKEND_STORE_URI"] == DATABASE
    shown = Path(f"/proc/{said['pid']}/cmdline").read_bytes() + (head.results / "mlflow.log").read_bytes()
    assert b"very-secret-word" not in shown
    assert "very-secret-word" not in " ".join(subprocess.check_output(["ps", "axww", "-o", "args"], text=True).split())


def test_a_second_start_takes_the_place_of_the_first(head: Head) -> None:
    assert head.start().returncode == 0
    first = head.said()
    head.keep(DATABASE)
    assert head.start().returncode == 0
    second = head.said()
    assert second["pid"] != first["pid"]
    assert second["environment"]["MLFLOW_BACKEND_STORE_URI"] == DATABASE
    assert ended(first["pid"])


def test_an_old_process_id_is_nobody_s(head: Head) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        try:
            head.results.mkdir()
            (head.results / "mlflow.pid").write_text(str(bystander.pid))
            assert head.start().returncode == 0
            assert bystander.poll() is None
        finally:
            bystander.kill()


@pytest.mark.parametrize(
    "uri", ["", "http://8.8.8.8:5000", "http://0.0.0.0:5000", "http://head:5000", "http://10.0.0.5"]
)
def test_an_address_that_is_not_private_is_refused_before_anything_is_written(head: Head, uri: str) -> None:
    done = head.start(MLFLOW_TRACKING_URI=uri)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not head.results.exists()


@pytest.mark.parametrize(
    "database", ["", "\n", "mysql://lab:very-secret-word@10.0.0.9/results", "postgres:very-secret-word"]
)
def test_what_is_not_a_postgresql_address_is_refused_and_not_shown(head: Head, database: str) -> None:
    head.keep(database)
    done = head.start()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "very-secret-word" not in done.stderr
    assert sorted(head.results.iterdir()) == [head.results / "database"]
    with pytest.raises(urllib.error.URLError):
        head.said()


def test_a_server_that_ends_at_once_is_noticed(head: Head) -> None:
    head.keep("postgresql://broken")
    done = head.start()
    assert done.returncode == 2
    assert f"{head.results}/mlflow.log" in done.stderr


def test_a_port_that_another_program_has_is_not_taken_for_ours(head: Head) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", int(head.uri.rpartition(":")[2])))
        other.listen()
        done = head.start()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "is taken" in done.stderr
