"""One run: the same code path alone, inside a Ray worker, and when it is repeated."""

import json
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from modules.learners import Diverged as LossDiverged
from pipelines.config import Config
from pipelines.experiment import Experiment, Scale
from pipelines.runtime import current
from tracking.connect import Store
from tracking.provenance import config_hash, environment
from tracking.record import Diverged, NullRecorder, Recorder

Listener = Callable[[Mapping[str, float], int], None]


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: `finished`, `stopped` (by a scheduler), `diverged`, `failed` or `killed`; and why."""

    run_id: str
    status: str
    reason: str = ""


class Terminated(BaseException):
    """SIGTERM arrived; not an `Exception`, so that nothing on the way mistakes it for a failure of the trial."""


def run_trial(
    experiment: Experiment,
    config: Config,
    store: Store,
    *,
    scale: Scale,
    outbox: Path,
    run_id: str = "",
    name: str = "",
    axes: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Run one trial and record it in the store, in the run `run_id` if that is open already.

    Whatever happens to the trial ends up in the record and in the outcome. KeyboardInterrupt and SIGTERM are recorded
    (`killed`) and raised again; everything else becomes an `Outcome`.
    """
    if current().rank > 0:
        perform(experiment, config, NullRecorder())
        return Outcome("", "finished")
    run_id = run_id or start(experiment, config, store, scale=scale, name=name, axes=axes, tags=tags or {})
    recorder = Recorder(store, run_id, outbox=outbox, listeners=listeners)
    status, reason, error = "finished", "", None
    began = time.monotonic()
    try:
        recorder.json("config", config.model_dump(mode="json"))
        recorder.json("environment", environment(threads=config.threads))
        perform(experiment, config, recorder)
    except (Diverged, LossDiverged) as end:
        status, reason = "diverged", str(end)
    except SystemExit as end:
        status, reason = (
            ("stopped", "stopped early by the scheduler") if not end.code else ("failed", f"exit {end.code}")
        )
    except (KeyboardInterrupt, Terminated) as end:
        status, reason, error = "killed", "interrupted" if isinstance(end, KeyboardInterrupt) else "terminated", end
    except Exception as end:
        status, reason = "failed", f"{type(end).__name__}: {end}".splitlines()[0][:500]
        recorder.text("traceback", traceback.format_exc())
    mlflow_status = {"finished": "FINISHED", "stopped": "FINISHED", "killed": "KILLED"}.get(status, "FAILED")
    seconds = f"{time.monotonic() - began:.3f}"
    recorder.close(mlflow_status, tags={"status": status, "reason": reason, "seconds": seconds})
    if error is not None:
        raise error
    return Outcome(run_id, status, reason)


def start(
    experiment: Experiment,
    config: Config,
    store: Store,
    *,
    scale: Scale,
    name: str,
    axes: Sequence[str],
    tags: Mapping[str, str],
) -> str:
    """Open the MLflow run of a trial and return its id. Params are the axes and what differs from the preset."""
    values = config.model_dump(mode="json")
    differing = config.differences(experiment.preset(scale))
    params = {field: values[field] for field in dict.fromkeys([*axes, *differing])}
    return store.start_run(
        experiment.name,
        name or config.label(list(params) or ["seed"]),
        params={field: json.dumps(value) if isinstance(value, list) else str(value) for field, value in params.items()},
        tags={
            "system": experiment.system,
            "experiment": experiment.name,
            "figure": experiment.figure,
            "scale": scale,
            "config": json.dumps(values),
            "config_hash": config_hash(values),
            "axes": json.dumps(list(axes)),
            "status": "running",
            **tags,
        },
    )


def perform(experiment: Experiment, config: Config, recorder: Any) -> None:
    """The trial itself, in a process made deterministic."""
    if experiment.run_trial is None:
        raise TypeError(f"{experiment.name} declares no trial")
    with deterministic(config), terminable():
        experiment.run_trial(config, recorder)


@contextmanager
def deterministic(config: Config) -> Iterator[None]:
    """Pin the thread count, take deterministic algorithms only, and seed the global generators.

    Ours draw from named streams; the global generators are seeded for code that does not (dropout, a stranger's net).
    """
    # cuBLAS reads this when it is first used: without it, its reductions may differ from run to run
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(config.streams.order)
    np.random.seed(config.streams.order % 2**32)  # noqa: NPY002 - the legacy generator is what others may use
    torch.manual_seed(config.streams.order)
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(True)
    try:
        with threadpool_limits(config.threads):
            yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into `Terminated`, so that a run that is told to stop says so; only a main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
