"""Begin, resume and extend sweeps: many trials of one experiment, tied together by one run in `verdicts`."""

import shlex
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd

from featurelab.pipelines.engine.errors import RequestError, unknown
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep import schemas
from featurelab.pipelines.engine.sweep.conduct import OnSweepEnd, conduct
from featurelab.pipelines.engine.sweep.descriptions import describe, describe_verdicts
from featurelab.pipelines.engine.sweep.ownership import driver_tags, where_run
from featurelab.pipelines.engine.sweep.plan import SWEEP_NAME, Finished, Opened, Plan, check_name
from featurelab.pipelines.engine.sweep.ray.cluster import connect_ray, require_shared_store
from featurelab.pipelines.engine.sweep.ray.sharing import require
from featurelab.pipelines.engine.sweep.records import (
    JUDGING,
    TRIALS_OF,
    VERDICTS,
    as_text,
    read_stored_plan,
    read_trials,
)
from featurelab.pipelines.engine.sweep.resources import Resources
from featurelab.pipelines.engine.sweep.search.study import require_optuna
from featurelab.pipelines.engine.sweep.settle import LEAVING
from featurelab.pipelines.engine.trial.signals import last_line
from featurelab.tracking.outbox.locks import in_use
from featurelab.tracking.pages import source
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store


def prepare(resources: Resources, uri: str, address: str | None) -> None:
    """Connect to Ray; raise `RequestError` unless trials fit, and their workers can write to the store at `uri`.

    Writes nothing, so call it before a store is created.
    """
    connect_ray(address)
    require(resources)
    require_shared_store(uri)


def run_sweep(plan: Plan, store: Store, *, outbox: Path, address: str | None = None) -> Finished:
    """Run all trials of the plan and wait for the last; a trial that fails, diverges or dies does not stop the others.

    Raises `RequestError`, before anything is written, if the name is taken or the trials do not fit the cluster.
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
    on_sweep_end: OnSweepEnd = lambda finished: None,
    resumed: Sequence[Opened] = (),
) -> list[Finished]:
    """Run several sweeps, as `run_sweep` runs one, in the same workers; `on_sweep_end` gets each when it has ended.

    Sweeps in `resumed` are open already and run first. The sweeps are returned in the order in which they run.
    """
    stamp = _stamp()
    names = [plan.name or _default_name(plan, stamp) for plan in plans]
    for name in names:
        check_name(name)
        if len(query.runs(store, VERDICTS, tags={"sweep": name})):
            raise RequestError(
                f"a sweep called {name} exists: continue it with --resume {name}, or choose another --name"
            )
    prepare((resumed[0].plan if resumed else plans[0]).resources, store.uri, address)

    def open_sweeps() -> list[Opened]:
        opened = [
            Opened(plan, name, open_sweep(plan, name, store), range(len(plan.configs)))
            for plan, name in zip(plans, names, strict=True)
        ]
        if opened:
            last_line.resume_command = last_line.resume_command or _resume_command(plans[0], names[0], address)
        return [*resumed, *opened]

    return conduct(open_sweeps, store, outbox, title=title, on_sweep_end=on_sweep_end)


def _resume_command(plan: Plan, name: str, address: str | None) -> str:
    """The command that resumes a sweep."""
    command = ["featurelab", "map" if plan.kind == "map" else "sweep", plan.experiment, "--resume", name]
    return shlex.join(command + (["--address", address] if address else []))


def _run_name(plan: Plan, name: str) -> str:
    """The name of a sweep's run on the page of all sweeps."""
    figure = f"{plan.declared.figure} {plan.experiment}"
    return {"reproduce": figure, "at_settings": f"{figure} at {plan.marks.get('settings')}"}.get(plan.kind, name)


def open_reading(plan: Plan, sweep_run_id: str, store: Store) -> str:
    """Open the run of a sweep that has no trials of its own, and reads those of an ended sweep; return its id."""
    tags = plan.tags | {TRIALS_OF: sweep_run_id, "status": JUDGING}
    return open_sweep(plan.but(tags=tags), _default_name(plan, _stamp()), store)


def _default_name(plan: Plan, stamp: str) -> str:
    return f"{plan.experiment.partition('/')[2]}-{stamp}"


def _stamp() -> str:
    return f"{datetime.now():%Y%m%d-%H%M%S}-{uuid4().hex[:4]}"


def resume_sweep(
    experiment: Experiment,
    name: str,
    store: Store,
    *,
    outbox: Path,
    address: str | None = None,
    is_map: bool = False,
    **ranking: Any,
) -> Finished:
    """Run what is missing of the sweep called `name`.

    Interrupted trials resume in their own runs, from the last checkpoint of their training. Trials that failed, or that
    never began, run from their beginning. A `metric`, `mode` or `other_goals` replaces the plan's.
    Raises `RequestError` for an unknown sweep, a sweep of another experiment, one that is still running, and a map
    unless `is_map`.
    """
    runs = query.runs(store, VERDICTS, tags={"sweep": name}) if SWEEP_NAME.fullmatch(name) else pd.DataFrame()
    if runs.empty:
        raise unknown("sweep", name, _names(store))
    sweep_run_id = str(runs.run_id.iloc[0])
    plan = read_stored_plan(store, sweep_run_id, experiment).completed()
    if (plan.kind == "map") != is_map:
        what, command = ("a map", "map") if plan.kind == "map" else ("no map", "sweep")
        raise RequestError(f"{name} is {what}: featurelab {command} {experiment.name} --resume {name}")
    plan = plan.but(**{key: value for key, value in ranking.items() if value not in ("", None)})
    if plan.study:
        require_optuna()
    if where := where_run(sweep_run_id, store.get_run(sweep_run_id).data.tags, store, outbox):
        raise RequestError(f"the sweep {name} is still being run {where}")
    prepare(plan.resources, store.uri, address)
    last_line.recorded, last_line.resume_command = (
        True,
        last_line.resume_command or _resume_command(plan, name, address),
    )
    (finished,) = conduct(lambda: [reopened(plan, name, sweep_run_id, store, outbox)], store, outbox)
    return finished


def reopened(plan: Plan, name: str, sweep_run_id: str, store: Store, outbox: Path) -> Opened:
    """Return an earlier sweep with the trials that it lacks; raise `RequestError` while it is still running."""
    trials = read_trials(store, plan.experiment, sweep_run_id)
    missing = {trial.index: trial for trial in trials if not (trial.went_well or trial.status == "diverged")}
    resumed = {index: trial.run_id for index, trial in missing.items() if trial.cut_short}
    _wait_for(sweep_run_id, name, list(resumed.values()), outbox)
    for trial in trials:
        if trial.index in missing and trial.run_id not in resumed.values():
            store.set_tags(trial.run_id, {"sweep_run_id": f"superseded in {sweep_run_id}"})
    complete = {trial.index for trial in trials} - missing.keys()
    indices = [index for index in range(len(plan.configs)) if index not in complete]
    seconds = schemas.seconds(store.get_run(sweep_run_id).data.tags.get("seconds"))
    return Opened(plan, name, sweep_run_id, indices, resumed, seconds)


def extended(sweep_run_id: str, configs: Sequence[dict[str, Any]], store: Store) -> Opened:
    """Add trials to the stored plan of a sweep, and return the sweep with these trials to run."""
    tags = store.get_run(sweep_run_id).data.tags
    plan = read_stored_plan(store, sweep_run_id, registry.find(tags["experiment"]))
    more = {as_text(config): config for config in configs if config not in plan.configs}
    indices = range(len(plan.configs), len(plan.configs) + len(more))
    plan = plan.but(configs=[*plan.configs, *more.values()])
    store.log_json(sweep_run_id, plan.model_dump(), "plan.json")
    return Opened(plan, tags["sweep"], sweep_run_id, indices, seconds=schemas.seconds(tags.get("seconds")))


def _wait_for(sweep_run_id: str, name: str, run_ids: list[str], outbox: Path) -> None:
    """Wait until no process records these runs: workers of a killed command need a moment to end."""
    deadline = time.monotonic() + LEAVING
    while any(in_use(outbox, run_id) for run_id in [sweep_run_id, *run_ids]):
        if in_use(outbox, sweep_run_id) or time.monotonic() > deadline:
            raise RequestError(f"the sweep {name} is still being run by another process")
        time.sleep(0.2)


def _names(store: Store) -> list[str]:
    runs = query.runs(store, VERDICTS)
    return list(runs["tags.sweep"].dropna()) if "tags.sweep" in runs else []


def open_sweep(plan: Plan, name: str, store: Store) -> str:
    """Open the run in `verdicts` that represents the sweep, store its plan, and return the id of the run."""
    experiment, command = plan.declared, "reproduce" if plan.kind == "at_settings" else plan.kind
    describe(store, experiment)
    describe_verdicts(store)
    sweep_run_id = store.start_run(
        VERDICTS,
        _run_name(plan, name),
        params={"trials": str(len(plan.configs) + plan.undrawn), "scale": plan.scale},
        tags={
            "system": experiment.system,
            "experiment": experiment.name,
            "figure": experiment.figure,
            "scale": plan.scale,
            "sweep": name,
            "kind": plan.kind,
            "status": "running",
            "axes": ",".join(plan.axes),
            **source(f"featurelab {command} {plan.tags.get('rerun_of', experiment.name)}"),
            **driver_tags(),
            **plan.marks,
            **plan.tags,
        },
    )
    store.log_json(sweep_run_id, plan.model_dump(), "plan.json")
    return sweep_run_id
