"""A figure again: run its grid, and judge and draw it as its last trial ends."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from featurelab.pipelines.engine.experiment.config import Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.needs import require_data
from featurelab.pipelines.engine.sweep.begin import open_reading, run_sweeps
from featurelab.pipelines.engine.sweep.plan import Finished, Plan
from featurelab.pipelines.engine.sweep.resources import Resources
from featurelab.pipelines.engine.verdict.interrupted import Found, digest, find_interrupted
from featurelab.pipelines.engine.verdict.judge import Judged, judge
from featurelab.tracking.store.connect import Store


def reproduce(
    experiments: Sequence[Experiment],
    scale: Scale,
    store: Store,
    *,
    outbox: Path,
    address: str | None = None,
    resources: Resources | None = None,
    show: Callable[[Judged], None] = lambda judged: None,
    fresh: bool = False,
) -> list[Judged]:
    """Run the grids of these figures; judge, draw and `show` each as soon as its trials are over.

    Where the same was begun before and interrupted, only what is missing of it is run, unless `fresh`. A figure that
    reads the trials of another of them is judged by those.
    """
    plans = []
    for experiment in experiments:
        configs = experiment.configs(scale)
        require_data(experiment, configs)
        details: dict[str, Any] = {"metric": experiment.metric, "mode": experiment.mode, "kind": "reproduce"}
        details["resources"] = resources or Resources()
        plans.append(Plan.of(experiment, configs, experiment.varied(scale), scale, **details))
    judged: dict[str, Judged] = {}

    def over(sweep_run_id: str) -> None:
        one = judged[sweep_run_id] = judge(sweep_run_id, store)
        show(one)
        for plan in reading:
            if plan.declared.reads is one.experiment:
                over(open_reading(plan, sweep_run_id, store))

    def ended(finished: Finished) -> None:
        over(finished.sweep_run_id)

    title = "" if len(experiments) == 1 else f"{len(experiments)} figures"
    found = Found([], [], plans) if fresh else find_interrupted(plans, store, outbox)
    command = found.command or uuid4().hex
    plans = [plan.but(tags={"command": command, "plan_digest": digest(plan)}) for plan in found.missing]
    reading = [plan for plan in plans if plan.declared.reads in experiments]
    plans = [plan for plan in plans if plan not in reading]
    for sweep_run_id in found.complete:
        over(sweep_run_id)
    if plans or found.resumed:
        options: dict[str, Any] = {"outbox": outbox, "address": address, "title": title, "ended": ended}
        run_sweeps(plans, store, resumed=found.resumed, **options)
    order = [experiment.name for experiment in experiments]
    return sorted(judged.values(), key=lambda one: order.index(one.experiment.name))
