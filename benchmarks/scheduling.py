"""What scheduling, recording and storing a trial that does nothing costs, by the number of trials.

Three ways to run N trials on two CPUs, each in its own process with its own Ray instance:

    featurelab   a sweep of an experiment that records one number: a run in MLflow's SQLite store, with its
                 configuration and environment as artifacts, through a journal
    tune         an empty Ray Tune trainable with reused actors: nothing is recorded
    tasks        an empty Ray task, N times: the cost of Ray itself

`seconds` runs from the first submitted trial until the last result is in the store, with workers already started.
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
    """Sweep the trial in `benchmarks._nothing`, and return what `tasks` returns."""
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
            raise SystemExit("some trials did not finish")

    return _warmed(sweep, trials)


def _warmed(sweep: Callable[[int], None], trials: int) -> tuple[float, float]:
    """Return the seconds of `trials` trials, less those of one trial for each worker, which include the start."""
    start = time.perf_counter()
    sweep(CPUS)
    starting = time.perf_counter() - start
    watch, start = Watch(), time.perf_counter()
    sweep(trials)
    return time.perf_counter() - start - starting, watch.growth()


def once(side: str, trials: int) -> dict[str, Any]:
    """Measure one side in its own process."""
    with installed(), tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.scheduling", "--side", side, "--trials", str(trials)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if process.returncode:
            raise SystemExit(f"{trials} trials of {side} failed:\n{process.stderr[-2000:]}")
        return json.loads(process.stdout.splitlines()[-1])


def measure(numbers: list[int]) -> dict[str, Any]:
    rows = []
    for trials in numbers:
        by_side = {side: once(side, trials) for side in SIDES}
        rows += [
            {
                "method": side,
                "trials": trials,
                "seconds": by_side[side]["seconds"],
                "ms_a_trial": 1e3 * by_side[side]["seconds"] / trials,
                "above_tasks": 1e3 * (by_side[side]["seconds"] - by_side["tasks"]["seconds"]) / trials,
                "driver_growth": by_side[side]["growth"],
            }
            for side in SIDES
        ]
    return {"cpus": CPUS, "methods": rows}


def _alone(side: str, trials: int) -> dict[str, float]:
    import ray

    from featurelab.pipelines.engine.sweep.ray.cluster import connect_ray  # our settings for Ray, for all sides

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
    results = measure(args.trials)
    if args.json:
        print(json.dumps(results))
        return
    for row in results["methods"]:
        print(
            f"{row['method']:12}{row['trials']:7} trials{row['seconds']:8.1f} s{row['ms_a_trial']:8.1f} ms per trial, "
            f"{row['above_tasks']:6.1f} above an empty task; driver {row['driver_growth']:+.1f} MiB"
        )


if __name__ == "__main__":
    main()
