"""MLflow's own web pages for a store, served on this machine only."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

from featurelab.pipelines.engine.trial.signals import raised
from featurelab.tracking.pages import serving
from featurelab.tracking.store.connect import Store


def serve(store: Store, port: int) -> int:
    """Serve the pages of a store until the server or this process ends, and return the server's exit status.

    When this process ends, so do the server and its child processes.
    """
    # MLflow's job runners would keep nine processes busy, and we use none. The address goes into the environment, since
    # it may hold a password, and every user of this machine can read a command line.
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_BACKEND_STORE_URI": store.uri}
    command = [sys.executable, "-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port)]
    # each worker imports MLflow, for three seconds of a core: no more of them than cores, and MLflow's four at most
    command += ["--workers", str(min(4, os.cpu_count() or 1))]
    with raised(), subprocess.Popen(command, env=os.environ | environment, process_group=0) as server:
        try:
            serving(store, port)
            return server.wait()
        finally:
            serving(store, None)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
