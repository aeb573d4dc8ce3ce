"""What it costs to schedule, record and store a trial that does nothing, and how that grows with their number.

Three ways to get through N trials on two CPUs, each in a process of its own with a Ray instance of its own:

    featurelab   a sweep of an experiment that records one number: a run in MLflow's SQLite store, with its
                 configuration and environment as artifacts, through a journal
    tune         an empty Ray Tune trainable with reused actors: nothing is recorded
    tasks        an empty Ray task, N times: what Ray itself takes to have work done elsewhere

`seconds` are from the first trial submitted until the last result is in the store, with workers that are up.
`above_tasks` is what a trial costs beyond an empty task, in milliseconds. `driver_growth` is how much the driver's
memory grew between a quarter of the trials and the end, in MiB.

    python -m benchmarks.scheduling [--json] [--trials 500 2000]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._installed import installed

SIDES = ("tasks", "tune", "featurelab")
CPUS = 2
TRIALS = (500, 2000)


class Watch:
    """Resident memory of this process, in MiB, once a second from now on."""

    def __init__(self) -> None:
        self.sizes: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def growth(self) -> float:
        """What was added between a quarter of the time and the end."""
        self._over.set()
        self._thread.join()
        return self.sizes[-1] - self.sizes[len(self.sizes) // 4]

    def _look(self) -> None:
        while not self._over.wait(1.0) or not self.sizes:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.sizes.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def tasks(trials: int, folder: Path) -> tuple[float, float]:
    """Empty tasks: seconds, and growth of the driver."""
    import ray

    nothing = ray.remote(lambda index: {"index": index})
    ray.get([nothing.remote(index) for index in range(2 * CPUS)])  # workers are up
    watch, start = Watch(), time.perf_counter()
    ray.get([nothing.remote(index) for index in range(trials)])
    return time.perf_counter() - start, watch.growth()


def tune(trials: int, folder: Path) -> tuple[float, float]:
    """Empty trials."""
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
    """A sweep of the trial in `benchmarks._nothing`."""
    from featurelab.pipelines.engine.experiment import registry
    from featurelab.pipelines.engine.experiment.axes import Listed
    from featurelab.pipelines.engine.sweep.begin import run_sweep
    from featurelab.pipelines.engine.sweep.plan import plan_search
    from featurelab.tracking.store.connect import connect

    experiment = registry.find("nothing/at_all")
    store = connect(f"sqlite:///{folder / 'mlflow.db'}")

    def sweep(number: int) -> None:
        plan = plan_search(experiment, {"seed": Listed(tuple(range(number)))}, 1, experiment.laptop, scale="laptop")
        done = run_sweep(plan, store, outbox=folder / "outbox")
        if sum(trial.went_well for trial in done.trials) != number:
            raise SystemExit("not all trials went well")

    return _warmed(sweep, trials)


def _warmed(sweep: Callable[[int], None], trials: int) -> tuple[float, float]:
    """Seconds of that many trials beyond those of a sweep of one for each worker, which pays for the start."""
    start = time.perf_counter()
    sweep(CPUS)
    starting = time.perf_counter() - start
    watch, start = Watch(), time.perf_counter()
    sweep(trials)
    return time.perf_counter() - start - starting, watch.growth()


def once(side: str, trials: int) -> dict[str, Any]:
    """One side in a process of its own."""
    with installed(), tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.scheduling", "--side", side, "--trials", str(trials)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{trials} trials of {side} failed:\n{done.stderr[-2000:]}")
        return json.loads(done.stdout.splitlines()[-1])


def measure(numbers: list[int]) -> dict[str, Any]:
    rows = []
    for trials in numbers:
        found = {side: once(side, trials) for side in SIDES}
        rows += [
            {
                "method": side,
                "trials": trials,
                "seconds": found[side]["seconds"],
                "ms_a_trial": 1e3 * found[side]["seconds"] / trials,
                "above_tasks": 1e3 * (found[side]["seconds"] - found["tasks"]["seconds"]) / trials,
                "driver_growth": found[side]["growth"],
            }
            for side in SIDES
        ]
    return {"cpus": CPUS, "methods": rows}


def _alone(side: str, trials: int) -> dict[str, float]:
    import ray

    from featurelab.pipelines.engine.sweep.cluster import connect_ray  # our settings for Ray, for all sides

    os.environ["RAY_ADDRESS"] = "local"
    ray.init(address="local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    connect_ray(None)
    seconds, growth = {"tasks": tasks, "tune": tune, "featurelab": featurelab}[side](trials, Path.cwd())
    ray.shutdown()
    return {"seconds": seconds, "growth": growth}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--trials", type=int, nargs="+", default=TRIALS)
    parser.add_argument("--side", choices=SIDES, help="measure one side here, print it, and stop")
    args = parser.parse_args(argv)
    if args.side:
        print(json.dumps(_alone(args.side, args.trials[0])))
        return
    found = measure(args.trials)
    if args.json:
        print(json.dumps(found))
        return
    for row in found["methods"]:
        print(
            f"{row['method']:12}{row['trials']:7} trials{row['seconds']:8.1f} s{row['ms_a_trial']:8.1f} ms a trial, "
            f"{row['above_tasks']:6.1f} above an empty task; driver {row['driver_growth']:+.1f} MiB"
        )


if __name__ == "__main__":
    main()
