"""One run: the same code path alone, inside a Ray worker, and when it is repeated."""

import ctypes
import gc
import json
import os
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from featurelab.modules.data import permuted_labels
from featurelab.modules.learners import Diverged as LossDiverged
from featurelab.modules.learners import withheld_updates
from featurelab.pipelines.engine.experiment.config import Config, Scale, stream_seed
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.checkpoint import Keeper, kept_by, newest
from featurelab.pipelines.engine.trial.inputs import digests
from featurelab.pipelines.engine.trial.isolation import dispatch
from featurelab.pipelines.engine.trial.mistakes import mistake
from featurelab.pipelines.engine.trial.origin import OURS, declared_by, sources
from featurelab.pipelines.engine.trial.place import current
from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.pipelines.engine.trial.signals import Terminated, held_back, last_line, raised
from featurelab.tracking.errors import StoreError, disk_full
from featurelab.tracking.lines import escaped, line, masked
from featurelab.tracking.outbox.journal import TRAINING, HandleClosed, JournalDamaged, JournalRemoved
from featurelab.tracking.outbox.null import NullRecorder
from featurelab.tracking.outbox.record import Diverged, Recorder
from featurelab.tracking.pages import source
from featurelab.tracking.provenance import changes, config_hash, environment
from featurelab.tracking.store.connect import Store

STOPPED = "stopped early by the scheduler"
MLFLOW = {"finished": "FINISHED", "stopped": "FINISHED", "killed": "KILLED", "diverged": "FAILED", "failed": "FAILED"}

Listener = Callable[[Mapping[str, float], int], None]


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: `finished`, `stopped` (by a scheduler), `diverged`, `failed` or `killed`; and why."""

    run_id: str
    status: str
    reason: str = ""


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
    place: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    attempt: int = 1,
) -> Outcome:
    """Run one trial and record it in the store, in the run `run_id` if that is open already.

    With `attempt` n > 1 it resumes a run that was cut short: training from its last checkpoint, and what is
    recorded already is not stored again. Raises StoreError, and leaves the run as it was, where the store cannot be
    asked for these, and Busy where another process still records the run.

    Whatever happens to the trial ends up in the record and in the outcome. Ctrl-C, SIGTERM and SIGHUP are recorded
    (`killed`) and raised again, as KeyboardInterrupt or Terminated; everything else becomes an `Outcome`.
    """
    if current().rank > 0:
        with kept_by(Keeper(None)), raised():
            perform(experiment, config, NullRecorder())
        return Outcome("", "finished")
    with raised(), held_back() as signals:  # a run that is opened is closed
        details: dict[str, Any] = {"scale": scale, "name": name, "axes": axes, "tags": tags or {}, "place": place}
        run_id = run_id or start(experiment, config, store, **details)
        last_line.recorded, last_line.run_id = True, run_id
        checkpoint = newest(store, run_id, outbox) if attempt > 1 else None
        try:
            recorder = Recorder(store, run_id, outbox=outbox, listeners=listeners, attempt=attempt)
        except OSError as end:
            reason = disk_full(end) or f"it cannot be recorded: {line(str(end))}"
            store.set_tags(run_id, {"status": "failed", "reason": reason, "cut_short": "true"})
            store.end_run(run_id, "FAILED")
            return Outcome(run_id, "failed", reason)
        if checkpoint and "damaged" in store.get_run(run_id).data.tags:
            checkpoint = None  # what is missing may have been recorded before it
        keeper = Keeper(recorder, checkpoint)
        began = time.monotonic() - (reopen(store, run_id, attempt, recorder) if attempt > 1 else 0.0)
        error: BaseException | None = None
        try:
            with signals.let_through(), kept_by(keeper):
                recorder.params(params(experiment, config, scale, axes))
                recorder.json("config", config.model_dump(mode="json"))
                _keep_environment(store, recorder, experiment, config, attempt)
                perform(experiment, config, recorder)
                recorder.check()
        except BaseException as end:
            error = end
            if ending(end)[0] == "failed" and end is not recorder.broken:
                with suppress(OSError):
                    recorder.text("traceback", escaped(masked(traceback.format_exc()), keep="\n\t"))
        status, reason = ending(error, experiment.run_trial)
        seconds = f"{time.monotonic() - began:.3f}"
        # what keeps it from being recorded is no fault of the trial's: it can be resumed
        cut_short = {"cut_short": "true"} if error is not None and error is recorder.broken else {}
        if keeper.saved and status != "killed" and not cut_short:
            with suppress(OSError):
                recorder.discard(TRAINING)
        recorder.close(MLFLOW[status], tags={"status": status, "reason": reason, "seconds": seconds, **cut_short})
        if error is None and recorder.broken is not None:  # noticed only as the last lines were read
            status, reason = ending(recorder.broken)
        if isinstance(error, KeyboardInterrupt | Terminated):
            raise error
        return Outcome(run_id, status, reason)


def ending(error: BaseException | None, trial: Callable[..., None] | None = None) -> tuple[str, str]:
    """How a trial has ended that raised this, and why, in one line: with the place in the package that declares it."""
    match error:
        case None:
            return "finished", ""
        case Diverged() | LossDiverged():
            return "diverged", line(str(error))
        case SystemExit():
            return ("failed", f"exit {line(str(error.code))}") if error.code else ("stopped", STOPPED)
        case KeyboardInterrupt():
            return "killed", "interrupted"
        case Terminated():
            return "killed", "terminated"
    known = disk_full(error) or out_of_gpu_memory(error)
    if isinstance(error, StoreError | JournalRemoved | JournalDamaged | HandleClosed):
        known = known or str(error)
    return "failed", line(known) if known else mistake(error, trial)


def start(
    experiment: Experiment,
    config: Config,
    store: Store,
    *,
    scale: Scale,
    name: str,
    axes: Sequence[str],
    tags: Mapping[str, str],
    place: Mapping[str, Any] | None = None,
) -> str:
    """Open the MLflow run of a trial and return its id; `place` is what else its `TrialRecord` says from the start."""
    values = config.model_dump(mode="json")
    said = {"experiment": experiment.name, "config": values, "scale": scale, "axes": list(axes), "status": "running"}
    record = TrialRecord(**said | dict(place or {}))
    return store.start_run(
        experiment.name,
        name or config.label(list(params(experiment, config, scale, axes)) or ["seed"]),
        tags={
            "system": experiment.system,
            "figure": experiment.figure,
            "config_hash": config_hash(values),
            **record.tags(),
            **tags,
        },
    )


def params(experiment: Experiment, config: Config, scale: Scale, axes: Sequence[str]) -> dict[str, str]:
    """The params of a trial: the axes, and what differs from the preset."""
    values = config.model_dump(mode="json")
    fields = dict.fromkeys([*axes, *config.differences(experiment.preset(scale))])
    return {name: json.dumps(values[name]) if isinstance(values[name], list) else str(values[name]) for name in fields}


def reopen(store: Store, run_id: str, attempt: int, recorder: Recorder) -> float:
    """Reopen a run that was cut short; returns the seconds that it took so far, as far as is known.

    Raises StoreError, and then lets go of the run.
    """
    try:
        before = store.get_run(run_id).data.tags.get("seconds", "")
        store.set_tags(run_id, {"attempt": attempt, "status": "running", "reason": "", "cut_short": ""})
        store.reopen_run(run_id)
    except Exception as error:
        recorder.close("KILLED", tags={"status": "killed", "reason": f"could not be resumed: {line(str(error))}"})
        raise
    return float(before) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", before) else 0.0


def _keep_environment(store: Store, recorder: Recorder, experiment: Experiment, config: Config, attempt: int) -> None:
    """Record the environment; where it is not the one that the run began in, both, and what has changed."""
    code = sources(experiment)
    found = environment(threads=config.threads, dispatch=dispatch(), read=digests(experiment, config), code=code)
    try:
        first = store.read_json(recorder.run_id, "environment.json") if attempt > 1 else None
    except StoreError:  # it may be on a machine that is gone
        first = None
    if not isinstance(first, dict):
        recorder.json("environment", found)
        by = declared_by(experiment)
        revision = (found["git"] if by == OURS else code.get(by)) or {}
        recorder.tags(source(f"featurelab run {experiment.name}", revision.get("commit", "")))
    elif changed := changes(first, found):
        recorder.json(f"environment_{attempt}", found)
        recorder.tags({"environment_changes": line("; ".join(changed))})


def perform(experiment: Experiment, config: Config, recorder: Any) -> None:
    """The trial itself, in a process made deterministic."""
    if experiment.run_trial is None:
        raise TypeError(f"{experiment.name} declares no trial")
    with deterministic(config), controlled(config):
        experiment.run_trial(config, recorder)


@contextmanager
def controlled(config: Config) -> Iterator[None]:
    """Destroy what the config's `control` says; one that is the experiment's own, its trial sees to."""
    control = getattr(config, "control", "none")
    with ExitStack() as held:
        if control == "permuted_labels":
            held.enter_context(permuted_labels(stream_seed(config.seed, "permuted labels")))
        elif control == "untrained":
            held.enter_context(withheld_updates())
        yield


@contextmanager
def deterministic(config: Config) -> Iterator[None]:
    """Pin the thread count, take deterministic algorithms only, and seed the global generators.

    Ours draw from named streams; the global generators are seeded for code that does not (dropout, a stranger's net).
    """
    # cuBLAS reads this when it is first used: without it, its reductions may differ from run to run
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")  # of torch.compile, which reads it when it is imported
    random.seed(config.streams.order)
    np.random.seed(config.streams.order % 2**32)  # noqa: NPY002 - the legacy generator is what others may use
    torch.manual_seed(config.streams.order)
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    torch.set_deterministic_debug_mode("error")  # `use_deterministic_algorithms` imports torch.compile: 2 s
    try:
        with _native_libraries(len(sys.modules)).limit(limits=config.threads):
            yield
    finally:
        torch.set_deterministic_debug_mode("default")
        torch.set_num_threads(threads)


def out_of_gpu_memory(error: BaseException) -> str:
    """What an allocation that did not fit comes to, in one line; nothing for any other error."""
    said = str(error)
    if not isinstance(error, torch.OutOfMemoryError) and not re.search(r"CUDA.*(out of memory|ALLOC_FAILED)", said):
        return ""
    facts = re.match(
        r"CUDA out of memory\. (Tried to allocate [\d.]+ \w+\.( GPU \d+ has [^.]*\.\d+ \w+ of which .*? is free\.)?)",
        said,
    )
    return "out of GPU memory" + (f": {facts[1]}" if facts else "")


@contextmanager
def sharing_memory(gpu: float) -> Iterator[None]:
    """Give the memory of a trial back when it has ended: other trials of the machine and of this process need it.

    With `gpu` > 0, a share in (0, 1], this process is kept to its share of the GPU's memory: a trial that takes more
    runs out of memory itself, and not those beside it.
    """
    on_gpu = gpu > 0 and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_per_process_memory_fraction(min(gpu, 1.0))
    try:
        yield
    finally:
        gc.collect()  # trainers and modules refer to each other
        if not gc.get_freeze_count():
            gc.freeze()  # what is imported stays, and no later collection looks at it
        with suppress(AttributeError, OSError, TypeError):  # of glibc alone, which keeps what was freed
            ctypes.CDLL(None).malloc_trim(0)
        if on_gpu:
            torch.cuda.empty_cache()


@lru_cache(1)
def _native_libraries(modules: int) -> ThreadpoolController:
    """The thread pools of BLAS and OpenMP that are loaded; they are looked for again once more modules are."""
    return ThreadpoolController()
