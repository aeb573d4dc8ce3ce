"""A sweep before it runs, while it does, and after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from featurelab.pipelines.engine.experiment.config import Config, Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep.records import TrialRecord
from featurelab.pipelines.engine.sweep.resources import Resources

Mode = Literal["min", "max"]


@dataclass(frozen=True)
class Plan:
    """A sweep before it runs."""

    experiment: Experiment
    configs: list[Config]
    axes: list[str]
    scale: Scale
    name: str = ""
    scheduler: Literal["fifo", "asha"] = "fifo"
    metric: str = ""
    mode: Mode = "min"
    resources: Resources = field(default_factory=Resources)
    kind: Literal["sweep", "reproduce", "rerun"] = "sweep"
    tags: dict[str, str] = field(default_factory=dict)

    def label(self, config: Config) -> str:
        """The name of a trial: the axes on which the trials differ."""
        return config.label(self._varied)

    @cached_property
    def _varied(self) -> list[str]:
        return [axis for axis in self.axes if len({getattr(config, axis) for config in self.configs}) > 1] or self.axes

    def written(self) -> dict[str, Any]:
        """The plan as `plan.json` holds it: all that it takes to run the sweep again."""
        return {
            "experiment": self.experiment.name,
            "configs": [config.model_dump(mode="json") for config in self.configs],
            "axes": self.axes,
            "scale": self.scale,
            "scheduler": self.scheduler,
            "metric": self.metric,
            "mode": self.mode,
            "resources": self.resources.model_dump(),
            "kind": self.kind,
        }

    @classmethod
    def read(cls, experiment: Experiment, kept: Mapping[str, Any]) -> "Plan":
        """The plan that was `written`, once it has been checked (`records.read_stored_plan`)."""
        return cls(
            experiment=experiment,
            configs=[type(experiment.laptop).read(values) for values in kept["configs"]],
            axes=kept["axes"],
            scale=kept["scale"],
            scheduler=kept["scheduler"],
            metric=kept["metric"],
            mode=kept["mode"],
            resources=Resources.model_validate(kept["resources"]),
            kind=kept["kind"],
        )


@dataclass(frozen=True)
class Finished:
    """A sweep after it ran."""

    sweep_run_id: str
    name: str
    trials: list[TrialRecord]
    seconds: float

    def as_dict(self, metric: str, mode: Mode) -> dict[str, Any]:
        """The sweep as `featurelab sweep --json` prints it; `best` is None when no trial recorded the metric."""
        ranked = [trial for trial in self.trials if trial.went_well and metric in trial.metrics]
        best = (min if mode == "min" else max)(ranked, key=lambda trial: trial.metrics[metric], default=None)
        return {
            "sweep_run_id": self.sweep_run_id,
            "name": self.name,
            "trials": [trial.as_dict() for trial in self.trials],
            "best": best.as_dict() if best else None,
        }


@dataclass(frozen=True)
class Opened:
    """A sweep whose run in `verdicts` is open: its plan, and which of its trials are to run.

    `resumed` holds the runs, by index, of those that were cut short; `seconds` is what it took before, None for a new
    sweep.
    """

    plan: Plan
    name: str
    run_id: str
    indices: Sequence[int]
    resumed: Mapping[int, str] = field(default_factory=dict)
    seconds: float | None = None
