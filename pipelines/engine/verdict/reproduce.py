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
from featurelab.pipelines.engine.sweep.plan import Finished, Opened, Plan
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
        more = judging.extend()
        tell(f"{sum(len(sweep.indices) for sweep in more)} trials with further seeds for undecided claims")
        run_sweeps([], store, resumed=more, **options)
    order = [experiment.name for experiment in experiments]
    return sorted(judging.judged.values(), key=lambda one: order.index(one.experiment.name))


Configs = Sequence[dict[str, Any]]  # of trials, as JSON has them


class Judging:
    """Judges sweeps as they end, those that read their trials too, and gathers what they need to be decided."""

    def __init__(self, store: Store, reading: Sequence[Plan], show: Callable[[Judged], None]) -> None:
        """`reading` are the plans of figures that read the trials of another one."""
        self.judged: dict[str, Judged] = {}
        self.further: dict[str, dict[str, Configs]] = {}  # trials to add to a sweep, by who needs them: it, or a reader
        self._store, self._show = store, show
        self._unopened = list(reading)
        self._readers: dict[str, list[str]] = {}  # sweeps that read the trials of one, by that

    def ended(self, finished: Finished) -> None:
        self.over(finished.sweep_run_id)

    def over(self, sweep_run_id: str) -> None:
        """The trials of a sweep are over: judge it, and those that read it; show them once nothing is to be added."""
        one = judge(sweep_run_id, self._store)
        if one.trials_of and one.further:  # of an interrupted command: its trials are another sweep's to run
            self._readers.setdefault(one.trials_of, []).append(sweep_run_id)
            self.further.setdefault(one.trials_of, {})[sweep_run_id] = one.further
            return
        readers = self._readers.setdefault(sweep_run_id, [])
        for plan in [plan for plan in self._unopened if plan.declared.reads is one.experiment]:
            self._unopened.remove(plan)
            readers.append(open_reading(plan, sweep_run_id, self._store))
        together = [one, *(judge(reader, self._store) for reader in readers)]
        self.judged |= {each.sweep_run_id: each for each in together}
        self.further[sweep_run_id] = {each.sweep_run_id: each.further for each in together if each.further}
        if not self.further[sweep_run_id]:
            del self.further[sweep_run_id]
            for each in together:
                self._show(each)

    def extend(self) -> list[Opened]:
        """Add the trials that are needed, to the sweeps that run them and to those that read them; these are to run."""
        more = []
        for sweep_run_id, needed in self.further.items():
            for reader in needed.keys() - {sweep_run_id}:
                extended(reader, needed[reader], self._store)
            configs = [config for wanted in needed.values() for config in wanted]
            more.append(extended(sweep_run_id, configs, self._store))
        self.further.clear()
        return more
