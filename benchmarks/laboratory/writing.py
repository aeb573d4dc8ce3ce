"""What recording costs: a training step that records 20 metrics, and the runs that a store takes per second.

The step is a few matrix products that take 5 ms. It runs without logging, with our recorder, and with Lightning's
MLFlowLogger, alternately, each into an SQLite file, on two cores and on one. Closing the run, which waits until the
store has everything, is measured apart.

The writers create runs as our trials do: start a run with its tags and params, send 200 points in one request, end the
run. The stores are a SQLite file, an MLflow server over one (started as in `ray_cluster.yaml`), and a server over
PostgreSQL if FEATURELAB_DATABASE names an empty database (`postgresql://user:password@host/name`).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._rows import Row, Size, compare
from benchmarks.laboratory._server import server

STEP_S = 0.005
METRICS = 20
POINTS = 200
DATABASE = "FEATURELAB_DATABASE"
NOTHING, PEER = "no logging", "MLFlowLogger"
ADDRESS = "MLFLOW_TRACKING_URI"


def training_step(seconds: float) -> Callable[[], None]:
    """Return a function that computes for about this long on one thread."""
    import torch

    torch.set_num_threads(1)
    matrix = torch.randn(512, 512)

    def product() -> None:
        (matrix @ matrix).tanh_()

    for _ in range(30):
        product()
    times = []
    for _ in range(50):
        start = time.perf_counter()
        product()
        times.append(time.perf_counter() - start)
    count = max(1, round(seconds / min(times)))  # the machine at its fastest: at other times the step takes longer

    def step() -> None:
        for _ in range(count):
            product()

    return step


@contextmanager
def on_cores(count: int) -> Iterator[int]:
    """Let this thread, and those that it starts, run on this many cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield len(os.sched_getaffinity(0))
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def same_store() -> Iterator[None]:
    """Undo what Lightning's MLFlowLogger does: make its store that of the whole process and its children."""
    import mlflow

    before = os.environ.get(ADDRESS)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]  # undocumented: forgets the address
        if before is not None:
            os.environ[ADDRESS] = before


def recorded(cores: int, n_steps: int, repeats: int) -> list[Row]:
    """Rows of training steps that record, on this many cores."""
    from pytorch_lightning.loggers import MLFlowLogger

    from featurelab.tracking.outbox.record import Recorder
    from featurelab.tracking.store.connect import connect

    names = [f"layer/{number}" for number in range(METRICS)]
    closing: list[float] = []

    def train(log: Callable[[dict[str, float], int], None] | None) -> float:
        start = time.perf_counter()
        for number in range(n_steps):
            step()
            if log:
                log(dict.fromkeys(names, float(number)), number)
        return (time.perf_counter() - start) / n_steps

    def ours() -> float:
        run_id = store.start_run("benchmark/recording", "run")
        recorder = Recorder(store, run_id, outbox=folder / "outbox")
        seconds = train(recorder.log)
        start = time.perf_counter()
        if not recorder.close():
            raise SystemExit("the recorder could not send all points")
        closing.append(time.perf_counter() - start)
        return seconds

    def theirs() -> float:
        logger = MLFlowLogger("benchmark/lightning", tracking_uri=store.uri)
        assert logger.run_id
        seconds = train(logger.log_metrics)
        logger.finalize()
        return seconds

    sides = {"featurelab": ours, NOTHING: lambda: train(None), PEER: theirs}
    with tempfile.TemporaryDirectory() as name, same_store(), on_cores(cores) as available:
        folder = Path(name)
        store = connect(f"sqlite:///{folder / 'mlflow.db'}")
        step = training_step(STEP_S)
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for repeat in range(repeats + 1):  # the first warms up
            for side in list(sides) if repeat % 2 else reversed(list(sides)):
                taken[side].append(sides[side]())
        store.close()
    taken = {side: seconds[1:] for side, seconds in taken.items()}

    def percent(side: str) -> float:
        return 100 * (median(a / b for a, b in zip(taken[side], taken[NOTHING], strict=True)) - 1)

    numbers = {"overhead_percent": percent("featurelab"), "peer_overhead_percent": percent(PEER)}
    numbers["close_ms"] = 1000 * median(closing[1:])
    what = f"a training step of {1000 * median(taken[NOTHING]):.1f} ms that records {METRICS} metrics in SQLite"
    return compare(f"recording/cores={cores}", f"{what}, {available} cores", taken, numbers=numbers)


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


def written(numbers: tuple[int, ...], seconds: float, *, servers: bool) -> list[Row]:
    """Rows of stores to which this many processes write at once: an SQLite file, and with `servers` the others."""
    rows: list[Row] = []

    def measure(place: str, what: str, uri: str) -> None:
        for writers in numbers:
            rate = at_once(uri, writers, seconds)
            text = f"write runs of {POINTS} points to {what}, {writers} processes at once"
            measured = {"runs_a_second": rate, "points_a_second": POINTS * rate}
            rows.append(Row(f"writers/{place}/{writers}", text, None, numbers=measured))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure("file", "an SQLite file", f"sqlite:///{folder / 'mlflow.db'}")
        if servers:
            with server(folder, f"sqlite:///{folder / 'server.db'}") as uri:
                measure("server", "an MLflow server over SQLite", uri)
        if servers and os.environ.get(DATABASE):
            with server(folder, os.environ[DATABASE]) as uri:
                measure("postgresql", "an MLflow server over PostgreSQL", uri)
    return rows


def rows(size: Size) -> list[Row]:
    if size == "tiny":
        return [*recorded(1, 3, 1), *written((1,), 0.2, servers=False)]
    return [row for cores in (2, 1) for row in recorded(cores, 150, 5)] + written((1, 8, 32), 2.0, servers=True)
