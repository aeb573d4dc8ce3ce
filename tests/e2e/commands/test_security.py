"""Secrets stay in the environment, pages are served to this machine alone, and hostile arguments do no harm."""

import os
import shutil
import signal
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests
from commandline import TINY, CommandLine, Process, below, ended, until
from mlflow_server import free_port, wait_until_served

Pages = tuple[CommandLine, int, Process]
SCALE = "neural_feature_ansatz/init_scale"
SECRETS = {
    "MLFLOW_TRACKING_TOKEN": "token-of-mlflow-7f3a",
    "MLFLOW_TRACKING_USERNAME": "user-of-mlflow-7f3a",
    "MLFLOW_TRACKING_PASSWORD": "password-of-mlflow-7f3a",
    "HF_TOKEN": "hf_token7f3a7f3a",
    "AWS_ACCESS_KEY_ID": "AKIA7F3A7F3A7F3A",
    "AWS_SECRET_ACCESS_KEY": "secret/of+aws7f3a",
    "RAY_AUTH_TOKEN": "token-of-ray-7f3a",
}
IN_ADDRESS = "password-in-address-7f3a"


def holding(folder: Path, words: list[bytes]) -> Iterator[tuple[Path, bytes]]:
    """Files that hold one of these words, also within archives such as checkpoints and compressed arrays."""
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        contents = [path.read_bytes()]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        yield from ((path, word) for word in words for content in contents if word in content)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[Pages]:
    """A store with a run in it, and `featurelab ui` over it."""
    here = CommandLine(tmp_path_factory.mktemp("pages"), environment)
    here("run", "stranger/curves", "steps=2")
    port = free_port()
    process = here.start("ui", "--port", str(port))
    wait_until_served(port, process)
    yield here, port, process
    process.terminate()
    assert ended(process).code == 128 + signal.SIGTERM
    with pytest.raises(requests.ConnectionError):  # nothing of it is left
        requests.get(f"http://127.0.0.1:{port}/health", timeout=5)


def test_pages_are_served_to_this_machine_alone(pages: Pages) -> None:
    _, port, _ = pages
    listening = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()
    ]
    ours = {
        words[1].rpartition(":")[0] for words in listening if words[1].endswith(f":{port:04X}") and words[3] == "0A"
    }
    assert ours == {"0100007F"}  # 127.0.0.1
    command = Path("/proc")
    lines = [path.read_bytes() for path in command.glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    serving = [line for line in lines if b"mlflow" in line and str(port).encode() in line]
    assert serving
    assert not any(b"sqlite" in line for line in serving if b"-m\0mlflow\0ui" in line)  # it could hold a password
    query = {"max_results": 10}
    url = f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search"
    found = requests.get(url, params=query, timeout=30).json()["experiments"]
    assert "stranger/curves" in {experiment["name"] for experiment in found}


def test_secrets_are_recorded_and_shown_nowhere(pages: Pages) -> None:
    over, port, _ = pages
    address = f"http://me:{IN_ADDRESS}@127.0.0.1:{port}"
    here = over.elsewhere(over.home.with_name("secrets"), MLFLOW_TRACKING_URI=address, **SECRETS)
    said = [
        here("run", SCALE, *TINY, "--json"),
        here("run", "stranger/troubles", "ending=tell", code=1),
        here("judge", "0123456789abcdef", code=2),
        here("ui", code=2),
        here.elsewhere(here.home, MLFLOW_TRACKING_URI=address.replace(str(port), "1"))("judge", "x", code=2),
    ]
    words = [*SECRETS.values(), IN_ADDRESS]
    assert [word for answer in said for word in words if word in answer.out + answer.err] == []
    (failed,) = [run for run in here.runs("stranger/troubles") if run.data.tags["status"] == "failed"]
    assert "ConnectionError" in failed.data.tags["reason"]
    traces = list(over.home.rglob("traceback.txt"))
    assert [trace for trace in traces if "ConnectionError" in trace.read_text()]
    assert {path.suffix for path, _ in holding(over.home, [b"state_dict"])} == {".ckpt"}  # it is looked into archives
    known = [word.encode() for word in words if word != SECRETS["MLFLOW_TRACKING_USERNAME"]]
    assert list(holding(over.home, known)) == list(holding(here.home, known)) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", SCALE, os.fsdecode(b"lr=\xff\xfe\x1b[2J")],
        ["run", SCALE, "lr=" + "[" * 100_000],
        ["sweep", SCALE, "--over", "lr=__import__('os').system('touch x')"],
        ["sweep", SCALE, "--over", "lr=" + "1," * 50_000 + "x"],
        ["show", "../../../../etc/passwd"],
        ["judge", "\u202e\n\t\x1b]0;x\x07"],
    ],
)
def test_hostile_arguments_are_refused_in_one_line(featurelab: CommandLine, arguments: list[str]) -> None:
    said = featurelab(*arguments, code=2)
    assert said.out == ""
    assert said.err.startswith("featurelab: ")
    assert said.err.endswith("\n")
    assert said.err[:-1].isprintable()
    assert len(said.err) < 520
    assert list(featurelab.home.iterdir()) == []


def test_a_local_sweep_s_ray_keeps_secrets_and_its_token_to_itself_and_listens_to_this_machine_alone(
    featurelab: CommandLine, tmp_path: Path
) -> None:
    home, temporary = tmp_path / "home", Path(tempfile.mkdtemp(dir="/tmp"))
    temporary.chmod(0o1777)  # as /tmp is
    (home / ".ray").mkdir(parents=True)
    token = home / ".ray" / "auth_token"
    token.write_text("0123456789abcdef" * 4)
    token.chmod(0o644)
    here = featurelab.desk("desk", HOME=str(home), RAY_TMPDIR=str(temporary), **SECRETS)
    del here.environment["RAY_AUTH_TOKEN"]
    process = here.start("sweep", "stranger/curves", "--over", "seed=0,1", "steps=100", "pause=0.05")
    here.wait_for_point("stranger/curves", "loss/val", runs=2, process=process)
    opened = listening(process.pid)
    check_closed_to_others(temporary)
    assert ended(process).code == 0
    assert len(opened) >= 3, "those of Ray"
    loopback = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
    assert {address for address, _ in opened} <= loopback
    assert token.stat().st_mode & 0o777 == 0o600
    logs = temporary
    assert list(holding(logs, [b"env_vars"])), "what Ray tells its workers to set is in its logs"
    assert list(holding(logs, [word.encode() for word in SECRETS.values()])) == []
    assert not [path for path in logs.rglob("*.log") if path.stat().st_mode & 0o077]
    (run, _) = here.runs("stranger/curves")
    written = [path for path in (here.home / "mlruns").rglob("*.json") if run.info.run_id in str(path)]
    assert written
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in written), "what trials write is as it was"


def check_closed_to_others(temporary: Path) -> None:
    """No other user can list, change or delete what a running Ray keeps below this folder."""
    (session,) = [path for path in temporary.rglob("session_2*") if not path.is_symlink()]
    assert (session / "sockets" / "plasma_store").is_socket()
    (above,) = temporary.iterdir()
    assert above.stat().st_mode & 0o777 == 0o700
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return
    for attempt in ('ls "$0"', 'ls "$0/logs"', 'touch "$0/logs/planted"', 'rm "$0/sockets/plasma_store"', 'mv "$0" x'):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", attempt, str(session)]
        done = subprocess.run(nobody, check=False, capture_output=True, text=True)
        assert done.returncode, attempt
        assert "Permission denied" in done.stderr, done.stderr
    assert not (session / "logs" / "planted").exists()
    assert (session / "sockets" / "plasma_store").exists()


def test_the_first_token_of_ray_is_made_for_this_user_alone(featurelab: CommandLine, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    here = featurelab.desk("desk", HOME=str(home))
    process = here.start("sweep", "stranger/curves", "--over", "seed=0,1", "steps=1")
    token = home / ".ray" / "auth_token"
    until(lambda: here.runs("verdicts"))
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 130
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700


def listening(pid: int) -> set[tuple[str, str]]:
    """The addresses and ports at which a process, or one that it has started, listens."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    sockets = {f"socket:[{words[9]}]": words[1] for words in lines if words[3] == "0A"}
    held = set()
    for file in [file for process in (pid, *below(pid)) for file in Path(f"/proc/{process}/fd").iterdir()]:
        with suppress(FileNotFoundError):  # closed meanwhile
            held.add(os.readlink(file))
    return {(address, port) for name in held & set(sockets) for address, _, port in [sockets[name].partition(":")]}
