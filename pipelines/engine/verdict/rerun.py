"""Repeat a run from its id alone, and say whether it came out the same."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.sweep.begin import run_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.records import read_sweep, read_tags, read_trials_of
from featurelab.pipelines.engine.sweep.resources import Resources
from featurelab.pipelines.engine.sweep.schemas import require_settings
from featurelab.tracking.provenance import changes
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store, StoreError

SHOWN = 20


@dataclass
class Repetition:
    """What came of a repetition: `max_abs_diff` is 0 exactly when every point has the same bits."""

    run_id: str
    new_run_id: str
    identical: bool
    metrics_compared: int
    points_compared: int
    max_abs_diff: float
    differences: list[str] = field(default_factory=list)
    environment_changes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rerun(run_id: str, store: Store, *, outbox: Path, address: str | None = None) -> Repetition:
    """Repeat a trial, or a whole sweep given the id of its run in `verdicts`.

    Raises `RequestError` for a run that is not ours or that recorded no config.
    """
    run = store.get_run(run_id)
    tags = run.data.tags
    if "experiment" in tags and "config" in tags:
        return _rerun_trial(run_id, tags, store, outbox, address)
    if "sweep" in tags:
        return _rerun_sweep(run_id, store, outbox, address)
    raise RequestError(f"{run_id} was not recorded by featurelab: it names no experiment and no config")


def _rerun_trial(run_id: str, tags: dict[str, str], store: Store, outbox: Path, address: str | None) -> Repetition:
    experiment = registry.find(tags["experiment"])
    known = read_tags(run_id, tags)
    config = type(experiment.laptop).read(known.config)
    require_settings(experiment, known.config, known.axes, f"run {run_id}")
    axes, workers, scale = known.axes, known.workers, known.scale
    again = {"rerun_of": run_id}
    if workers > 1:
        resources = Resources(workers=workers, gpus=known.gpus)
        plan = Plan.of(experiment, [config], axes, scale, resources=resources, kind="rerun", tags=again)
        new_id = run_sweep(plan, store, outbox=outbox, address=address).trials[0].run_id
    else:
        from featurelab.pipelines.engine.trial.run import run_trial  # the comparison alone needs no torch

        place = {"workers": workers, "gpus": known.gpus}
        details: dict[str, Any] = {"scale": scale, "axes": axes, "tags": again, "place": place}
        new_id = run_trial(experiment, config, store, outbox=outbox, **details).run_id
    points = query.histories(store, [run_id, new_id])
    partial = tags.get("status") in ("stopped", "killed")
    repetition = compare_points(run_id, new_id, _of(points, run_id), _of(points, new_id), partial=partial)
    status = store.get_run(new_id).data.tags.get("status")
    if status != tags.get("status") and not partial:
        repetition.identical = False
        repetition.differences.insert(0, f"status was {tags.get('status')}, is now {status}")
    repetition.environment_changes = _environment_changes(store, run_id, new_id)
    return repetition


def _rerun_sweep(run_id: str, store: Store, outbox: Path, address: str | None) -> Repetition:
    experiment, stored, tags = read_sweep(store, run_id)
    plan = stored.completed().but(scheduler="fifo", kind="rerun", tags={"rerun_of": run_id})
    old = {trial.index: trial for trial in read_trials_of(store, experiment, run_id, stored, tags)}
    finished = run_sweep(plan, store, outbox=outbox, address=address)
    new = {trial.index: trial for trial in finished.trials}
    points = query.histories(store, [trial.run_id for trial in [*old.values(), *new.values()]])
    parts: list[Repetition] = []
    differences = [f"{trial.name} was not repeated" for index, trial in old.items() if index not in new]
    for index, trial in old.items():
        if index not in new:
            continue
        new_id = new[index].run_id
        partial = trial.status in ("stopped", "killed")
        part = compare_points(trial.run_id, new_id, _of(points, trial.run_id), _of(points, new_id), partial=partial)
        if new[index].status != trial.status and not partial:
            part.identical = False
            part.differences.insert(0, f"status was {trial.status}, is now {new[index].status}")
        parts.append(part)
        differences += [f"{trial.name}: {difference}" for difference in part.differences]
    environments = (parts[0].run_id, parts[0].new_run_id) if parts else None
    return Repetition(
        run_id=run_id,
        new_run_id=finished.sweep_run_id,
        identical=len(parts) == len(old) > 0 and all(part.identical for part in parts),
        metrics_compared=sum(part.metrics_compared for part in parts),
        points_compared=sum(part.points_compared for part in parts),
        max_abs_diff=max((part.max_abs_diff for part in parts), default=math.nan),
        differences=differences[:SHOWN],
        environment_changes=_environment_changes(store, *environments) if environments else [],
    )


def compare_points(
    run_id: str, new_id: str, old: pd.DataFrame, new: pd.DataFrame, *, partial: bool = False
) -> Repetition:
    """Hold two histories (`metric`, `step`, `value`) against each other, point by point.

    Args:
        partial: the old run was cut short: points that only the new one has are no difference.
    """
    both = old.merge(new, on=["metric", "step"], how="outer", suffixes=("_old", "_new"), indicator=True)
    matched = both[both._merge == "both"]
    same = (matched.value_old == matched.value_new) | (matched.value_old.isna() & matched.value_new.isna())
    gaps = (matched.value_old - matched.value_new).abs()[~same]
    differences = [
        f"{row.metric} at step {row.step}: {row.value_old!r} became {row.value_new!r}"
        for row in matched[~same].head(SHOWN).itertuples()
    ]
    for side, said in (("left_only", "is missing"), ("right_only", "is new")):
        if side == "right_only" and partial:
            continue
        extra = both[both._merge == side]
        differences += [f"{row.metric} at step {row.step} {said}" for row in extra.head(SHOWN).itertuples()]
    return Repetition(
        run_id=run_id,
        new_run_id=new_id,
        identical=not differences and len(matched) > 0,
        metrics_compared=matched.metric.nunique(),
        points_compared=len(matched),
        max_abs_diff=float(gaps.max()) if len(gaps) else (0.0 if len(matched) else math.nan),
        differences=differences or ([] if len(matched) else ["no metric was recorded by both"]),
    )


def _of(points: pd.DataFrame, run_id: str) -> pd.DataFrame:
    return points[points.run_id == run_id][["metric", "step", "value"]]


def _environment_changes(store: Store, run_id: str, new_id: str) -> list[str]:
    try:
        return changes(store.read_json(run_id, "environment.json"), store.read_json(new_id, "environment.json"))
    except (StoreError, AttributeError, TypeError, ValueError) as error:  # the comparison itself is worth having
        return [f"cannot be compared: {error}"]
