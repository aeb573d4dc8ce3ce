"""Many trials of one experiment over Ray Tune, tied together in the store by one run in `verdicts`."""

import logging
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pandas as pd
from mlflow.entities import Metric

from pipelines.axes import Axis, lay_out
from pipelines.cluster import capacity, connect_ray, require_shared_store
from pipelines.config import Config
from pipelines.errors import RequestError, tell, unknown
from pipelines.experiment import Experiment, Scale
from pipelines.records import VERDICTS, TrialRecord, read_trials
from pipelines.worker import Job, work
from tracking import query
from tracking.connect import Store
from tracking.record import sync

Mode = Literal["min", "max"]
TERMINATED = 128 + signal.SIGTERM  # the exit status that shells give a process ended by SIGTERM

LEAVING = 20.0  # seconds that worker processes get to let go of their journals when a sweep is ended


@dataclass(frozen=True)
class Resources:
    """What each trial may use: CPUs and GPUs (fractions too) for each of its workers, and a time limit in seconds."""

    cpus: float = 1
    gpus: float = 0
    workers: int = 1
    timeout: float | None = None


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


def plan_search(experiment: Experiment, axes: dict[str, Axis], samples: int, base: Config, **details: Any) -> Plan:
    """The sweep over `axes` (the declared ones where none is given); every value is checked before anything runs."""
    if samples < 1:
        raise RequestError(f"--samples {samples}: needs at least 1")
    axes = axes or dict(experiment.sweep_axes)
    if not axes:
        raise RequestError(f"{experiment.name} declares no sweep axes: give some with --over key=DOMAIN")
    if details.get("name"):
        check_name(details["name"])
    configs = lay_out(base, axes, samples, seed=base.streams.order)
    details = {"metric": experiment.metric, "mode": experiment.mode} | details
    return Plan(experiment, configs, list(axes), **details)


def prepare(resources: Resources, uri: str, address: str | None) -> None:
    """Reach Ray and make sure that trials fit and that their workers can write to the store at `uri`.

    Raises `RequestError`; writes nothing, so it is best called before a store is made.
    """
    connect_ray(address)
    check_capacity(resources)
    require_shared_store(uri)


def run_sweep(plan: Plan, store: Store, *, outbox: Path, address: str | None = None) -> Finished:
    """Run every trial of the plan and wait for the last; a trial that fails, diverges or dies does not stop the others.

    Raises `RequestError` before anything is written where the name is taken or the trials cannot fit the cluster.
    """
    name = plan.name or f"{plan.experiment.name.partition('/')[2]}-{datetime.now():%Y%m%d-%H%M%S}-{uuid4().hex[:4]}"
    check_name(name)
    if len(query.runs(store, VERDICTS, tags={"sweep": name})):
        raise RequestError(f"a sweep called {name} exists: continue it with --resume {name}, or choose another --name")
    prepare(plan.resources, store.uri, address)
    sweep_run_id = open_sweep(plan, name, store)
    return _conduct(plan, name, sweep_run_id, list(range(len(plan.configs))), store, outbox)


def resume_sweep(
    experiment: Experiment, name: str, store: Store, *, outbox: Path, address: str | None = None
) -> Finished:
    """Run what is missing of the sweep called `name`: trials that did not end are run again from their start."""
    found = query.runs(store, VERDICTS, tags={"sweep": name})
    if found.empty:
        raise unknown("sweep", name, _names(store))
    sweep_run_id = str(found.run_id.iloc[0])
    stored = store.read_json(sweep_run_id, "plan.json")
    if stored["experiment"] != experiment.name:
        raise RequestError(f"the sweep {name} is of {stored['experiment']}, not of {experiment.name}")
    plan = read_plan(experiment, stored)
    trials = read_trials(store, experiment.name, sweep_run_id)
    over = {trial.index for trial in trials if trial.went_well or trial.status == "diverged"}
    prepare(plan.resources, store.uri, address)
    for trial in trials:
        if trial.index not in over:
            store.set_tags(trial.run_id, {"sweep_run_id": f"superseded in {sweep_run_id}"})
    missing = [index for index in range(len(plan.configs)) if index not in over]
    return _conduct(plan, name, sweep_run_id, missing, store, outbox)


def read_plan(experiment: Experiment, stored: dict[str, Any]) -> Plan:
    """The plan that `open_sweep` wrote down."""
    return Plan(
        experiment=experiment,
        configs=[type(experiment.laptop).read(values) for values in stored["configs"]],
        axes=stored["axes"],
        scale=stored["scale"],
        scheduler=stored["scheduler"],
        metric=stored["metric"],
        mode=stored["mode"],
        resources=Resources(**stored["resources"]),
        kind=stored["kind"],
    )


def _names(store: Store) -> list[str]:
    found = query.runs(store, VERDICTS)
    return list(found["tags.sweep"].dropna()) if "tags.sweep" in found else []


def check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
        raise RequestError(
            f"--name {name[:40]!r}: letters, digits, '_', '-' and '.', at most 100, a letter or digit first"
        )


def check_capacity(resources: Resources) -> None:
    """Raise `RequestError` when a trial asks for more than the whole cluster has."""
    have = capacity()
    for kind, each, option in (("CPU", resources.cpus, "cpus"), ("GPU", resources.gpus, "gpus")):
        if each * resources.workers > have[kind]:
            asked = f"--{option}-per-trial {each:g}" + (
                f" x {resources.workers} workers" if resources.workers > 1 else ""
            )
            raise RequestError(f"{asked}: the cluster has {have[kind]:g} {kind}")


def open_sweep(plan: Plan, name: str, store: Store) -> str:
    """Open the run in `verdicts` that stands for the sweep, with all it takes to run it again."""
    experiment = plan.experiment
    sweep_run_id = store.start_run(
        VERDICTS,
        f"{experiment.figure} {experiment.name}" if plan.kind == "reproduce" else name,
        params={"trials": str(len(plan.configs)), "scale": plan.scale},
        tags={
            "system": experiment.system,
            "experiment": experiment.name,
            "figure": experiment.figure,
            "scale": plan.scale,
            "sweep": name,
            "kind": plan.kind,
            "status": "running",
            "axes": ",".join(plan.axes),
            **plan.tags,
        },
    )
    store.log_json(
        sweep_run_id,
        {
            "experiment": experiment.name,
            "configs": [config.model_dump(mode="json") for config in plan.configs],
            "axes": plan.axes,
            "scale": plan.scale,
            "scheduler": plan.scheduler,
            "metric": plan.metric,
            "mode": plan.mode,
            "resources": asdict(plan.resources),
            "kind": plan.kind,
        },
        "plan.json",
    )
    return sweep_run_id


def _conduct(plan: Plan, name: str, sweep_run_id: str, indices: Sequence[int], store: Store, outbox: Path) -> Finished:
    began = time.monotonic()
    killed, errors, terminated = False, {}, False

    def terminate(signum: int, frame: Any) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt  # Ray lets this one through; a SystemExit comes out of it as another

    try:
        if indices:
            signal.signal(signal.SIGTERM, terminate)  # Ray, once started, would answer it with an abort
            errors = _tune(plan, name, sweep_run_id, indices, store, outbox)
    except KeyboardInterrupt:
        killed = True
        if terminated:
            raise SystemExit(TERMINATED) from None
        raise
    finally:
        trials = settle(plan, sweep_run_id, store, outbox, errors, killed=killed)
        seconds = time.monotonic() - began
        _close_sweep(plan, sweep_run_id, trials, store, seconds, killed=killed)
    troubles = Counter((trial.status, trial.reason) for trial in trials if not trial.went_well)
    for (status, reason), number in troubles.items():
        tell(f"{number} trial{'s' * (number > 1)} {status}: {reason}")
    return Finished(sweep_run_id, name, trials, seconds)


def _tune(
    plan: Plan, name: str, sweep_run_id: str, indices: Sequence[int], store: Store, outbox: Path
) -> dict[int, str]:
    """Run these trials; returns, by index, what Ray says of those that it could not run or whose worker died."""
    from ray import tune

    from pipelines.progress import SweepProgress

    resources = plan.resources
    job = Job(
        experiment=plan.experiment.name,
        configs=[config.model_dump(mode="json") for config in plan.configs],
        names=[plan.label(config) for config in plan.configs],
        axes=plan.axes,
        scale=plan.scale,
        uri=store.uri,
        outbox=str(outbox),
        tags={"sweep": name, "sweep_run_id": sweep_run_id, "kind": plan.kind, **plan.tags},
        metric=plan.metric if plan.scheduler == "asha" else None,
        timeout=resources.timeout,
        workers=resources.workers,
        cpus=resources.cpus,
        gpus=resources.gpus,
    )
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what becomes of each trial we say ourselves
    with SweepProgress(plan.experiment.name, len(indices)) as progress, tempfile.TemporaryDirectory() as folder:
        tune.Tuner(
            tune.with_resources(tune.with_parameters(work, job=job), _request(resources)),
            param_space={"index": tune.grid_search(list(indices))},
            tune_config=tune.TuneConfig(
                reuse_actors=resources.workers == 1,
                scheduler=_scheduler(plan),
                max_concurrent_trials=_at_once(resources),
            ),
            run_config=tune.RunConfig(name=name, storage_path=folder, verbose=0, callbacks=[progress]),
        ).fit()
    return progress.errors


def _request(resources: Resources) -> dict[str, float]:
    if resources.workers > 1:
        # the trial itself only waits for its workers, which ask for their own; but Ray wants some request, be it a byte
        return {"CPU": 0, "memory": 1}
    return {"CPU": resources.cpus, "GPU": resources.gpus}


def _at_once(resources: Resources) -> int | None:
    """Data-parallel trials ask for their workers one by one: more at once than fit whole would wait on each other."""
    if resources.workers == 1:
        return None
    have = capacity()
    asked = {"CPU": resources.cpus * resources.workers, "GPU": resources.gpus * resources.workers}
    return max(1, int(min(have[kind] / number for kind, number in asked.items() if number)))


def _scheduler(plan: Plan) -> Any:
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

    if plan.scheduler == "fifo":
        return FIFOScheduler()
    # one iteration is one report of the metric, so that trials are compared after equally many measurements
    return ASHAScheduler(
        time_attr="training_iteration",
        metric=plan.metric,
        mode=plan.mode,
        grace_period=3,
        reduction_factor=3,
        max_t=100_000,
    )


def settle(
    plan: Plan, sweep_run_id: str, store: Store, outbox: Path, errors: Mapping[int, str], *, killed: bool
) -> list[TrialRecord]:
    """Bring every run of a sweep into a final state, with all that its journal still holds.

    Returns all trials of the plan; one that never came to open a run has an empty run id.
    """
    if killed:
        import ray

        ray.shutdown()
    ours = {trial.run_id for trial in read_trials(store, plan.experiment.name, sweep_run_id)}
    deadline = time.monotonic() + LEAVING
    while ours & set(sync(outbox).busy) and time.monotonic() < deadline:
        time.sleep(0.2)
    end, said = ("KILLED", "the sweep was interrupted") if killed else ("FAILED", "its worker process died")
    for trial in read_trials(store, plan.experiment.name, sweep_run_id):
        if trial.status == "running":
            store.set_tags(trial.run_id, {"status": end.lower(), "reason": said})
        if trial.status == "running" or trial.mlflow_status == "RUNNING":
            store.end_run(trial.run_id, end)
    trials = {trial.index: trial for trial in read_trials(store, plan.experiment.name, sweep_run_id)}
    for index, config in enumerate(plan.configs):
        if index not in trials:
            reason = "the sweep was interrupted before it began" if killed else _last_line(errors.get(index, ""))
            values = config.model_dump(mode="json")
            status = "killed" if killed else "failed"
            trials[index] = TrialRecord("", index, plan.label(config), values, status, reason, "", {})
    return [trials[index] for index in sorted(trials)]


def _last_line(error: str) -> str:
    """What a traceback comes to."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it could not be started"


def _close_sweep(
    plan: Plan, sweep_run_id: str, trials: list[TrialRecord], store: Store, seconds: float, *, killed: bool
) -> None:
    counts = Counter(trial.status for trial in trials)
    keep_metrics(store, sweep_run_id, {f"trials/{status}": n for status, n in counts.items()})
    rows = [{"run_id": t.run_id, "status": t.status, **t.config, **t.metrics} for t in trials]
    store.log_table(sweep_run_id, pd.DataFrame(rows), "results.csv")
    well = not killed and all(trial.went_well for trial in trials)
    status = "killed" if killed else "finished" if well else "incomplete"
    store.set_tags(sweep_run_id, {"status": status, "seconds": f"{seconds:.1f}"})
    store.end_run(sweep_run_id, "KILLED" if killed else "FINISHED" if well else "FAILED")


def keep_metrics(store: Store, run_id: str, metrics: Mapping[str, float]) -> None:
    """Record numbers that have no steps."""
    now = time.time_ns() // 1_000_000
    store.log_metrics(run_id, [Metric(name, float(value), now, 0) for name, value in metrics.items()])
