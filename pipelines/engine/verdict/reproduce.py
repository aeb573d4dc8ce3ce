"""A figure again: run its grid, judge and draw it as its last trial ends, and add seeds while claims are undecided."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from featurelab.pipelines.engine.errors import tell
from featurelab.pipelines.engine.experiment.config import Config, Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.needs import require_data
from featurelab.pipelines.engine.sweep.begin import extended, open_reading, run_sweeps
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
    most_seeds: int | None = None,
    controls: bool = False,
) -> list[Judged]:
    """Run the grids of these figures; judge, draw and `show` each as soon as its trials are over.

    Where the same was begun before and interrupted, only what is missing of it is run, unless `fresh`. A figure that
    reads the trials of another of them is judged by those. With `most_seeds`, seeds beyond the grid are added in the
    same sweeps, only to trials that undecided claims look at, until all are decided or have so many. With `controls`,
    the grids are run under the controls that claims name too.
    """
    plans = []
    for experiment in experiments:
        configs: list[Config] = experiment.configs(scale)
        under = experiment.controlled(scale) if controls else []
        require_data(experiment, configs)
        details: dict[str, Any] = {"metric": experiment.metric, "mode": experiment.mode, "kind": "reproduce"}
        details |= {"resources": resources or Resources(), "most_seeds": most_seeds}
        axes = [*experiment.varied(scale), *(["control"] if under else [])]
        plans.append(Plan.of(experiment, [*configs, *under], axes, scale, **details))
    found = Found([], [], plans) if fresh else find_interrupted(plans, store, outbox)
    command = found.command or uuid4().hex
    plans = [plan.but(tags={"command": command, "plan_digest": digest(plan)}) for plan in found.missing]
    reading = [plan for plan in plans if plan.declared.reads in experiments]
    plans = [plan for plan in plans if plan not in reading]
    judging = Judging(store, reading, show)
    options: dict[str, Any] = {"outbox": outbox, "address": address, "ended": judging.ended}
    options["title"] = "" if len(experiments) == 1 else f"{len(experiments)} figures"
    for sweep_run_id in found.complete:
        judging.over(sweep_run_id)
    if plans or found.resumed:
        run_sweeps(plans, store, resumed=found.resumed, **options)
    while judging.further:
        more = [extended(run_id, configs, store) for run_id, configs in judging.further.items()]
        number = sum(len(sweep.indices) for sweep in more)
        tell(f"{number} trials with further seeds for undecided claims")
        judging.further.clear()
        run_sweeps([], store, resumed=more, **options)
    order = [experiment.name for experiment in experiments]
    return sorted(judging.judged.values(), key=lambda one: order.index(one.experiment.name))


class Judging:
    """Judges sweeps as they end, those that read their trials too, and gathers what they need to be decided."""

    def __init__(self, store: Store, reading: Sequence[Plan], show: Callable[[Judged], None]) -> None:
        """`reading` are the plans of figures that read the trials of another one."""
        self.judged: dict[str, Judged] = {}
        self.further: dict[str, list[dict[str, Any]]] = {}  # trials to add, by sweep
        self._store, self._show = store, show
        self._unopened = list(reading)
        self._readers: dict[str, list[str]] = {}  # sweeps that read the trials of one, by that

    def ended(self, finished: Finished) -> None:
        self.over(finished.sweep_run_id)

    def over(self, sweep_run_id: str) -> None:
        """The trials of a sweep are over: judge it, and those that read it; show them once nothing is to be added."""
        one = judge(sweep_run_id, self._store)
        readers = self._readers.setdefault(sweep_run_id, [])
        for plan in [plan for plan in self._unopened if plan.declared.reads is one.experiment]:
            self._unopened.remove(plan)
            readers.append(open_reading(plan, sweep_run_id, self._store))
        together = [one, *(judge(reader, self._store) for reader in readers)]
        for reader in together[1:]:
            if reader.further:
                extended(reader.sweep_run_id, reader.further, self._store)
        wanted: list[dict[str, Any]] = []
        for each in together:
            self.judged[each.sweep_run_id] = each
            wanted += [config for config in each.further if config not in wanted]
        if wanted:
            self.further[sweep_run_id] = wanted
            return
        for each in together:
            self._show(each)
