"""Many trials of one experiment over Ray Tune, tied together in the store by one run in `verdicts`."""

import json
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pandas as pd
from mlflow.entities import Metric

from pipelines.axes import Axis, lay_out
from pipelines.cluster import connect_ray
from pipelines.config import Config
from pipelines.errors import RequestError, unknown
from pipelines.experiment import Experiment, Scale
from pipelines.worker import Job, work
from tracking import query
from tracking.connect import Store
from tracking.record import sync

VERDICTS = "verdicts"
Mode = Literal["min", "max"]


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


@dataclass(frozen=True)
class Finished:
    """A sweep after it ran: `trials` has a row a trial with run_id, trial, config, status, reason and metrics."""

    sweep_run_id: str
    name: str
    trials: pd.DataFrame
    seconds: float


def plan_search(experiment: Experiment, axes: dict[str, Axis], samples: int, base: Config, **details: Any) -> Plan:
    """The sweep over `axes` (the declared ones where none is given); every value is checked before anything runs."""
    if samples < 1:
        raise RequestError(f"--samples {samples}: needs at least 1")
    axes = axes or dict(experiment.sweep_axes)
    if not axes:
        raise RequestError(f"{experiment.name} declares no sweep axes: give some with --over key=DOMAIN")
    configs = lay_out(base, axes, samples, seed=base.streams.order)
    details = {"metric": experiment.metric, "mode": experiment.mode} | details
    return Plan(experiment, configs, list(axes), **details)


def run_sweep(plan: Plan, store: Store, *, outbox: Path, address: str | None = None) -> Finished:
    """Run every trial of the plan and wait for the last; a trial that fails, diverges or dies does not stop the others.

    Raises `RequestError` before anything is written where the name is taken or the trials cannot fit the cluster.
    """
    name = plan.name or f"{plan.experiment.name.partition('/')[2]}-{datetime.now():%Y%m%d-%H%M%S}-{uuid4().hex[:4]}"
    check_name(name)
    if len(query.runs(store, VERDICTS, tags={"sweep": name})):
        raise RequestError(f"a sweep called {name} exists: continue it with --resume {name}, or choose another --name")
    connect_ray(address)
    check_capacity(plan.resources)
    sweep_run_id = open_sweep(plan, name, store)
    return _conduct(plan, name, sweep_run_id, list(range(len(plan.configs))), store, outbox)


def resume_sweep(
    experiment: Experiment, name: str, store: Store, *, outbox: Path, address: str | None = None
) -> Finished:
    """Run what is missing of the sweep called `name`: trials that did not end are run again from their start."""
    found = query.runs(store, VERDICTS, tags={"sweep": name})
    if found.empty:
        raise unknown("sweep", name, set(query.runs(store, VERDICTS).get("tags.sweep", pd.Series()).dropna()))
    sweep_run_id = str(found.run_id.iloc[0])
    stored = store.read_json(sweep_run_id, "plan.json")
    if stored["experiment"] != experiment.name:
        raise RequestError(f"the sweep {name} is of {stored['experiment']}, not of {experiment.name}")
    plan = read_plan(experiment, stored)
    trials = read_trials(store, experiment.name, sweep_run_id)
    over = trials.status.isin(["finished", "stopped", "diverged"])
    for run_id in trials.run_id[~over]:
        store.set_tags(run_id, {"sweep_run_id": f"superseded in {sweep_run_id}"})
    connect_ray(address)
    check_capacity(plan.resources)
    missing = [index for index in range(len(plan.configs)) if index not in set(trials.trial[over])]
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


def check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
        raise RequestError(
            f"--name {name[:40]!r}: letters, digits, '_', '-' and '.', at most 100, a letter or digit first"
        )


def check_capacity(resources: Resources) -> None:
    """Raise `RequestError` when a trial asks for more than the whole cluster has."""
    import ray

    have = ray.cluster_resources()
    for kind, each, option in (("CPU", resources.cpus, "cpus"), ("GPU", resources.gpus, "gpus")):
        if each * resources.workers > have.get(kind, 0):
            asked = f"--{option}-per-trial {each:g}" + (
                f" x {resources.workers} workers" if resources.workers > 1 else ""
            )
            raise RequestError(f"{asked}: the cluster has {have.get(kind, 0):g} {kind}")


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
    killed = False
    try:
        if indices:
            _tune(plan, name, sweep_run_id, indices, store, outbox)
    except KeyboardInterrupt:
        killed = True
        raise
    finally:
        trials = settle(plan, sweep_run_id, store, outbox, killed=killed)
        seconds = time.monotonic() - began
        _close_sweep(plan, sweep_run_id, trials, store, seconds, killed=killed)
    return Finished(sweep_run_id, name, trials, seconds)


def _tune(plan: Plan, name: str, sweep_run_id: str, indices: Sequence[int], store: Store, outbox: Path) -> None:
    from ray import tune

    from pipelines.progress import SweepProgress

    resources = plan.resources
    job = Job(
        experiment=plan.experiment.name,
        configs=[config.model_dump(mode="json") for config in plan.configs],
        names=[config.label(plan.axes) for config in plan.configs],
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


def _request(resources: Resources) -> dict[str, float]:
    if resources.workers > 1:
        return {"CPU": 0}  # the trial itself only waits for its workers, which ask for their own
    return {"CPU": resources.cpus, "GPU": resources.gpus}


def _at_once(resources: Resources) -> int | None:
    """Data-parallel trials ask for their workers one by one: more at once than fit whole would wait on each other."""
    import ray

    if resources.workers == 1:
        return None
    have = ray.cluster_resources()
    fits = [have.get("CPU", 0) / (resources.cpus * resources.workers)] if resources.cpus else []
    fits += [have.get("GPU", 0) / (resources.gpus * resources.workers)] if resources.gpus else []
    return max(1, int(min(fits, default=1)))


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


def settle(plan: Plan, sweep_run_id: str, store: Store, outbox: Path, *, killed: bool) -> pd.DataFrame:
    """Bring every run of a sweep into a final state, with all that its journal still holds; returns the trials."""
    if killed:
        import ray

        ray.shutdown()
    sync(outbox)
    for row in read_trials(store, plan.experiment.name, sweep_run_id).itertuples():
        if row.mlflow_status == "RUNNING" or row.status == "running":
            end, said = ("KILLED", "the sweep was interrupted") if killed else ("FAILED", "its worker process died")
            if row.status == "running":
                store.set_tags(row.run_id, {"status": end.lower(), "reason": said})
            store.end_run(row.run_id, end)
    return read_trials(store, plan.experiment.name, sweep_run_id)


def read_trials(store: Store, experiment: str, sweep_run_id: str) -> pd.DataFrame:
    """The trials of a sweep in order: run_id, trial, name, config, status, reason, mlflow_status, metrics."""
    found = query.runs(store, experiment, tags={"sweep_run_id": sweep_run_id})
    columns = ["run_id", "trial", "name", "config", "status", "reason", "mlflow_status", "metrics"]
    rows = []
    for run in found.to_dict("records"):
        metrics = {key.removeprefix("metrics."): v for key, v in run.items() if key.startswith("metrics.") and v == v}
        rows.append(
            {
                "run_id": run["run_id"],
                "trial": int(run["tags.trial"]),
                "name": run["name"],
                "config": json.loads(run["tags.config"]),
                "status": run["tags.status"],
                "reason": run.get("tags.reason") if isinstance(run.get("tags.reason"), str) else "",
                "mlflow_status": run["status"],
                "metrics": metrics,
            }
        )
    return pd.DataFrame(rows, columns=columns).sort_values("trial", ignore_index=True)


def _close_sweep(
    plan: Plan, sweep_run_id: str, trials: pd.DataFrame, store: Store, seconds: float, *, killed: bool
) -> None:
    counts = trials.status.value_counts()
    lost = len(plan.configs) - len(trials)
    keep_metrics(store, sweep_run_id, {f"trials/{status}": n for status, n in counts.items()} | {"trials/lost": lost})
    rows = [{"run_id": r.run_id, "status": r.status, **r.config, **r.metrics} for r in trials.itertuples()]
    store.log_table(sweep_run_id, pd.DataFrame(rows), "results.csv")
    well = not killed and lost == 0 and set(counts.index) <= {"finished", "stopped"}
    store.set_tags(
        sweep_run_id,
        {"status": "killed" if killed else "finished" if well else "incomplete", "seconds": f"{seconds:.1f}"},
    )
    store.end_run(sweep_run_id, "KILLED" if killed else "FINISHED" if well else "FAILED")


def keep_metrics(store: Store, run_id: str, metrics: Mapping[str, float]) -> None:
    """Record numbers that have no steps."""
    now = time.time_ns() // 1_000_000
    store.log_metrics(run_id, [Metric(name, float(value), now, 0) for name, value in metrics.items()])


def describe(done: Finished, metric: str, mode: Mode) -> dict[str, Any]:
    """A finished sweep as `featurelab sweep --json` prints it; `best` is None when no trial recorded the metric."""
    trials = [
        {
            "run_id": row.run_id,
            "config": row.config,
            "status": row.status,
            "metrics": {k: v for k, v in row.metrics.items() if not k.startswith(("final/", "best/"))},
        }
        for row in done.trials.itertuples()
    ]
    ranked = [t for t in trials if t["status"] in ("finished", "stopped") and metric in t["metrics"]]
    best = (min if mode == "min" else max)(ranked, key=lambda t: t["metrics"][metric], default=None)
    return {"sweep_run_id": done.sweep_run_id, "name": done.name, "trials": trials, "best": best}


def compare_link(experiment: str, trials: pd.DataFrame, store: Store) -> str:
    """The MLflow page that compares the trials of a sweep; a hundred of them at most, beyond which it hardly loads."""
    return store.compare_url(list(trials.run_id[:100]), [store.experiment_id(experiment)])
