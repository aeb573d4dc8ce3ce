"""What trials are ranked by: looked for as soon as one has ended, not when the whole sweep has."""

from dataclasses import replace

from featurelab.pipelines.engine.errors import nearest, tell
from featurelab.pipelines.engine.sweep.plan import Opened
from featurelab.pipelines.engine.sweep.records import read_trials
from featurelab.pipelines.engine.trial.signals import Enough
from featurelab.tracking.store.connect import Store, StoreError


class Ranking:
    """Looks, once for each sweep, whether its trials record the metric that they shall be ranked by."""

    def __init__(self, store: Store) -> None:
        self._store = replace(store, patience=0.0)
        self._seen: set[str] = set()

    def check(self, sweep: Opened) -> None:
        """Raise `Enough` where a trial that came to its end has not recorded a metric that was asked for.

        The experiment's own metric, where nothing is decided by it while trials run, is only said to be missing. A
        store that is away is asked again when the next trial has ended.
        """
        plan = sweep.plan
        if plan.kind != "sweep" or sweep.run_id in self._seen:
            return
        try:
            trials = read_trials(self._store, plan.experiment, sweep.run_id)
        except StoreError:
            return
        finished = [trial for trial in trials if trial.status == "finished"]
        if not finished:
            return
        self._seen.add(sweep.run_id)
        known = {metric for trial in finished for metric in trial.metrics}
        if plan.metric in known:
            return
        instead = nearest(plan.metric, known, most=3)
        if plan.metric == plan.declared.metric and plan.scheduler == "fifo":
            tell(f"featurelab: trials do not record {plan.metric}: {instead}")
        else:
            again = f"--resume {sweep.name} --metric NAME runs the rest"
            raise Enough(f"trials do not record {plan.metric}", f"{instead} (the sweep is stopped; {again})")
