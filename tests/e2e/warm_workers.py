"""`ray` whose workers needn't import anything: a process that has made the imports forks one for each.

    python warm_workers.py start --head ...     what `ray start --head ...` does, with such workers, in an empty folder

Raylets start workers by running `sys.executable`, which is a script here. It hands its arguments, environment and
streams to the process that forks. A worker is as any other in what it runs, reads and inherits.
"""

import gc
import importlib
import json
import os
import runpy
import shlex
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

PREPARES = "setup_worker.py"  # the script of Ray that prepares a worker's environment, then becomes `default_worker.py`
# Ray is not among them: it reads when it is imported for which job a worker is
IMPORTS = (
    "fsspec",
    "pyarrow.fs",
    "pytorch_lightning",
    "sklearn",
    "mlflow.store.tracking.sqlalchemy_store",
    "featurelab.pipelines.engine.sweep.ray.worker",
    "featurelab.pipelines.engine.trial.run",
    "featurelab.tracking.store.connect",
)


def ray(arguments: list[str]) -> None:
    """Run Ray's command line in this process, and what forks workers in another."""
    with suppress(PermissionError):  # it leads a group already
        os.setsid()
    folder = Path.cwd()  # its path is to be short: there is a socket in it
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket"))
    listening.listen(64)
    if not os.fork():
        fork(listening)
        return
    listening.close()
    script, here = folder / "python", shlex.join([sys.executable, "-SE", __file__, "--ask", str(folder / "socket")])
    script.write_text(f'#!/bin/sh\nexec {here} {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    sys.executable, sys.argv = str(script), ["ray", *arguments]
    importlib.import_module("ray.scripts.scripts").main()


def ask(path: str, python: str, arguments: list[str]) -> None:
    """Have a worker forked, or become whatever else Ray runs with its `sys.executable`."""
    if not arguments or Path(arguments[0]).name != PREPARES:
        os.execv(python, [python, *arguments])
    request = {"arguments": arguments[1:], "environment": dict(os.environ), "home": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as forking:
        forking.connect(path)
        socket.send_fds(forking, [b"\n"], [0, 1, 2])
        forking.sendall(json.dumps(request).encode())


def fork(listening: socket.socket) -> None:
    """Fork a process for each request; returns in each, once it has run."""
    gc.disable()
    for name in IMPORTS:
        importlib.import_module(name)
    gc.freeze()  # a search for unused cycles would write to each page that the workers share
    gc.enable()
    signal.signal(signal.SIGCHLD, lambda *_: reap())
    with listening:
        while True:
            asking, _ = listening.accept()
            with asking:
                _, streams, _, _ = socket.recv_fds(asking, 1, 3)
                request = json.loads(asking.makefile().read())
            if not os.fork():
                break
            for stream in streams:
                os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)  # as raylets do, which end a worker's group with it
    become(streams, **request)


def reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become(streams: list[int], arguments: list[str], environment: dict[str, str], home: str) -> None:
    """Make this process a worker."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(home)
    (script, *rest), context = split(arguments)
    os.environ.clear()
    os.environ.update(environment | context.get("env_vars", {}))
    sys.path[0] = str(Path(script).parent)
    sys.argv = [script, *rest]
    runpy.run_path(script, run_name="__main__")


def split(arguments: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The arguments of `default_worker.py`, with its path, and what is to be prepared."""
    ours = {"--serialized-runtime-env-context": "{}", "--language": ""}
    rest = []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name in ours:
            ours[name] = value
        elif rest or not name.startswith("-"):
            rest.append(argument)
    return rest, json.loads(ours["--serialized-runtime-env-context"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case "--ask", path, python, *arguments:
            ask(path, python, arguments)
        case arguments:
            ray(arguments)
