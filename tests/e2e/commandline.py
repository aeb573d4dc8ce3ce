"""The `featurelab` command as a script uses it: processes, exit statuses, documents on standard output."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Run
from warm import FEATURELAB, Forked, Warm

TINY = ["n_train=32", "n_test=16", "dim=8", "width=16", "rank=3", "steps=20", "measure_every=10"]
OVER_TINY = [part for setting in TINY for part in ("--over", setting)]
SECRET = "hunter2-xyz"
TREE = Path(__file__).parents[2]

T = TypeVar("T")
Process = Forked | subprocess.Popen[str]


@dataclass(frozen=True)
class Said:
    """What a command left behind: its exit status, and its two streams."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output; numbers that JSON does not know are refused."""

        def refuse(token: str) -> Any:
            raise ValueError(f"{token} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@dataclass(frozen=True)
class CommandLine:
    """Runs the command in a directory of its own, whose `mlflow.db` is the store unless told otherwise."""

    home: Path
    environment: dict[str, str]
    template: Path = Path("no template")  # an empty store, which takes seconds to make
    warm: Warm | None = None

    def __call__(self, *arguments: str, code: int = 0, timeout: float = 300) -> Said:
        """What a command says until its end."""
        said = ended(self.start(*arguments), timeout)
        assert said.code == code, f"{' '.join(arguments)}: status {said.code}\n{said.out}\n{said.err}"
        return said

    def start(self, *arguments: str, terminal: str = "") -> Forked:
        """Start a command whose imports were made beforehand."""
        return (self.warm or warm()).start(arguments, self.home, self.environment, terminal)

    def start_cold(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start the command as a shell does, which takes it seconds of imports."""
        return subprocess.Popen(
            [FEATURELAB, *arguments],
            cwd=self.home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def elsewhere(self, home: Path, **changes: str) -> "CommandLine":
        home.mkdir(exist_ok=True)
        return replace(self, home=home, environment=self.environment | changes)

    def desk(self, name: str, **changes: str) -> "CommandLine":
        """A directory in this one, with an empty store."""
        here = self.elsewhere(self.home / name, **changes)
        shutil.copy(self.template, here.home / "mlflow.db")
        return here

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(self.environment.get("MLFLOW_TRACKING_URI", f"sqlite:///{self.home / 'mlflow.db'}"))

    def runs(self, experiment: str) -> list[Run]:
        """The runs of an MLflow experiment, oldest first; none while there is no store."""
        if "MLFLOW_TRACKING_URI" not in self.environment and not (self.home / "mlflow.db").exists():
            return []
        found = self.client.get_experiment_by_name(experiment)
        return list(self.client.search_runs([found.experiment_id], order_by=["start_time"])) if found else []

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        return sorted((point.step, point.value) for point in self.client.get_metric_history(run_id, metric))

    def wait_for_point(
        self, experiment: str, metric: str, runs: int = 1, patience: float = 120, process: Process | None = None
    ) -> list[Run]:
        """The runs, once this many have a point of the metric in the store; fails as soon as `process` has."""

        def having() -> list[Run]:
            code = process.poll() if process else None
            found = [run for run in self.runs(experiment) if metric in run.data.metrics]
            if process and code is not None and len(found) < runs:
                raise AssertionError(f"ended with status {code} after {len(found)} runs: {process.communicate()}")
            return found if len(found) >= runs else []

        return until(having, patience)


def ended(process: Process, timeout: float = 60) -> Said:
    """Wait for a started command to end."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)
        time.sleep(1)  # while a forked command writes where it is
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end within {timeout:g} s: {out}\n{err}") from None
    assert process.returncode is not None
    return Said(process.returncode, out, err)


def sent(here: CommandLine, code: int = 0) -> tuple[int, ...]:
    """How many runs `sync` sent, how many are still being recorded, and how many it left unsent."""
    first = here("sync", code=code).err.splitlines()[0]
    return tuple(map(int, re.findall(r"\d+", first)))


def until(condition: Callable[[], T], patience: float = 120) -> T:
    """Wait until the condition gives something that is true, and return it."""
    deadline = time.monotonic() + patience
    while (asked := time.monotonic()) < deadline:
        if found := condition():
            return found
        time.sleep(max(0.1, 4 * (time.monotonic() - asked)))  # what is waited for needs the processor too
    raise TimeoutError(f"waited {patience:g} s for nothing")


def below(pid: int, name: str = "") -> list[int]:
    """The processes, with this in their command, that a process has started, or those that it has started."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            if name.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
            found += below(int(child), name)
    return found


def import_path(*folders: Path) -> str:
    """PYTHONPATH of these folders and of the tree that this file is in: another one may be installed."""
    return os.pathsep.join(map(str, (TREE, *folders)))


def clean_environment(**changes: str) -> dict[str, str]:
    """This process's environment without what would point the command elsewhere.

    By default, Ray's workers let every other process go first: tests in other processes would keep them from working.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "RAY_", "FEATURELAB_", "TUNE_"))}
    ours = {"PYTHONPATH": import_path(), "FEATURELAB_TEST_SECRET": SECRET, "RAY_worker_niceness": "0"}
    return kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | ours | changes


@functools.cache
def warm() -> Warm:
    """One for all tests of this process."""
    return Warm(clean_environment())
