"""Compare the record of a trial with the record of its repetition, and check that the old record is consistent."""

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
    """The result of a repetition.

    The old run has `points_recorded` points, and the new one `points_repeated`; `points_compared` are in both, and
    `max_abs_diff` is the largest difference between those.
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
        """How many points were compared, and of how many, if one of the runs has more."""
        most = max(self.points_recorded, self.points_repeated)
        return f"{self.points_compared} of {most} points" if most != self.points_compared else f"{most} points"


@dataclass(frozen=True)
class Recorded:
    """A trial as the store holds it.

    `points` has metric, step, value and timestamp, also of derived metrics. `document` is the content of the artifact
    config.json, None if it could not be read.
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
            config = json.loads(self.run.data.tags.get("config", ""))
        except ValueError:
            return {}
        return config if isinstance(config, dict) else {}

    @property
    def measured(self) -> pd.DataFrame:
        """The points without derived metrics; `place` counts those with the same metric and step."""
        points = self.points[~self.points.metric.str.startswith(DERIVED)]
        points = points.astype({"step": "int64", "value": "float64", "timestamp": "int64"})
        points = points.sort_values(["metric", "step", "value"])
        return points.assign(place=points.groupby(["metric", "step"]).cumcount())


def hold(old: Recorded, new: Recorded, *, stoppable: bool = False) -> Repetition:
    """Compare a trial with its repetition: every point, status and setting; and check the old record.

    Args:
        stoppable: the old trial ran under a scheduler that stops trials early; a repetition does not. If the old trial
            was stopped, the two are identical if it has everything that the new one recorded up to that point.
    """
    stopped = stoppable and old.status == "stopped" and new.status == "finished"
    recorded, repeated = old.measured, new.measured
    few = len(recorded) < len(repeated) and not stopped
    differences = [f"{len(recorded)} of {len(repeated)} points were recorded"] if few else []
    differences += contradictions(old)
    if old.status != new.status and not stopped:
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
    if stopped:  # what the new trial recorded after the end of the old one is not a difference
        more = more[more.timestamp_new < matched.timestamp_new.max()]
    differences += [
        f"{row.metric} at step {row.step}: {row.value_old!r} became {row.value_new!r}"
        for row in matched[~same].head(SHOWN).itertuples()
    ]
    for unmatched, once, twice in (
        (lost, "is missing", "was recorded twice"),
        (more, "is new", "is now recorded twice"),
    ):
        rows = unmatched.head(SHOWN).itertuples()
        differences += [f"{row.metric} at step {row.step} {twice if row.place else once}" for row in rows]
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
    """Return where a record contradicts itself: status, settings and their hash, params, last values."""
    tags, config = recorded.run.data.tags, recorded.config
    contradictory = []
    ended = recorded.run.info.status
    if (ended == "FINISHED") != (recorded.status in WENT_WELL):
        contradictory.append(f"status is {quoted(recorded.status)}, MLflow's is {ended}")
    try:
        digest = config_hash(config)
    except (TypeError, ValueError):
        digest = "none"
    if digest != tags.get("config_hash"):
        contradictory.append(f"config_hash is {quoted(tags.get('config_hash'))}, that of the config is {digest}")
    if recorded.document is not None and recorded.document != config:
        contradictory.append("config.json is not the config of the tags")
    contradictory += [*_params(recorded, config), *_last_values(recorded)]
    return [f"the record was changed: {fact}" for fact in contradictory]


def _params(recorded: Recorded, config: dict[str, Any]) -> list[str]:
    params = recorded.run.data.params
    contradictory = []
    for name, text in sorted(params.items()):
        value = config.get(name)
        full = json.dumps(value) if isinstance(value, list) else str(value)
        if name not in config:
            contradictory.append(f"param {quoted(name)} is not a setting of the config")
        elif text != full and not (len(text) >= 500 and full.startswith(text)):  # MLflow may cut a long one
            contradictory.append(f"param {name} is {quoted(text)}, the config's is {quoted(full)}")
    return contradictory


def _last_values(recorded: Recorded) -> list[str]:
    last = recorded.run.data.metrics
    ends: dict[Any, list[float]] = {}
    if len(recorded.points):
        points = recorded.points.sort_values(["step", "timestamp"])
        final = points.groupby("metric")[["step", "timestamp"]].transform("last")
        for row in points[(points[["step", "timestamp"]] == final).all(axis=1)].itertuples():
            ends.setdefault(row.metric, []).append(float(row.value))
    contradictory = []
    for metric in sorted(last.keys() | ends.keys()):
        if metric not in ends:
            contradictory.append(f"the last value of {metric} has no point")
        elif metric not in last:
            contradictory.append(f"{metric} has points and no last value")
        elif not any(value == last[metric] or value != value != last[metric] for value in ends[metric]):
            contradictory.append(f"the last value of {metric} is {last[metric]!r}, its last point {ends[metric][-1]!r}")
    return contradictory
