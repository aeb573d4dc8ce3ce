"""Many trials of one experiment over Ray Tune, tied together in the store by one run in `verdicts`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pipelines.axes import Axis, lay_out
from pipelines.cluster import capacity, connect_ray, require_shared_store
from pipelines.conduct import Finished, Opened, Plan, Resources, conduct
from pipelines.config import Config
from pipelines.errors import RequestError, unknown
from pipelines.experiment import Experiment
from pipelines.records import VERDICTS, read_trials
from tracking import query
from tracking.connect import Store


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
    (finished,) = run_sweeps([plan], store, outbox=outbox, address=address)
    return finished


def run_sweeps(
    plans: Sequence[Plan],
    store: Store,
    *,
    outbox: Path,
    address: str | None = None,
    title: str = "",
    ended: Callable[[Finished], Any] = lambda finished: None,
) -> list[Finished]:
    """Several sweeps as `run_sweep` runs one, in the same workers; `ended` gets each as soon as it is over."""
    stamp = f"{datetime.now():%Y%m%d-%H%M%S}-{uuid4().hex[:4]}"
    names = [plan.name or f"{plan.experiment.name.partition('/')[2]}-{stamp}" for plan in plans]
    for name in names:
        check_name(name)
        if len(query.runs(store, VERDICTS, tags={"sweep": name})):
            raise RequestError(
                f"a sweep called {name} exists: continue it with --resume {name}, or choose another --name"
            )
    prepare(plans[0].resources, store.uri, address)
    opened = [
        Opened(plan, name, open_sweep(plan, name, store), range(len(plan.configs)))
        for plan, name in zip(plans, names, strict=True)
    ]
    return conduct(opened, store, outbox, title=title, ended=ended)


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
    (finished,) = conduct([Opened(plan, name, sweep_run_id, missing)], store, outbox)
    return finished


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
