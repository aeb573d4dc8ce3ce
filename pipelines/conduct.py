"""Opened sweeps, run: their trials over Ray Tune, in the same workers, and each sweep closed as its last trial ends."""

import logging
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from mlflow.entities import Metric

from pipelines.cluster import NO_MEMORY, alive, connect_ray, elsewhere, survive_lack_of_memory
from pipelines.config import Config
from pipelines.driver import heartbeat, introduction
from pipelines.errors import RequestError, Unsettled, tell
from pipelines.experiment import Experiment, Scale
from pipelines.records import TrialRecord, read_trials
from pipelines.resources import Resources, at_once, requests
from pipelines.runtime import SETTINGS
from pipelines.worker import Job, work
from tracking.connect import Store, StoreError
from tracking.journal import Busy
from tracking.lines import line
from tracking.outbox import Bound, alone, sync

Mode = Literal["min", "max"]
TERMINATED = 128 + signal.SIGTERM  # the exit status that shells give a process ended by SIGTERM

STATUSES = ("finished", "stopped", "diverged", "failed", "killed")  # in which a trial may end
NOTICED = 40.0  # seconds after which Ray has noticed that a machine is gone
ROUNDS = 3  # how often a trial may lose its machine before it is given up
LEAVING = 20.0  # seconds that worker processes get to let go of their journals when a sweep is ended


@dataclass(frozen=True)
class Plan:
    """A sweep before it runs."""

    experiment: Experiment
    configs: list[Config]
    axes: list[str]
    scale: Scale
    name: str = ""
    scheduler: Literal["fifo", "asha"] = "fifo"
    metric: str = ""
    mode: Mode = "min"
    resources: Resources = field(default_factory=Resources)
    kind: Literal["sweep", "reproduce", "rerun"] = "sweep"
    tags: dict[str, str] = field(default_factory=dict)

    def label(self, config: Config) -> str:
        """The name of a trial: the axes on which the trials differ."""
        varied = [axis for axis in self.axes if len({getattr(other, axis) for other in self.configs}) > 1]
        return config.label(varied or self.axes)


@dataclass(frozen=True)
class Finished:
    """A sweep after it ran."""

    sweep_run_id: str
    name: str
    trials: list[TrialRecord]
    seconds: float

    def as_dict(self, metric: str, mode: Mode) -> dict[str, Any]:
        """The sweep as `featurelab sweep --json` prints it; `best` is None when no trial recorded the metric."""
        ranked = [trial for trial in self.trials if trial.went_well and metric in trial.metrics]
        best = (min if mode == "min" else max)(ranked, key=lambda trial: trial.metrics[metric], default=None)
        return {
            "sweep_run_id": self.sweep_run_id,
            "name": self.name,
            "trials": [trial.as_dict() for trial in self.trials],
            "best": best.as_dict() if best else None,
        }


@dataclass(frozen=True)
class Opened:
    """A sweep whose run in `verdicts` is open: its plan, and which of its trials are to run.

    `going_on` holds the runs, by index, of those that were cut short; `seconds` is what it took before, None for a new
    sweep.
    """

    plan: Plan
    name: str
    run_id: str
    indices: Sequence[int]
    going_on: Mapping[int, str] = field(default_factory=dict)
    seconds: float | None = None


def conduct(
    sweeps: Sequence[Opened],
    store: Store,
    outbox: Path,
    *,
    title: str = "",
    ended: Callable[[Finished], Any] = lambda finished: None,
) -> list[Finished]:
    """Run the trials of these sweeps, one sweep after another but without a pause between them.

    They share the scheduler and the resources of the first. Each is closed, and given to `ended`, as soon as its last
    trial is over, beside the others that still run; interrupted, those that were not over are closed as killed. Trials
    whose machine is lost go on elsewhere, in their own runs and from their last checkpoint; those that end their own
    process do not, since they would do so again.

    Raises `RequestError` where another process on this machine conducts one of them, `Unsettled` where the store could
    not be told in the end what became of one.
    """
    with ExitStack() as held:
        for sweep in sweeps:
            try:
                held.enter_context(alone(outbox, sweep.run_id))
            except Busy:
                raise RequestError(f"the sweep {sweep.name} is still being run by another process") from None
        for sweep in sweeps:
            if sweep.seconds is not None:
                store.reopen_run(sweep.run_id)
                store.set_tags(sweep.run_id, {"status": "running"} | introduction())
        held.enter_context(heartbeat(sweeps[0].run_id, store))
        results = _conduct(sweeps, store, outbox, title, ended)
        sync(outbox, known=store.uri)  # what earlier crashes left, once: a store that is away costs seconds
        return results


def _conduct(
    sweeps: Sequence[Opened], store: Store, outbox: Path, title: str, ended: Callable[[Finished], Any]
) -> list[Finished]:
    began: list[float] = [0.0] * len(sweeps)
    closing: dict[int, Future[Finished]] = {}
    errors: dict[tuple[int, int], str] = {}
    killed = terminated = several = False

    def close(part: int) -> Finished:
        found = {index: error for (of, index), error in errors.items() if of == part}
        trials = settle(sweeps[part].plan, sweeps[part].run_id, store, outbox, found, killed=killed)
        seconds = time.monotonic() - (began[part] or time.monotonic()) + (sweeps[part].seconds or 0.0)
        _close_sweep(sweeps[part], trials, store, seconds, killed=killed)
        finished = Finished(sweeps[part].run_id, sweeps[part].name, trials, seconds)
        if not killed:
            _tell_troubles(trials)
            ended(finished)
        return finished

    def died(part: int) -> list[int]:
        return [index for (of, index) in errors if of == part]

    def remainder(part: int) -> Opened:
        """What is to be run again of a sweep, all of whose trials are over."""
        indices, sweep = died(part), sweeps[part]
        trials = settle(sweep.plan, sweep.run_id, store, outbox, {}, killed=False)
        for index in indices:
            del errors[part, index]
        return replace(
            sweep, indices=indices, going_on={t.index: t.run_id for t in trials if t.index in indices and t.run_id}
        )

    def terminate(signum: int, frame: Any) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt  # Ray lets this one through; a SystemExit comes out of it as another

    with ThreadPoolExecutor(1) as aside:

        def start(part: int) -> None:
            began[part] = min(began[part] or time.monotonic(), time.monotonic())

        def over(part: int) -> None:
            if not (several and died(part)):  # else it is seen first whether a machine is gone
                closing[part] = aside.submit(close, part)

        try:
            if any(sweep.indices for sweep in sweeps):
                signal.signal(signal.SIGTERM, terminate)  # Ray, once started, would answer it with an abort
                machines = alive()
                several = len(machines) > 1
                _tune(dict(enumerate(sweeps)), store, outbox, errors, title, start, over)
                for _ in range(ROUNDS):
                    parts = [part for part in range(len(sweeps)) if part not in closing and died(part)]
                    if not parts or not _gone(machines):
                        break
                    machines = alive()
                    again = {part: remainder(part) for part in parts}
                    number = sum(len(sweep.indices) for sweep in again.values())
                    tell(f"{number} trial{'s' * (number > 1)} died as a machine was lost: going on elsewhere")
                    _tune(again, store, outbox, errors, title, start, over)
        except KeyboardInterrupt:
            killed = True
            import ray

            address = ray.get_runtime_context().gcs_address if several else ""
            ray.shutdown()  # which ends the workers
            if address:
                with suppress(RequestError):
                    connect_ray(address)  # for what they leave on other machines
            if terminated:
                raise SystemExit(TERMINATED) from None
            raise
        finally:
            for part in range(len(sweeps)):
                if part not in closing:
                    closing[part] = aside.submit(close, part)
            results = _results(sweeps, closing, killed=killed)
    return results


def _results(sweeps: Sequence[Opened], closing: Mapping[int, Future[Finished]], *, killed: bool) -> list[Finished]:
    try:
        return [closing[part].result() for part in range(len(sweeps))]
    except StoreError as error:
        again = "the same command" if sweeps[0].plan.kind == "reproduce" else f"--resume {sweeps[0].name}"
        said = f"{error}; what was recorded is kept: featurelab sync sends it, {again} runs what is missing"
        if not killed:
            raise Unsettled(said) from None
        tell(f"featurelab: {said}")
        return []


def _gone(machines: set[str]) -> bool:
    """Whether one of these machines is gone; Ray needs a while to notice."""
    deadline = time.monotonic() + NOTICED
    while not machines - alive():
        if len(machines) < 2 or time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def _tune(
    sweeps: Mapping[int, Opened],
    store: Store,
    outbox: Path,
    errors: dict[tuple[int, int], str],
    title: str,
    start: Callable[[int], None],
    over: Callable[[int], None],
) -> None:
    """Run the trials; `errors` gets, by (sweep, index), what Ray says of those that it could not run."""
    import ray
    from ray import tune

    from pipelines.progress import SweepProgress
    from pipelines.schedulers import Asha, Fifo

    first = next(iter(sweeps.values()))
    plan, resources = first.plan, first.plan.resources
    jobs = {part: _job(sweep, store, outbox) for part, sweep in sweeps.items()}
    chosen = [(part, index) for part, sweep in sweeps.items() for index in sweep.indices]
    assignments = iter(chosen)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what becomes of each trial we say ourselves
    bound = Bound(outbox)
    survive_lack_of_memory()
    watching = SweepProgress(title or plan.experiment.name, chosen, errors, start, over, bound.trouble)
    with watching as progress, tempfile.TemporaryDirectory() as folder:
        tune.Tuner(
            tune.with_resources(tune.with_parameters(work, jobs=[ray.put(jobs)]), requests(jobs)),
            # not a grid: Tune would copy all of it for every trial
            param_space={"trial": tune.sample_from(lambda spec: next(assignments))},
            tune_config=tune.TuneConfig(
                num_samples=len(chosen),
                reuse_actors=resources.workers == 1,
                scheduler=Asha(plan.metric, plan.mode) if plan.scheduler == "asha" else Fifo(),
                max_concurrent_trials=at_once(resources),
            ),
            run_config=tune.RunConfig(name=first.name, storage_path=folder, verbose=0, callbacks=[progress]),
        ).fit()


def _job(sweep: Opened, store: Store, outbox: Path) -> Job:
    plan, resources = sweep.plan, sweep.plan.resources
    return Job(
        experiment=plan.experiment.name,
        configs=[config.model_dump(mode="json") for config in plan.configs],
        names=[plan.label(config) for config in plan.configs],
        axes=plan.axes,
        scale=plan.scale,
        uri=store.uri,
        outbox=str(outbox),
        tags={"sweep": sweep.name, "sweep_run_id": sweep.run_id, "kind": plan.kind, **plan.tags},
        metric=plan.metric if plan.scheduler == "asha" else None,
        timeout=resources.timeout,
        workers=resources.workers,
        cpus=resources.cpus,
        gpus=resources.gpus,
        going_on=dict(sweep.going_on),
        settings={name: os.environ[name] for name in SETTINGS if name in os.environ},
    )


def settle(
    plan: Plan, sweep_run_id: str, store: Store, outbox: Path, errors: Mapping[int, str], *, killed: bool
) -> list[TrialRecord]:
    """Bring every run of a sweep into a final state, with all that its journal still holds.

    Returns all trials of the plan; one that never came to open a run has an empty run id.
    """

    def read() -> list[TrialRecord]:
        return read_trials(store, plan.experiment.name, sweep_run_id)

    found = read()
    if left := {trial.run_id for trial in found if _goes_on(trial)}:
        unsent = send_rest(outbox, left, LEAVING, store.uri)
        for answer in elsewhere(send_rest, outbox, left, LEAVING, store.uri, patience=2 * LEAVING):
            unsent |= answer
        end = "KILLED" if killed else "FAILED"
        for trial in filter(_goes_on, read()):
            if trial.status == "running":
                said = "the sweep was interrupted" if killed else _why(errors.get(trial.index, ""))
                if trial.run_id in unsent:
                    said = f"what it recorded could not be sent: {unsent[trial.run_id]}"
                store.set_tags(trial.run_id, {"status": end.lower(), "reason": said, "cut_short": "true"})
            store.end_run(trial.run_id, end)
        found = read()
    trials = {trial.index: trial for trial in found}
    for index, config in enumerate(plan.configs):
        if index not in trials:
            reason = "the sweep was interrupted before it began" if killed else _why(errors.get(index, ""))
            values = config.model_dump(mode="json")
            status = "killed" if killed else "failed"
            trials[index] = TrialRecord("", index, plan.label(config), values, status, reason, "", {})
    return [trials[index] for index in sorted(trials)]


def _goes_on(trial: TrialRecord) -> bool:
    return trial.status == "running" or trial.mlflow_status == "RUNNING"


def send_rest(outbox: Path, run_ids: set[str], patience: float, uri: str) -> dict[str, str]:
    """Send what is in the journals of this machine, once those of these runs are let go of or patience is at an end.

    Returns why some could not be sent, by run. `uri` is the store's address as those who may write to it know it.
    """
    deadline = time.monotonic() + patience
    while run_ids & set((sent := sync(outbox, known=uri)).busy) and time.monotonic() < deadline:
        time.sleep(0.2)
    return sent.failed


def _why(error: str) -> str:
    """Why a trial did not come to its end by itself, from what Ray says: the state of its process, or a traceback."""
    if NO_MEMORY in error:
        return NO_MEMORY
    if not error or re.search("^The actor ", error, re.MULTILINE):
        return "its worker process died"
    last = [text for text in error.splitlines() if text.strip()][-1]
    return line(re.sub(r"^[\w.]+\.StoreError: ", "", last), 300)


def _close_sweep(sweep: Opened, trials: list[TrialRecord], store: Store, seconds: float, *, killed: bool) -> None:
    sweep_run_id = sweep.run_id
    counts = Counter({status: 0 for status in STATUSES if sweep.seconds is not None})  # in place of those before
    counts.update(trial.status for trial in trials)
    keep_metrics(store, sweep_run_id, {f"trials/{status}": n for status, n in counts.items()})
    rows = [{"run_id": t.run_id, "status": t.status, **t.config, **t.metrics} for t in trials]
    store.log_table(sweep_run_id, pd.DataFrame(rows), "results.csv")
    well = not killed and all(trial.went_well for trial in trials)
    status = "killed" if killed else "finished" if well else "incomplete"
    store.set_tags(sweep_run_id, {"status": status, "seconds": f"{seconds:.1f}"})
    store.end_run(sweep_run_id, "KILLED" if killed else "FINISHED" if well else "FAILED")


def _tell_troubles(trials: Sequence[TrialRecord]) -> None:
    troubles = Counter((trial.status, trial.reason) for trial in trials if not trial.went_well)
    for (status, reason), number in troubles.items():
        tell(f"{number} trial{'s' * (number > 1)} {status}: {reason}")


def keep_metrics(store: Store, run_id: str, metrics: Mapping[str, float]) -> None:
    """Record numbers that have no steps."""
    now = time.time_ns() // 1_000_000
    store.log_metrics(run_id, [Metric(name, float(value), now, 0) for name, value in metrics.items()])
