"""Check early, when a first trial has ended, that trials record the metric that ranks them."""

from dataclasses import replace

from featurelab.pipelines.engine.errors import nearest, tell
from featurelab.pipelines.engine.sweep.plan import Opened
from featurelab.pipelines.engine.sweep.records import read_trials
from featurelab.pipelines.engine.trial.signals import StopSweep
from featurelab.tracking.store.connect import Store, StoreError


class Ranking:
    """Checks once for each sweep that its trials record the metric that ranks them."""

    def __init__(self, store: Store) -> None:
        self._store = replace(store, patience=0.0)
        self._checked: set[str] = set()

    def check(self, sweep: Opened) -> None:
        """Raise `StopSweep` if a finished trial has not recorded the metrics that the user has asked for.

        If the experiment's own metric is missing, and no scheduler or study needs it, only warn. If the store does not
        answer, the next call checks again.
        """
        plan = sweep.plan
        if plan.kind != "sweep" or sweep.run_id in self._checked:
            return
        try:
            trials = read_trials(self._store, plan.experiment, sweep.run_id)
        except StoreError:
            return
        finished = [trial for trial in trials if trial.status == "finished"]
        if not finished:
            return
        self._checked.add(sweep.run_id)
        recorded = {metric for trial in finished for metric in trial.metrics}
        missing = next((metric for metric in plan.goals if metric not in recorded), None)
        if missing is None:
            return
        instead = nearest(missing, recorded, most=3)
        if missing == plan.declared.metric and plan.scheduler == "fifo" and not plan.study:
            tell(f"featurelab: trials do not record {missing}: {instead}")
        else:
            again = f"--resume {sweep.name} --metric NAME runs the rest"
            raise StopSweep(f"trials do not record {missing}", f"{instead} (the sweep is stopped; {again})")
