"""The `featurelab` command without the wait for its imports: a process that has made them forks one for each request.

What is forked is a process like any other: with its own arguments, environment, directory, streams and exit status.
Ray is not among the imports, since it reads its settings when it is imported.
"""

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FEATURELAB = Path(sys.executable).parent / "featurelab"
BEFORE = dict(os.environ)
HEAVY = (
    "matplotlib.pyplot",
    "mlflow.store.tracking.sqlalchemy_store",
    "pytorch_lightning",
    "sklearn",
    "featurelab.pipelines.engine.sweep.conduct",
    "featurelab.pipelines.engine.trial.run",
    "featurelab.pipelines.engine.verdict.reproduce",
)


class Warm:
    """Asks a process that has made its imports; one request at a time."""

    def __init__(self, environment: dict[str, str], imports: Sequence[str] = HEAVY) -> None:
        command = [sys.executable, __file__, *imports]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._one = threading.Lock()

    def __call__(self, timeout: float, **request: Any) -> int:
        """The exit status of the command; raises TimeoutError, and kills it, where it takes too long."""
        with self._one:
            assert self._process.stdin
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            pid = int(self._line())
            late = not select.select([self._process.stdout], [], [], timeout)[0]
            if late:
                os.kill(pid, signal.SIGKILL)
            status = int(self._line())
        if late:
            raise TimeoutError(f"{request['arguments']} did not end within {timeout:g} s")
        return status

    def _line(self) -> bytes:
        assert self._process.stdout
        return self._process.stdout.readline()


def become(arguments: list[str], home: str, environment: dict[str, str], out: str, err: str) -> None:
    """Make this process what was asked for; what the imports have set in the environment stays."""
    os.chdir(home)
    for name in BEFORE.keys() - environment.keys():
        os.environ.pop(name, None)
    os.environ.update(environment)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [str(FEATURELAB), *arguments]
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT),
        (2, err, os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)


def serve() -> None:
    """Returns in each process that shall be the command."""
    sys.path[0] = str(FEATURELAB.parent)
    for name in ("featurelab.pipelines.engine.command.cli", *sys.argv[1:]):
        importlib.import_module(name)
    for request in sys.stdin.buffer:
        pid = os.fork()
        if not pid:
            return become(**json.loads(request))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    os._exit(0)


if __name__ == "__main__":
    serve()
    importlib.import_module("featurelab.pipelines.engine.command.cli").script()
