"""Results on an MLflow server: written over HTTP, and kept on this machine while the server is away."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from commandline import CommandLine, ended


@dataclass
class Server:
    """An `mlflow server` process that can be stopped and started again."""

    home: Path
    port: int
    process: Any = field(default=None)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{self.home / 'server.db'}"]
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with open(self.home / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.home, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                if requests.get(f"{self.uri}/health", timeout=5).ok:
                    return
            except requests.ConnectionError:
                time.sleep(0.2)
        raise RuntimeError((self.home / "server.log").read_text())

    def stop(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(tmp_path_factory.mktemp("server"), port)
    server.start()
    yield server
    server.stop()


def test_a_figure_is_reproduced_and_judged_over_http(lab: CommandLine, server: Server) -> None:
    here = lab.elsewhere(lab.home / "http", MLFLOW_TRACKING_URI=server.uri)
    (said,) = here("reproduce", "stranger/curves", "--json").document["experiments"]
    assert [claim["status"] for claim in said["claims"]] == ["holds", "fails"]
    judged = here("judge", said["sweep_run_id"], "--json")
    assert judged.document["experiments"] == [said]
    assert {run.info.status for run in here.runs("stranger/curves")} == {"FINISHED"}
    assert not (here.home / "mlflow.db").exists()


def test_a_run_outlives_its_server_and_sync_sends_the_rest(lab: CommandLine, server: Server) -> None:
    here = lab.elsewhere(lab.home / "away", MLFLOW_TRACKING_URI=server.uri)
    process = here.start("run", "stranger/curves", "level=7", "steps=40", "pause=0.2", "--json")
    running = here.wait_for_point("stranger/curves", "loss/val", runs=7 if here.runs("stranger/curves") else 1)
    run_id = running[-1].info.run_id
    server.stop()
    time.sleep(4)
    left = here.home / ".featurelab" / "outbox"
    assert [path.stem for path in left.glob("*.jsonl")] == [run_id]
    said = ended(process, timeout=240)
    assert (said.code, said.document["run_id"], said.document["status"]) == (1, run_id, "finished")
    assert "Traceback" not in said.err
    assert said.err.endswith("what was recorded is kept until featurelab sync\n")
    assert here("sync", code=1).err.startswith("0 runs sent, 0 still being recorded, 1 left unsent")
    server.start()
    assert here("sync").err.startswith("1 runs sent, 0 still being recorded, 0 left unsent")
    assert os.listdir(left) == []
    run = here.client.get_run(run_id)
    assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
    assert here.history(run_id, "loss/val") == [(step, 7 + 1 / step) for step in range(1, 41)]
    assert run.data.metrics["final/loss/val"] == 7 + 1 / 40
