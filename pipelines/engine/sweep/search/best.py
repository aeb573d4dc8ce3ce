"""Rank the trials of a sweep: the finished ones, or without any, the stopped ones at a step that all recorded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from featurelab.pipelines.engine.sweep.search.goals import Mode
from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store

ENDS = ("finished", "stopped", "killed", "failed", "diverged")  # the order of trials that are not ranked


@dataclass(frozen=True)
class Ranked:
    """The trials of a sweep, best first; trials that cannot be ranked come last.

    `values` has the values that rank the others, best first, by run id. They are of `step`, or with None the last ones.
    """

    trials: list[TrialRecord]
    values: Mapping[str, float]
    metric: str
    mode: Mode
    among: str
    step: int | None = None

    @property
    def best(self) -> TrialRecord | None:
        return self.trials[0] if self.values else None

    def as_dict(self) -> dict[str, Any] | None:
        """The best trial as `featurelab sweep --json` prints it, with the value that ranks it; None without any."""
        if not self.best:
            return None
        value = self.values[self.best.run_id]
        ranking = {"metric": self.metric, "mode": self.mode, "value": value, "step": self.step, "among": self.among}
        return self.best.as_dict() | {"ranked": ranking}

    def line(self) -> str:
        """The best trial in one line."""
        if not self.best:
            return f"no best trial by {self.metric}: {self.among}"
        at = "" if self.step is None else f" at step {self.step}"
        return f"best {self.metric}{at}: {self.values[self.best.run_id]:.4g} in {self.best.run_id} (among {self.among})"


def rank(trials: Sequence[TrialRecord], metric: str, mode: Mode, store: Store) -> Ranked:
    """Rank finished trials by the last value of a metric.

    A trial that the scheduler stopped has its last value at another step, so it is not ranked with these. If no trial
    finished, stopped trials are ranked at the last step that all of them recorded. Trials that diverged, failed or were
    killed are never ranked.
    """
    values = finished_values(trials, metric)
    step, among = None, _counted(len(values), "finished trial")
    if not values:
        stopped = [trial for trial in trials if trial.status == "stopped" and metric in trial.metrics]
        step, values = _at_equal_step([trial.run_id for trial in stopped], metric, store)
        among = f"{_counted(len(values), 'stopped trial')} at the last step that all recorded; none finished"
        if not values:
            none = "none of those that finished recorded it" if _any(trials, "finished") else "none finished"
            among = f"{none}, and those that were stopped have no step in common" if stopped else none
    sign = 1 if mode == "min" else -1
    ranked = sorted((trial for trial in trials if trial.run_id in values), key=lambda t: sign * values[t.run_id])
    rest = [trial for trial in trials if trial.run_id not in values]
    rest.sort(key=lambda t: (ENDS.index(t.status) if t.status in ENDS else len(ENDS), *_last(t, metric, sign)))
    ordered = {trial.run_id: values[trial.run_id] for trial in ranked}
    return Ranked([*ranked, *rest], ordered, metric, mode, among, step)


def finished_values(trials: Sequence[TrialRecord], metric: str) -> dict[str, float]:
    """The finite last values of a metric, by run id, of finished trials."""
    last = {trial.run_id: trial.metrics.get(metric, math.nan) for trial in trials if trial.status == "finished"}
    return {run_id: value for run_id, value in last.items() if math.isfinite(value)}


def _at_equal_step(run_ids: Sequence[str], metric: str, store: Store) -> tuple[int | None, dict[str, float]]:
    """The largest step at which all these runs recorded the metric, and its finite values there, by run id."""
    if not run_ids:
        return None, {}
    points = query.histories(store, run_ids, [metric])
    runs = points.groupby("step")["run_id"].nunique()
    common = runs.index[runs == len(run_ids)]
    if common.empty:
        return None, {}
    at_step = points[points["step"] == common.max()].drop_duplicates("run_id", keep="last")
    values = {str(row.run_id): float(row.value) for row in at_step.itertuples() if math.isfinite(row.value)}
    return int(common.max()), values


def _any(trials: Sequence[TrialRecord], status: str) -> bool:
    return any(trial.status == status for trial in trials)


def _last(trial: TrialRecord, metric: str, sign: int) -> tuple[bool, float]:
    value = sign * trial.metrics.get(metric, math.nan)
    return math.isnan(value), 0.0 if math.isnan(value) else value


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
