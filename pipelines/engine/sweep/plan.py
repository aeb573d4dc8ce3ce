"""A sweep before it runs, while it is open, and after it has ended."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from featurelab.pipelines.engine.errors import RequestError, unknown
from featurelab.pipelines.engine.experiment.axes import MOST_TRIALS, Axis, lay_out
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import Config, Scale, label, tupled
from featurelab.pipelines.engine.experiment.evidence import LOOKS
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep.resources import Resources
from featurelab.pipelines.engine.sweep.search.goals import Mode
from featurelab.pipelines.engine.sweep.search.study import SEARCHES, Study
from featurelab.pipelines.engine.trial.record import Save, TrialRecord
from featurelab.tracking.lines import quoted

MOST_THREADS = 1024  # that a config accepts
SAMPLES = 16  # trials of a sweep over the axes that an experiment declares
SWEEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # it becomes part of folder names and links

_find = cache(registry.find)  # it looks through all installed packages, which is needed once a process


class Plan(BaseModel):
    """Everything that a sweep needs to run, and to run again: the content of `plan.json`.

    `configs` are plain JSON values, so that every version of an experiment can read, judge and report a stored plan.
    """

    model_config = ConfigDict(frozen=True)

    experiment: str
    configs: list[dict[str, Any]] = Field(max_length=MOST_TRIALS)
    axes: list[str]
    scale: Scale
    scheduler: Literal["fifo", "asha"] = "fifo"
    metric: str = ""
    mode: Mode = "min"
    other_goals: dict[str, Mode] = Field(default_factory=dict)  # further metrics, for a study of several
    study: Study | None = None  # draws trials while the sweep runs: `configs` are those drawn so far
    resources: Resources = Resources()
    save: Save = ""
    # `reproduce` is a figure's own grid, `at_settings` this grid at other `settings`, and `map` this grid in every cell
    # that the axes `over` span. What is documented is compared with `reproduce`, and with `at_settings` on other seeds.
    kind: Literal["sweep", "reproduce", "rerun", "at_settings", "map"] = "sweep"
    settings: dict[str, Any] = Field(default_factory=dict)
    over: list[str] = Field(default_factory=list)
    # with --decide: up to how many seeds to add
    most_seeds: int | None = Field(None, ge=LOOKS[0], le=LOOKS[-1])
    controls: bool = False  # with --decide: whether claims that hold are then run under controls
    # not stored: the name of the sweep, and tags for its run and the runs of its trials
    name: str = Field("", exclude=True)
    tags: dict[str, str] = Field(default_factory=dict, exclude=True)

    @classmethod
    def of(
        cls, experiment: Experiment, configs: Sequence[Config], axes: Sequence[str], scale: Scale, **details: Any
    ) -> "Plan":
        """Return the plan of a sweep with a trial for each config."""
        values = [config.model_dump(mode="json") for config in configs]
        return cls(experiment=experiment.name, configs=values, axes=list(axes), scale=scale, **details)

    @property
    def declared(self) -> Experiment:
        """The experiment; raises `RequestError` if none of its name is installed."""
        return _find(self.experiment)

    def config(self, index: int) -> Config:
        """The config of a trial; raises `RequestError` if the experiment does not accept its values."""
        preset: Config = self.declared.preset(self.scale)
        return preset.read(self.configs[index])

    @property
    def goals(self) -> dict[str, Mode]:
        """The metrics that rank the trials, and whether small or large values are better."""
        return {self.metric: self.mode} | self.other_goals

    @property
    def undrawn(self) -> int:
        """How many trials are still to be drawn."""
        return max(0, self.study.samples - len(self.configs)) if self.study else 0

    def with_drawn(self, drawn: Iterable[Mapping[str, Any]]) -> "Plan":
        """The plan with a further trial for each of these settings; raises `RequestError` for a value that is refused.

        Raises TypeError for a plan without a study.
        """
        if self.study is None:
            raise TypeError("a plan without a study draws no trials")
        preset: Config = self.declared.preset(self.scale)
        configs = [preset.read(self.study.base | dict(settings)).model_dump(mode="json") for settings in drawn]
        return self.but(configs=[*self.configs, *configs])

    def but(self, **changes: Any) -> "Plan":
        """This plan with some fields changed."""
        return Plan(**dict(self) | changes)

    def completed(self) -> "Plan":
        """The plan with all settings that the experiment has now; raises `RequestError` for a setting that it lacks."""
        values = [self.config(index).model_dump(mode="json") for index in range(len(self.configs))]
        return self.but(configs=values)

    @property
    def is_judged(self) -> bool:
        """Whether the sweep ends with its verdicts, and not with its last trial."""
        return self.kind in ("reproduce", "at_settings")

    @property
    def marks(self) -> dict[str, str]:
        """Tags that tell the runs of this sweep from those of the figure's own grid."""
        if self.kind == "at_settings":
            return {"settings": label(tupled(self.settings), list(self.settings))}
        return {"map": ",".join(self.over)} if self.kind == "map" else {}

    def cell(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The cell of a map in which a trial with this config is: its values on the axes of the map."""
        return {name: config.get(name) for name in self.over}

    def label(self, index: int) -> str:
        """The name of a trial: its values on the axes on which trials differ."""
        return label(tupled(self.configs[index]), self._varied)

    @cached_property
    def _varied(self) -> list[str]:
        if self.study:  # not all trials are known
            return self.axes
        return [axis for axis in self.axes if len({str(config.get(axis)) for config in self.configs}) > 1] or self.axes

    def gpus_of(self, index: int) -> float:
        """The GPUs that each worker of a trial requests: none if its config says `device=cpu`."""
        return 0 if self.configs[index].get("device") == "cpu" else self.resources.gpus


@dataclass(frozen=True)
class Opened:
    """A sweep whose run in `verdicts` is open: its plan, and the `indices` of the trials to run.

    `resumed` has the run ids, by index, of trials that were cut short. `seconds` is the time that the sweep has taken
    so far, None for a new sweep.
    """

    plan: Plan
    name: str
    run_id: str
    indices: Sequence[int]
    resumed: Mapping[int, str] = field(default_factory=dict)
    seconds: float | None = None


@dataclass(frozen=True)
class Finished:
    """A sweep that has ended."""

    sweep_run_id: str
    name: str
    trials: list[TrialRecord]
    seconds: float
    metric: str = ""  # ranks the trials; empty for the experiment's own
    mode: Mode = "min"
    other_goals: Mapping[str, Mode] = field(default_factory=dict)
    save: Save = ""

    @property
    def goals(self) -> dict[str, Mode]:
        """The metrics that rank the trials."""
        return {self.metric: self.mode, **self.other_goals}

    def as_dict(self) -> dict[str, Any]:
        """The sweep as `featurelab sweep --json` prints it, without its best trial."""
        return {
            "sweep_run_id": self.sweep_run_id,
            "name": self.name,
            "trials": [trial.as_dict() for trial in self.trials],
        }


def plan_search(
    experiment: Experiment,
    axes: dict[str, Axis],
    samples: int,
    base: Config,
    *,
    fixed: Collection[str] = (),
    search: str = "random",
    **details: Any,
) -> Plan:
    """Return the plan of a sweep over `axes`, whose values are all checked.

    With the search `optuna`, trials are drawn while the sweep runs: `samples` in all, also where values are listed.

    Without axes, the sweep is over those that the experiment declares, except for settings that are `fixed` in `base`.
    Raises `RequestError` for data that are not on this machine.
    """
    from featurelab.pipelines.engine.experiment.needs import require_data

    if samples < 1:
        raise RequestError(f"--samples {samples}: must be at least 1")
    axes = axes or {name: axis for name, axis in experiment.sweep_axes.items() if name not in fixed}
    if not axes:
        raise RequestError(f"{experiment.name} declares no sweep axes: give some with --over key=DOMAIN")
    if details.get("name"):
        check_name(details["name"])
    details = {"metric": experiment.metric, "mode": experiment.mode} | details
    _check_goals(search, details)
    study = None if search == "random" else Study.of(base, axes, samples, seed=base.streams.order)
    # of a study, these are random draws that show whether the experiment accepts what may be drawn
    configs = lay_out(base, study.axes if study else axes, samples, seed=base.streams.order)
    require_data(experiment, configs)
    return Plan.of(experiment, [] if study else configs, list(axes), study=study, **details)


def _check_goals(search: str, details: Mapping[str, Any]) -> None:
    """Raise `RequestError` for an unknown search, and for several metrics where only one can be used."""
    if search not in SEARCHES:
        raise unknown("search", search, SEARCHES)
    if details.get("other_goals") and search == "random":
        raise RequestError("several metrics need --search optuna: random search is ranked by one --metric")
    if details.get("other_goals") and details.get("scheduler") == "asha":
        raise RequestError("--scheduler asha stops trials by one --metric: leave out the others, or use fifo")


def plan_over(
    experiment: Experiment,
    axes: dict[str, Axis],
    fixed: Mapping[str, Any],
    samples: int | None,
    *,
    scale: Scale,
    resources: Resources,
    others: Mapping[str, Any] | None = None,
    **details: Any,
) -> Plan:
    """Return the plan of a sweep over `axes`, or over those that the experiment declares.

    `fixed` are settings of all trials; `others` too, but `axes` and `fixed` override them. Trials compute with as many
    threads as they have CPUs. Raises `RequestError` for a setting that is both fixed and an axis, and as `plan_search`.
    """
    if both := [setting for setting in fixed if setting in axes]:
        raise RequestError(f"{both[0]} is given both as {both[0]}=... and with --over: leave out one")
    threads = {"threads": min(max(1, int(resources.cpus)), MOST_THREADS)}
    base = experiment.preset(scale).but(**threads | dict(others or {}) | dict(fixed))
    samples = default_samples(axes, details.get("search", "random")) if samples is None else samples
    return plan_search(experiment, axes, samples, base, fixed=fixed, scale=scale, resources=resources, **details)


def default_samples(axes: Mapping[str, Axis], search: str) -> int:
    """Return how many draws a sweep makes unless told otherwise."""
    return 1 if axes and search == "random" else SAMPLES


def check_name(name: str) -> None:
    """Raise `RequestError` for a name that a sweep cannot have."""
    if not SWEEP_NAME.fullmatch(name):
        raise RequestError(
            f"--name {quoted(name)}: letters, digits, '_', '-' and '.', at most 100, a letter or digit first"
        )
