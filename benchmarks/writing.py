"""How many runs and points a store takes per second, by the number of processes that write to it at once.

Each writer creates runs as our trials do: start a run with its tags and params, send 200 points in one request, end the
run. The stores are a SQLite file, an MLflow server over one (started as in `ray_cluster.yaml`), and a server over
PostgreSQL if FEATURELAB_DATABASE names an empty database (`postgresql://user:password@host/name`).

    python -m benchmarks.writing [--json] [--writers 1 2 8 32] [--seconds 10]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._server import server

WRITERS = (1, 2, 8, 32)
SECONDS = 10.0
POINTS = 200
DATABASE = "FEATURELAB_DATABASE"


def write(uri: str, number: int, seconds: float, barrier: Any, counts: Any) -> None:
    """Create runs for this many seconds, and put their number into `counts`."""
    from mlflow.entities import Metric

    from featurelab.tracking.store.connect import attach

    store = attach(uri)
    tags = {"config": json.dumps({"lr": 0.1, "width": 64, "seed": 0}), "status": "running", "sweep": "benchmark"}

    def run() -> None:
        run_id = store.start_run("benchmark/writing", f"writer {number}", tags=tags, params={"lr": 0.1, "seed": 0})
        points = [Metric(f"m{i}", float(step), 1000 + step, step) for i in range(10) for step in range(POINTS // 10)]
        store.log_metrics(run_id, points, {"status": "finished"})
        store.end_run(run_id)

    run()  # not counted: the first run does what is done only once
    barrier.wait()
    n_runs, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        run()
        n_runs += 1
    counts.put(n_runs)


def at_once(uri: str, writers: int, seconds: float) -> float:
    """Return the runs per second of this many writers."""
    from featurelab.tracking.store.connect import connect

    connect(uri)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["featurelab.tracking.store.connect", "mlflow.store.tracking.sqlalchemy_store"])
    barrier, counts = context.Barrier(writers), context.Queue()
    processes = [context.Process(target=write, args=(uri, n, seconds, barrier, counts)) for n in range(writers)]
    for process in processes:
        process.start()
    n_runs = sum(counts.get(timeout=600) for _ in processes)
    for process in processes:
        process.join()
    return n_runs / seconds


def measure(numbers: list[int], seconds: float) -> dict[str, Any]:
    rows = []

    def row(store: str, uri: str) -> None:
        for writers in numbers:
            rate = at_once(uri, writers, seconds)
            rows.append({"method": store, "writers": writers, "runs_a_second": rate, "points_a_second": POINTS * rate})
            print(store, writers, f"{rate:.1f} runs per second", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row("SQLite file", f"sqlite:///{folder / 'mlflow.db'}")
        with server(folder, f"sqlite:///{folder / 'server.db'}") as uri:
            row("server, SQLite", uri)
        if os.environ.get(DATABASE):
            with server(folder, os.environ[DATABASE]) as uri:
                row("server, PostgreSQL", uri)
    return {"points_a_run": POINTS, "methods": rows}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--writers", type=int, nargs="+", default=WRITERS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each writer writes")
    args = parser.parse_args(argv)
    results = measure(args.writers, args.seconds)
    if args.json:
        print(json.dumps(results))
        return
    for row in results["methods"]:
        print(
            f"{row['method']:20}{row['writers']:4} writers{row['runs_a_second']:8.1f} runs,"
            f"{row['points_a_second']:9.0f} points per second"
        )


if __name__ == "__main__":
    main()
