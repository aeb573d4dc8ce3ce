"""Repeat a run, or a sweep, from its id alone, and compare the results."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.sweep.begin import run_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.records import read_sweep, read_trial, read_trials_of
from featurelab.pipelines.engine.sweep.resources import Resources
from featurelab.pipelines.engine.verdict.repetition import SHOWN, Recorded, Repetition, hold
from featurelab.tracking.provenance import changes
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store, StoreError


def rerun(run_id: str, store: Store, *, outbox: Path, address: str | None = None) -> Repetition:
    """Repeat a trial, or a whole sweep given the id of its run in `verdicts`.

    Raises `RequestError` for a run that is not ours, or that has no config.
    """
    run = store.get_run(run_id)
    tags = run.data.tags
    if "experiment" in tags and "config" in tags:
        return _rerun_trial(run_id, tags, store, outbox, address)
    if "sweep" in tags:
        return _rerun_sweep(run_id, store, outbox, address)
    raise RequestError(f"{run_id} was not recorded by featurelab, so it cannot be repeated: it names no experiment")


def _rerun_trial(run_id: str, tags: dict[str, str], store: Store, outbox: Path, address: str | None) -> Repetition:
    experiment, record, config = read_trial(run_id, store)
    axes, workers, scale = record.axes, record.workers, record.scale
    again = {"rerun_of": run_id}
    if workers > 1:
        resources = Resources(workers=workers, gpus=record.gpus)
        plan = Plan.of(experiment, [config], axes, scale, resources=resources, kind="rerun", tags=again)
        new_id = run_sweep(plan, store, outbox=outbox, address=address).trials[0].run_id
    else:
        # imports torch, which data-parallel repetitions need in workers only
        from featurelab.pipelines.engine.trial.run import run_trial

        place = {"workers": workers, "gpus": record.gpus}
        details: dict[str, Any] = {"scale": scale, "axes": axes, "tags": again, "place": place}
        new_id = run_trial(experiment, config, store, outbox=outbox, **details).run_id
    old, new = _recorded(store, [run_id, new_id])
    repetition = hold(old, new, stoppable=_stoppable(store, tags))
    repetition.differences = _shown(repetition.differences)
    repetition.environment_changes = _environment_changes(store, run_id, new_id)
    return repetition


def _rerun_sweep(run_id: str, store: Store, outbox: Path, address: str | None) -> Repetition:
    experiment, stored, tags = read_sweep(store, run_id)
    plan = stored.completed().but(scheduler="fifo", kind="rerun", study=None, tags={"rerun_of": run_id})
    old = {trial.index: trial for trial in read_trials_of(store, experiment, run_id, stored, tags)}
    finished = run_sweep(plan, store, outbox=outbox, address=address)
    new = {trial.index: trial for trial in finished.trials}
    pairs = [(trial, new[index]) for index, trial in old.items() if index in new]
    records = iter(_recorded(store, [trial.run_id for pair in pairs for trial in pair]))
    stoppable = stored.scheduler == "asha"
    parts = [hold(next(records), next(records), stoppable=stoppable) for _ in pairs]
    differences = [f"{trial.name} was not repeated" for index, trial in old.items() if index not in new]
    for (trial, _), part in zip(pairs, parts, strict=True):
        differences += [f"{trial.name}: {difference}" for difference in part.differences]
    environments = (parts[0].run_id, parts[0].new_run_id) if parts else None
    return Repetition(
        run_id=run_id,
        new_run_id=finished.sweep_run_id,
        identical=len(parts) == len(old) > 0 and not differences,
        metrics_compared=sum(part.metrics_compared for part in parts),
        points_compared=sum(part.points_compared for part in parts),
        points_recorded=sum(part.points_recorded for part in parts),
        points_repeated=sum(part.points_repeated for part in parts),
        max_abs_diff=max((part.max_abs_diff for part in parts), default=math.nan),
        differences=_shown(differences),
        environment_changes=_environment_changes(store, *environments) if environments else [],
    )


def _recorded(store: Store, run_ids: list[str]) -> list[Recorded]:
    """Return these runs as the store holds them, in this order."""
    points = dict(list(query.histories(store, run_ids, derived=True).groupby("run_id")))
    none = pd.DataFrame(columns=query.HISTORY)
    return [
        Recorded(run, points.get(run.info.run_id, none), _document(store, run.info.run_id))
        for run in query.named(store, run_ids)
    ]


def _document(store: Store, run_id: str) -> Any:
    try:
        return store.read_json(run_id, "config.json")
    except (StoreError, ValueError):  # the artifact may be on a machine that is gone
        return None


def _stoppable(store: Store, tags: Mapping[str, str]) -> bool:
    """Whether the trial with these tags ran under a scheduler that stops trials early."""
    if "sweep_run_id" not in tags:
        return False
    try:
        plan = store.read_json(tags["sweep_run_id"], "plan.json")
    except (StoreError, ValueError):
        return False
    return isinstance(plan, dict) and plan.get("scheduler") == "asha"


def _shown(differences: list[str]) -> list[str]:
    more = len(differences) - SHOWN
    return [*differences[:SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _environment_changes(store: Store, run_id: str, new_id: str) -> list[str]:
    try:
        return changes(store.read_json(run_id, "environment.json"), store.read_json(new_id, "environment.json"))
    except (StoreError, AttributeError, TypeError, ValueError) as error:  # the points can be compared without this
        return [f"cannot be compared: {error}"]
