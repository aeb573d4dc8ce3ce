"""What scheduling, recording and storing a trial that does nothing costs, by the number of trials.

Three ways to run N trials on two CPUs, each in its own process with its own Ray instance, one N after another:

    featurelab   a sweep of an experiment that records one number: a run in MLflow's SQLite store, with its
                 configuration and environment as artifacts, through a journal
    tune         an empty Ray Tune trainable with reused actors: nothing is recorded
    tasks        an empty Ray task, N times: the cost of Ray itself

`seconds` runs from the first submitted trial until the last result is in the store, with workers already started.
`above_tasks` is what a trial costs beyond an empty task, in milliseconds. `driver_growth` is how much the driver's
memory grew between a quarter of the trials and the end, in MiB.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks._rows import Row, Size
from benchmarks.laboratory._installed import installed

SIDES = ("tasks", "tune", "featurelab")
CPUS = 2
TRIALS: dict[Size, tuple[int, ...]] = {"tiny": (1,), "full": (100, 400)}
Measured = dict[str, dict[str, float]]  # by side: seconds, and growth of the driver's memory


class Watch:
    """Samples the resident memory of this process in MiB, once a second."""

    def __init__(self) -> None:
        self.sizes: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def growth(self) -> float:
        """Stop sampling, and return the growth between a quarter of the time and the end."""
        self._stop.set()
        self._thread.join()
        return self.sizes[-1] - self.sizes[len(self.sizes) // 4]

    def _sample(self) -> None:
        while not self._stop.wait(1.0) or not self.sizes:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.sizes.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def tasks(trials: int, folder: Path) -> tuple[float, float]:
    """Run empty tasks, and return seconds and growth of the driver's memory in MiB."""
    import ray

    nothing = ray.remote(lambda index: {"index": index})
    ray.get([nothing.remote(index) for index in range(2 * CPUS)])  # starts the workers
    watch, start = Watch(), time.perf_counter()
    ray.get([nothing.remote(index) for index in range(trials)])
    return time.perf_counter() - start, watch.growth()


def tune(trials: int, folder: Path) -> tuple[float, float]:
    """Run empty trials, and return what `tasks` returns."""
    from ray import tune

    def sweep(number: int) -> None:
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        tune.Tuner(
            tune.with_resources(_empty, {"cpu": 1}),
            param_space={"index": tune.grid_search(list(range(number)))},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(storage_path=str(folder / f"ray{number}"), verbose=0),
        ).fit()

    return _warmed(sweep, trials)


def _empty(config: dict[str, Any]) -> dict[str, Any]:
    return {"index": config["index"]}


def featurelab(trials: int, folder: Path) -> tuple[float, float]:
    """Sweep the trial in `benchmarks.laboratory._nothing`, and return what `tasks` returns."""
    from featurelab.pipelines.engine.experiment.axes import Listed
    from featurelab.pipelines.engine.experiment.catalogue import registry
    from featurelab.pipelines.engine.sweep.begin import run_sweep
    from featurelab.pipelines.engine.sweep.plan import plan_search
    from featurelab.tracking.store.connect import connect

    experiment = registry.find("nothing/at_all")
    store = connect(f"sqlite:///{folder / 'mlflow.db'}")

    def sweep(number: int) -> None:
        plan = plan_search(experiment, {"seed": Listed(tuple(range(number)))}, 1, experiment.laptop, scale="laptop")
        done = run_sweep(plan, store, outbox=folder / "outbox")
        if sum(trial.went_well for trial in done.trials) != number:
            raise SystemExit("some trials did not finish")

    return _warmed(sweep, trials)


def _warmed(sweep: Callable[[int], None], trials: int) -> tuple[float, float]:
    """Return the seconds of `trials` trials, less those of one trial for each worker, which include the start."""
    start = time.perf_counter()
    sweep(CPUS)
    starting = time.perf_counter() - start
    watch, start = Watch(), time.perf_counter()
    sweep(trials)
    return max(time.perf_counter() - start - starting, 1e-3), watch.growth()  # of two trials it may be negative


def measure(sides: Sequence[str], sizes: Sequence[int]) -> list[Measured]:
    """What each number of trials takes on these sides, all in one process."""
    with installed(), tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.laboratory.scheduling", ",".join(map(str, sizes)), *sides]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if process.returncode:
            raise SystemExit(f"trials of {', '.join(sides)} failed:\n{process.stderr[-2000:]}")
        measured: list[Measured] = json.loads(process.stdout.splitlines()[-1])
        return measured


def rows(size: Size) -> list[Row]:
    sizes = TRIALS[size]
    processes = [SIDES] if size == "tiny" else [(side,) for side in SIDES]
    measured = [measure(some, sizes) for some in processes]
    rows = list[Row]()
    for trials, *parts in zip(sizes, *measured, strict=True):
        sides = {side: numbers for part in parts for side, numbers in part.items()}
        ours = sides["featurelab"]
        each = {side: 1e3 * sides[side]["seconds"] / trials for side in SIDES}
        for peer, what in (("tune", "an empty Tune trial"), ("tasks", "an empty Ray task")):
            numbers = {
                "ms_a_trial": each["featurelab"],
                "peer_ms_a_trial": each[peer],
                "driver_growth_mib": ours["growth"],
                "peer_driver_growth_mib": sides[peer]["growth"],
            }
            rows.append(
                Row(
                    f"{trials}/{peer}",
                    f"{trials:,} trials that record one number, {CPUS} CPUs",
                    ours["seconds"],
                    what,
                    sides[peer]["seconds"],
                    sides[peer]["seconds"] / ours["seconds"],
                    numbers=numbers,
                )
            )
    return rows


def _here(sides: Sequence[str], sizes: Sequence[int]) -> list[Measured]:
    import ray

    from featurelab.pipelines.engine.sweep.ray.cluster import connect_ray  # our settings for Ray, for all sides

    os.environ["RAY_ADDRESS"] = "local"
    cpus = min(CPUS, *sizes)  # each has a worker, which imports for seconds
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    connect_ray(None)
    run = {"tasks": tasks, "tune": tune, "featurelab": featurelab}
    measured = [
        {side: dict(zip(("seconds", "growth"), run[side](trials, Path.cwd()), strict=True)) for side in sides}
        for trials in sizes
    ]
    ray.shutdown()
    return measured


if __name__ == "__main__":
    print(json.dumps(_here(sys.argv[2:], [int(number) for number in sys.argv[1].split(",")])))
