"""The draws of an open sweep that learns: what the store has of its trials goes in, and the next trial comes out."""

import math
from collections.abc import Mapping
from typing import Any

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.sweep.plan import Opened, Plan
from featurelab.pipelines.engine.sweep.records import drawn_tag, read_trials
from featurelab.pipelines.engine.sweep.search.study import Study, Told
from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store, StoreError


class Draws:
    """Chooses the trials of one sweep, one at a time, and stores each choice before its trial begins."""

    def __init__(self, sweep: Opened, store: Store) -> None:
        self._store = store
        self._told: dict[int, Told] = {}
        to_run = set(sweep.indices)
        self._unread = {index for index in range(len(sweep.plan.configs)) if index not in to_run}

    def on_end(self, plan: Plan, index: int, result: Mapping[str, Any]) -> None:
        """Note that a trial has ended. `result` is its last report to the scheduler, where it was stopped early."""
        if "status" not in result and plan.metric in result:  # its run may not say yet that it was stopped
            at = (int(result["step"]), float(result[plan.metric]))
            self._told[index] = Told(self._settings(plan, index), "stopped", at=at)
        else:
            self._unread.add(index)

    def next(self, sweep: Opened) -> Plan:
        """Return the plan with one more trial.

        Raises `StoreError` if the store does not take it, and `RequestError` if no settings are left.
        """
        plan, study = sweep.plan, _study(sweep.plan)
        self._read(sweep)
        index = len(plan.configs)
        earlier = [self._told.get(one) or Told(self._settings(plan, one)) for one in range(index)]
        settings = study.draw(index, plan.goals, earlier, lambda settings: _accepts(plan, settings))
        self._store.set_tags(sweep.run_id, drawn_tag(index, settings))
        return plan.with_drawn([settings])

    def _read(self, sweep: Opened) -> None:
        """Read how trials have ended. What the store does not say yet is read before the next draw."""
        if not self._unread:
            return
        only = next(iter(self._unread)) if len(self._unread) == 1 else None
        try:
            for trial in read_trials(self._store, sweep.plan.experiment, sweep.run_id, only):
                if trial.index in self._unread and trial.status != "running":
                    self._told[trial.index] = self._as_told(trial, sweep.plan)
        except StoreError:
            return
        self._unread -= self._told.keys()

    def _as_told(self, trial: TrialRecord, plan: Plan) -> Told:
        settings = self._settings(plan, trial.index)
        values = tuple(trial.metrics.get(metric, math.nan) for metric in plan.goals)
        if trial.status == "finished" and all(map(math.isfinite, values)):
            return Told(settings, trial.status, values)
        if trial.status == "stopped" and plan.metric in trial.metrics:
            last = query.histories(self._store, [trial.run_id], [plan.metric]).iloc[-1]
            return Told(settings, trial.status, at=(int(last["step"]), float(last["value"])))
        return Told(settings, trial.status)

    @staticmethod
    def _settings(plan: Plan, index: int) -> dict[str, Any]:
        return _study(plan).settings(plan.configs[index])


def _study(plan: Plan) -> Study:
    assert plan.study is not None
    return plan.study


def _accepts(plan: Plan, settings: Mapping[str, Any]) -> bool:
    try:
        plan.with_drawn([settings])
    except RequestError:
        return False
    return True
