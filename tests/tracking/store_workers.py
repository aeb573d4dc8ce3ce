"""Functions that tests run in other processes. In a file of their own, so that a process imports little."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlflow.entities import Metric

from featurelab.tracking.outbox.locks import exclusive_lock
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.store import bulk
from featurelab.tracking.store.connect import attach, connect


def ready() -> Any:
    """Return a multiprocessing context whose processes start with the slow imports already done."""
    context = multiprocessing.get_context("forkserver")
    # not this file: the server that forks the processes does not have its directory on the path
    context.set_forkserver_preload(["featurelab.tracking.outbox.record", "mlflow.store.tracking.sqlalchemy_store"])
    return context


def exit_code(work: Callable[..., None], *arguments: Any) -> int:
    """Run `work` in a process and return its exit code."""
    process = ready().Process(target=work, args=arguments)
    process.start()
    process.join()
    return int(process.exitcode)


def at_once(count: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run `work(number, *arguments)` in `count` processes that begin at the same moment; return their results."""
    context = ready()
    barrier, answers = context.Barrier(count), context.Queue()
    processes = [
        context.Process(target=_answer, args=(work, number, arguments, barrier, answers)) for number in range(count)
    ]
    for process in processes:
        process.start()
    results = [answers.get(timeout=100) for _ in processes]
    for process in processes:
        process.join()
    return results


def _answer(work: Callable[..., Any], number: int, arguments: tuple[Any, ...], barrier: Any, answers: Any) -> None:
    try:
        barrier.wait(timeout=100)
        answers.put(work(number, *arguments))
    except Exception as error:
        answers.put(repr(error))


def connect_and_name(number: int, uri: str) -> str:
    """Create the store and an experiment, and return the experiment's id."""
    return connect(uri, timeout=90).experiment_id("system/figure")


def connect_in_own_folder(number: int, folder: str, cache: str) -> str:
    """Create a store in a folder of this process alone, with an experiment, and return the experiment's id."""
    os.environ["XDG_CACHE_HOME"] = cache
    home = Path(folder) / f"process {number}"
    home.mkdir()
    return connect_and_name(number, f"sqlite:///{home}/mlflow.db")


def write_points(number: int, uri: str) -> str:
    """Write 20 metrics at 10 steps to a new run, and return its id."""
    store = attach(uri)
    run_id = store.start_run("system/figure", f"writer {number}")
    for step in range(10):
        store.log_metrics(run_id, [Metric(f"m{i}", number + i / 7, 1000 + step, step) for i in range(20)])
    store.end_run(run_id)
    return run_id


def write_one_run(number: int, uri: str, run_id: str) -> str:
    """Write 20 metrics at 10 steps of its own to a run that others write to: by bulk inserts if `number` is even."""
    if number % 2:
        bulk.TRIED.clear()
    store = attach(uri)
    for step in range(number, 40, 4):
        store.log_metrics(run_id, [Metric(f"m{i}", float(step), 1000, step) for i in range(20)])
    return "done"


def record_points(number: int, uri: str, outbox: str) -> str:
    """Record 20 metrics at 40 steps in a new run, as trials do, and return its id."""
    store = attach(uri)
    run_id = store.start_run("system/figure", f"writer {number}")
    with Recorder(store, run_id, outbox=Path(outbox), flush_seconds=0.2) as recorder:
        for step in range(40):
            recorder.log({f"m{i}": number + i / 7 + step for i in range(20)}, step)
            time.sleep(0.02)
    return run_id


def record_and_die(uri: str, run_id: str, outbox: str, flush: str) -> None:
    """Record 100 points and die, after the store received the first `half` or `none`."""
    recorder = Recorder(attach(uri), run_id, outbox=Path(outbox), flush_seconds=60, flush_points=10**9)
    for step in range(100):
        recorder.log({"loss/train": 1 / (step + 1)}, step)
        if step == 49 and flush == "half":
            recorder.flush()
    die()


def lock(number: int, outbox: str) -> None:
    with exclusive_lock(Path(outbox), "sweep"):
        pass


def lock_and_die(outbox: str) -> None:
    with exclusive_lock(Path(outbox), "sweep"):
        die()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
