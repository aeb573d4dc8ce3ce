"""MLflow's own pages over the store, served to this machine alone."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

from featurelab.pipelines.engine.trial.signals import raised
from featurelab.tracking.pages import serving
from featurelab.tracking.store.connect import Store


def serve(store: Store, port: int) -> int:
    """Serve the pages of a store until they or we are ended, and return their exit status.

    Whatever ends us ends the server and the processes that it started.
    """
    # Its job runners would keep nine processes busy that nothing of ours uses. The address of the store may hold a
    # password, which a command line would show to everybody on this machine.
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_BACKEND_STORE_URI": store.uri}
    command = [sys.executable, "-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port)]
    with raised(), subprocess.Popen(command, env=os.environ | environment, process_group=0) as server:
        try:
            serving(store, port)
            return server.wait()
        finally:
            serving(store, None)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
