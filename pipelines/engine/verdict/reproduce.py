"""Reproduce figures: run their grids, judge and draw each when its last trial ends, and add seeds if asked to."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from featurelab.pipelines.engine.errors import inform
from featurelab.pipelines.engine.experiment.config import Config, Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.needs import require_data
from featurelab.pipelines.engine.sweep.begin import extended, open_reading, run_sweeps
from featurelab.pipelines.engine.sweep.plan import Finished, Opened, Plan
from featurelab.pipelines.engine.sweep.resources import Resources
from featurelab.pipelines.engine.trial.record import Save
from featurelab.pipelines.engine.verdict.interrupted import Earlier, digest, find_interrupted
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
    settings: Mapping[str, Any] | None = None,
    save: Save = "",
) -> list[Judged]:
    """Run the grids of these figures; judge, draw and `show` each as soon as its trials have ended.

    An earlier reproduction that was interrupted is resumed, unless `fresh`. A figure that reads the trials of another
    one of these figures is judged by them. With `most_seeds`, seeds are added beyond the grid, to the trials that
    undecided claims look at, until all claims are decided or have so many seeds. With `controls`, the grids also run
    under the controls that claims name; with both, claims that hold get them on their seeds, and other claims get none.
    With `settings`, the grids run at them: such sweeps are of another kind than the figures' own, and their verdicts
    are not compared with what is documented, unless they have other seeds alone. With `save`, trials store the weights
    of each fit.
    """
    settings = settings or {}
    plans = [
        _plan(experiment, scale, resources, most_seeds, controls, settings).but(save=save) for experiment in experiments
    ]
    earlier = Earlier([], [], plans) if fresh else find_interrupted(plans, store, outbox)
    command = earlier.command or uuid4().hex
    plans = [plan.but(tags={"command": command, "plan_digest": digest(plan)}) for plan in earlier.missing]
    readers = [plan for plan in plans if plan.declared.reads in experiments]
    plans = [plan for plan in plans if plan not in readers]
    judging = Judging(store, readers, show)
    options: dict[str, Any] = {"outbox": outbox, "address": address, "on_sweep_end": judging.on_sweep_end}
    options["title"] = "" if len(experiments) == 1 else f"{len(experiments)} figures"
    for sweep_run_id in earlier.complete:
        judging.judge_sweep(sweep_run_id)
    if plans or earlier.resumed:
        run_sweeps(plans, store, resumed=earlier.resumed, **options)
    while judging.further:
        extended_sweeps = judging.extend_sweeps()
        trials = sum(len(sweep.indices) for sweep in extended_sweeps)
        under = ", and controls for those that hold" if controls else ""
        inform(f"{trials} further trials: seeds for undecided claims{under}")
        run_sweeps([], store, resumed=extended_sweeps, **options)
    order = [experiment.name for experiment in experiments]
    return sorted(judging.judged.values(), key=lambda judged: order.index(judged.experiment.name))


def _plan(
    experiment: Experiment,
    scale: Scale,
    resources: Resources | None,
    most_seeds: int | None,
    controls: bool,
    settings: Mapping[str, Any],
) -> Plan:
    """The plan of a figure's grid, and of the same grid under controls unless these wait for the first verdicts.

    Raises `RequestError` for missing data.
    """
    configs: list[Config] = experiment.configs(scale, settings)
    controls = controls and bool(experiment.named_controls)
    controlled = experiment.controlled(scale, settings) if controls and most_seeds is None else []
    require_data(experiment, configs)
    validated = experiment.preset(scale).but(**settings).model_dump(mode="json")
    return Plan.of(
        experiment,
        [*configs, *controlled],
        list(dict.fromkeys([*settings, *experiment.varied(scale), *(["control"] if controls else [])])),
        scale,
        metric=experiment.metric,
        mode=experiment.mode,
        kind="at_settings" if settings else "reproduce",
        settings={name: validated[name] for name in settings},
        resources=resources or Resources(),
        most_seeds=most_seeds,
        controls=controls and most_seeds is not None,
    )


Configs = Sequence[dict[str, Any]]  # of trials, as plain JSON values


class Judging:
    """Judges sweeps when they end, and the figures that read their trials; collects the trials still needed."""

    def __init__(self, store: Store, readers: Sequence[Plan], show: Callable[[Judged], None]) -> None:
        """`readers` are the plans of figures that read the trials of another one."""
        self.judged: dict[str, Judged] = {}
        # trials to add to a sweep, which is the first key; the second is the sweep that needs them: itself, or a reader
        self.further: dict[str, dict[str, Configs]] = {}
        self._store, self._show = store, show
        self._unopened_readers = list(readers)
        self._readers: dict[str, list[str]] = {}  # by sweep, the sweeps that read its trials

    def on_sweep_end(self, finished: Finished) -> None:
        self.judge_sweep(finished.sweep_run_id)

    def judge_sweep(self, sweep_run_id: str) -> None:
        """Judge an ended sweep, and those that read its trials; show them unless they need further trials."""
        one = self._judge(sweep_run_id)
        if one.trials_of and one.further:  # a reader of an interrupted command: the other sweep must run the trials
            self._readers.setdefault(one.trials_of, []).append(sweep_run_id)
            self.further.setdefault(one.trials_of, {})[sweep_run_id] = one.further
            return
        readers = self._readers.setdefault(sweep_run_id, [])
        for plan in [plan for plan in self._unopened_readers if plan.declared.reads is one.experiment]:
            self._unopened_readers.remove(plan)
            readers.append(open_reading(plan, sweep_run_id, self._store))
        judged = [one, *map(self._judge, readers)]
        self.judged |= {each.sweep_run_id: each for each in judged}
        self.further[sweep_run_id] = {each.sweep_run_id: each.further for each in judged if each.further}
        if not self.further[sweep_run_id]:
            del self.further[sweep_run_id]
            for each in judged:
                self._show(each)

    def _judge(self, sweep_run_id: str) -> Judged:
        """Judge a sweep; draw it the first time only, since the trials of its grid have ended by then."""
        before = self.judged.get(sweep_run_id)
        return judge(sweep_run_id, self._store, drawn_before=before.figure if before else "")

    def extend_sweeps(self) -> list[Opened]:
        """Add the further trials to the plans of sweeps and of their readers; return the sweeps that must run them."""
        sweeps = []
        for sweep_run_id, needed in self.further.items():
            for reader in needed.keys() - {sweep_run_id}:
                extended(reader, needed[reader], self._store)
            configs = [config for configs in needed.values() for config in configs]
            sweeps.append(extended(sweep_run_id, configs, self._store))
        self.further.clear()
        return sweeps
