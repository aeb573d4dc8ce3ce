"""A port of this machine that is free, and an MLflow server there that can be killed and started again."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

Points = dict[int, Counter[tuple[str, int, float | None]]]  # by trial: metric, step and value, as often as stored


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_served(port: int, process: "subprocess.Popen[Any]", patience: float = 120) -> None:
    """Wait until the MLflow server that this process started answers at its port."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if requests.get(f"http://127.0.0.1:{port}/health", timeout=5).ok:
                return
        except requests.ConnectionError:
            assert process.poll() is None, f"it ended with status {process.returncode}"
            time.sleep(0.2)
    raise TimeoutError(f"nothing is served at {port}")


@dataclass
class Server:
    """A server of MLflow's over the database `mlflow.db` in its home, which also passes on artifacts.

    `mlflow server` would prepare the same process in another one, which takes as long again.
    """

    home: Path
    port: int = field(default_factory=free_port)
    process: Any = field(default=None)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "uvicorn", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["mlflow.server.fastapi_app:app"]
        settings = {"FILE_STORE": f"sqlite:///{self.home / 'mlflow.db'}", "ARTIFACT_ROOT": "mlflow-artifacts:/"}
        settings |= {"SERVE_ARTIFACTS": "true", "ARTIFACT_DESTINATION": "./mlartifacts"}
        environment = os.environ | {f"_MLFLOW_SERVER_{name}": value for name, value in settings.items()}
        environment |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "OMP_NUM_THREADS": "1"}
        with open(self.home / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.home, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_until_served(self.port, self.process)

    def stop(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def stored(self, sweep: str) -> Points:
        """By trial of a sweep, every row of the table of points, as often as it is there; None for nan.

        What is derived from others is left out, and runs that were replaced by others of the same trial.
        """
        named = "SELECT run_uuid FROM tags WHERE key = 'sweep' AND value = ?"
        replaced = "SELECT run_uuid FROM tags WHERE key = 'sweep_run_id' AND value LIKE 'superseded%'"
        query = f"""
            SELECT CAST(place.value AS INTEGER), m.key, m.step, CASE WHEN m.is_nan THEN NULL ELSE m.value END
            FROM metrics m JOIN tags place ON place.run_uuid = m.run_uuid AND place.key = 'trial'
            WHERE m.run_uuid IN ({named}) AND m.run_uuid NOT IN ({replaced})
            AND m.key NOT LIKE 'best.%'"""
        found: Points = {}
        with closing(sqlite3.connect(self.home / "mlflow.db")) as database:
            for trial, *point in database.execute(query, (sweep,)):
                found.setdefault(trial, Counter())[tuple(point)] += 1
        return found
