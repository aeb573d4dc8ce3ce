"""Start an MLflow server for a benchmark, as `ray_cluster_mlflow.sh` does."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import requests


@contextmanager
def server(folder: Path, database: str) -> Iterator[str]:
    """Run an MLflow server over a database, and give its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    environment = os.environ | {"MLFLOW_BACKEND_STORE_URI": database, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    uri = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise SystemExit(f"the MLflow server exited:\n{(folder / 'server.log').read_text()[-2000:]}")
            try:
                if requests.get(f"{uri}/health", timeout=5).ok:
                    break
            except requests.ConnectionError:
                time.sleep(0.2)
        else:
            raise SystemExit(f"the MLflow server at {uri} does not answer")
        yield uri
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()
