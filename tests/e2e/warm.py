"""The `featurelab` command without the wait for its imports: a process that has made them forks one for each request.

What is forked is a process like any other: with its own arguments, environment, directory, streams and exit status.
Ray reads its settings when it is imported, so it is not among the imports. Only commands that join a cluster without
further settings are forked by a process that has imported it too, which the first of them has to wait for.
"""

import faulthandler
import gc
import importlib
import json
import os
import queue
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO

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
OURS = "featurelab.pipelines.engine.sweep.ray"


class Forked:
    """A command that runs in a process of its own; its methods are those of `subprocess.Popen`."""

    def __init__(self, pid: int, folder: "tempfile.TemporaryDirectory[str]") -> None:
        self.pid, self.args = pid, "featurelab"
        self._folder = folder  # of its streams, and deleted with this object
        self._ended: Future[int] = Future()

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    def wait(self, timeout: float | None = None) -> int:
        try:
            return self._ended.result(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout or 0) from None

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        out, err = (Path(self._folder.name) / name for name in ("out", "err"))
        return out.read_text(), err.read_text()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Warm:
    """Asks a process that has made its imports to fork commands."""

    def __init__(self, environment: dict[str, str], imports: Sequence[str] = HEAVY) -> None:
        command = [sys.executable, __file__, *imports]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._one = threading.Lock()
        self._begun: queue.Queue[int] = queue.Queue()
        self._running: dict[int, Forked] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def start(
        self,
        arguments: Sequence[str],
        home: Path,
        environment: dict[str, str],
        terminal: str = "",
        script: Path = FEATURELAB,
    ) -> Forked:
        """Start a command, or another script; its streams are files, or the terminal."""
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        streams = [terminal] * 3 if terminal else [os.devnull, f"{folder.name}/out", f"{folder.name}/err"]
        request = {"arguments": [str(script), *arguments], "home": str(home), "environment": environment}
        with self._one:
            assert self._process.stdin
            self._process.stdin.write(json.dumps(request | {"streams": streams}).encode() + b"\n")
            self._process.stdin.flush()
            pid = self._begun.get(timeout=300)
            forked = self._running[pid] = Forked(pid, folder)
            self._begun.task_done()
        return forked

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            pid, status = json.loads(line)
            if status is None:
                self._begun.put(pid)
                self._begun.join()  # until it is among those that run
            else:
                self._running.pop(pid)._ended.set_result(status)


def become(arguments: list[str], home: str, environment: dict[str, str], streams: list[str]) -> None:
    """Make this process what was asked for; what the imports have set in the environment stays.

    On SIGUSR1, it writes to standard error where each of its threads is.
    """
    os.chdir(home)
    for name in BEFORE.keys() - environment.keys():
        os.environ.pop(name, None)
    os.environ.update(environment)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = arguments
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOCTTY)
        os.dup2(opened, number)
        os.close(opened)
    faulthandler.register(signal.SIGUSR1)


def cluster(environment: dict[str, str]) -> str | None:
    """The address of the cluster that a command is to join; None if it has other settings for Ray, or no address."""
    settings = {name for name in environment if name.startswith(("RAY_", "TUNE_"))} - BEFORE.keys()
    return environment["RAY_ADDRESS"] if settings == {"RAY_ADDRESS"} else None


def prepare(*modules: str) -> None:
    gc.disable()
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # a search for unused cycles would write to each page that the forked processes share
    gc.enable()


def serve(requests: BinaryIO, joining: dict[str, int] | None) -> None:
    """Fork a process for each request; returns in each, which is to be the command. Says when one begins and ends.

    `joining` are, by address, the pipes to those that fork the commands which join a cluster.
    """
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            for pid, status in iter(ended, None):
                print(json.dumps([pid, status]), flush=True)
        if requests not in ready:
            continue
        line = requests.readline()
        if not line:
            os._exit(0)
        request = json.loads(line)
        if joining is not None and (address := cluster(request["environment"])):
            if address not in joining:
                listening, joining[address] = os.pipe()
                if not os.fork():
                    for pipe in joining.values():
                        os.close(pipe)
                    importlib.import_module(f"{OURS}.cluster").set_environment(address)
                    prepare("ray.tune", *(f"{OURS}.{name}" for name in ("progress", "schedulers", "trainable")))
                    return serve(os.fdopen(listening, "rb"), None)
                os.close(listening)
            os.write(joining[address], line)
            continue
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests under nohup hand down that it is ignored
            for pipe in (joining or {}).values():
                os.close(pipe)
            return become(**request)
        print(json.dumps([pid, None]), flush=True)


def ended() -> tuple[int, int] | None:
    """The id and the exit status of a process that has ended."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


if __name__ == "__main__":
    sys.path[0] = str(FEATURELAB.parent)
    prepare("featurelab.pipelines.engine.command.cli", *sys.argv[1:])
    serve(sys.stdin.buffer, {})
    if sys.argv[0] == str(FEATURELAB):
        importlib.import_module("featurelab.pipelines.engine.command.cli").script()
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
