"""Hold what was recorded of a trial against its repetition, and against itself."""

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from mlflow.entities import Run

from featurelab.tracking.lines import quoted
from featurelab.tracking.provenance import config_hash
from featurelab.tracking.values import DERIVED

SHOWN = 20
WENT_WELL = ("finished", "stopped")


@dataclass
class Repetition:
    """What came of a repetition: `max_abs_diff` is that of points which both have.

    Of `points_recorded` by the old run and `points_repeated` by the new one, `points_compared` are in both.
    """

    run_id: str
    new_run_id: str
    identical: bool
    metrics_compared: int
    points_compared: int
    max_abs_diff: float
    differences: list[str] = field(default_factory=list)
    environment_changes: list[str] = field(default_factory=list)
    points_recorded: int = 0
    points_repeated: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def points(self) -> str:
        """How many points were compared, of how many where one of the runs has more."""
        most = max(self.points_recorded, self.points_repeated)
        return f"{self.points_compared} of {most} points" if most != self.points_compared else f"{most} points"


@dataclass(frozen=True)
class Recorded:
    """A trial as the store holds it; `points` has metric, step, value, timestamp, of derived metrics too.

    `document` is what the artifact config.json holds, None where it could not be read.
    """

    run: Run
    points: pd.DataFrame
    document: Any = None

    @property
    def run_id(self) -> str:
        return str(self.run.info.run_id)

    @property
    def status(self) -> str:
        return str(self.run.data.tags.get("status"))

    @property
    def config(self) -> dict[str, Any]:
        try:
            said = json.loads(self.run.data.tags.get("config", ""))
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}

    @property
    def measured(self) -> pd.DataFrame:
        """The points without derived metrics, with a place for each of those that have metric and step in common."""
        points = self.points[~self.points.metric.str.startswith(DERIVED)]
        points = points.astype({"step": "int64", "value": "float64", "timestamp": "int64"})
        points = points.sort_values(["metric", "step", "value"])
        return points.assign(place=points.groupby(["metric", "step"]).cumcount())


def hold(old: Recorded, new: Recorded, *, stoppable: bool = False) -> Repetition:
    """Hold a trial against its repetition: every point, status, settings; and the old record against itself.

    Args:
        stoppable: the old trial ran under a scheduler that stops trials early, which a repetition is not. If it was
            stopped, it is identical as long as it lacks nothing that the new one recorded up to then.
    """
    cut = stoppable and old.status == "stopped" and new.status == "finished"
    recorded, repeated = old.measured, new.measured
    few = len(recorded) < len(repeated) and not cut
    differences = [f"{len(recorded)} of {len(repeated)} points were recorded"] if few else []
    differences += contradictions(old)
    if old.status != new.status and not cut:
        differences.append(f"status was {old.status}, is now {new.status}")
    before, after = old.config, new.config
    differences += [
        f"setting {name} was {quoted(before[name])}, is now {quoted(after[name])}"
        for name in before.keys() & after.keys()
        if before[name] != after[name]
    ]
    absent = sorted(new.run.data.params.keys() - old.run.data.params.keys())
    differences += [f"param {quoted(name)} is missing" for name in absent]

    keys = ["metric", "step", "place"]
    both = recorded.merge(repeated, on=keys, how="outer", suffixes=("_old", "_new"), indicator=True)
    matched = both[both._merge == "both"]
    was, now = matched.value_old, matched.value_new
    same = ((was == now) & (np.signbit(was) == np.signbit(now))) | (was.isna() & now.isna())
    gaps = (was - now).abs()[~same]
    lost = both[both._merge == "left_only"]
    more = both[both._merge == "right_only"]
    if cut:  # what the new one recorded after all that the old one has is no difference
        more = more[more.timestamp_new < matched.timestamp_new.max()]
    differences += [
        f"{row.metric} at step {row.step}: {row.value_old!r} became {row.value_new!r}"
        for row in matched[~same].head(SHOWN).itertuples()
    ]
    for extra, said, again in ((lost, "is missing", "was recorded twice"), (more, "is new", "is now recorded twice")):
        rows = extra.head(SHOWN).itertuples()
        differences += [f"{row.metric} at step {row.step} {again if row.place else said}" for row in rows]
    if not len(matched):
        differences = differences or ["no metric was recorded by both"]
    return Repetition(
        run_id=old.run_id,
        new_run_id=new.run_id,
        identical=not differences,
        metrics_compared=matched.metric.nunique(),
        points_compared=len(matched),
        points_recorded=len(recorded),
        points_repeated=len(repeated),
        max_abs_diff=float(gaps.max()) if len(gaps) else (0.0 if len(matched) else math.nan),
        differences=differences,
    )


def contradictions(recorded: Recorded) -> list[str]:
    """What a record says in two places, and not the same: status, settings and their hash, params, last values."""
    tags, config, found = recorded.run.data.tags, recorded.config, []
    ended = recorded.run.info.status
    if (ended == "FINISHED") != (recorded.status in WENT_WELL):
        found.append(f"status is {quoted(recorded.status)}, MLflow's is {ended}")
    try:
        digest = config_hash(config)
    except (TypeError, ValueError):
        digest = "none"
    if digest != tags.get("config_hash"):
        found.append(f"config_hash is {quoted(tags.get('config_hash'))}, that of the config is {digest}")
    if recorded.document is not None and recorded.document != config:
        found.append("config.json is not the config of the tags")
    found += [*_params(recorded, config), *_last_values(recorded)]
    return [f"the record was changed: {said}" for said in found]


def _params(recorded: Recorded, config: dict[str, Any]) -> list[str]:
    params = recorded.run.data.params
    found = []
    for name, text in sorted(params.items()):
        value = config.get(name)
        whole = json.dumps(value) if isinstance(value, list) else str(value)
        if name not in config:
            found.append(f"param {quoted(name)} is no setting of the config")
        elif text != whole and not (len(text) >= 500 and whole.startswith(text)):  # MLflow may cut a long one
            found.append(f"param {name} is {quoted(text)}, the config's is {quoted(whole)}")
    return found


def _last_values(recorded: Recorded) -> list[str]:
    last = recorded.run.data.metrics
    ends: dict[Any, list[float]] = {}
    if len(recorded.points):
        points = recorded.points.sort_values(["step", "timestamp"])
        final = points.groupby("metric")[["step", "timestamp"]].transform("last")
        for row in points[(points[["step", "timestamp"]] == final).all(axis=1)].itertuples():
            ends.setdefault(row.metric, []).append(float(row.value))
    found = []
    for metric in sorted(last.keys() | ends.keys()):
        if metric not in ends:
            found.append(f"the last value of {metric} has no point")
        elif metric not in last:
            found.append(f"{metric} has points and no last value")
        elif not any(value == last[metric] or value != value != last[metric] for value in ends[metric]):
            found.append(f"the last value of {metric} is {last[metric]!r}, its last point {ends[metric][-1]!r}")
    return found
