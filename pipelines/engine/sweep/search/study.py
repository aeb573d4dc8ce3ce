"""A search that learns: Optuna chooses the settings of each trial from how earlier trials have ended."""

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.axes import MOST_TRIALS, Axis, Drawn, Listed, choice
from featurelab.pipelines.engine.experiment.config import Config

if TYPE_CHECKING:
    import optuna

SEARCHES = ("random", "optuna")
REDRAWS = 1000  # random draws until one is new and valid
Goals = Mapping[str, Literal["min", "max"]]  # metrics, and whether small or large values are better


def require_optuna() -> None:
    """Raise `RequestError` unless Optuna is installed."""
    if find_spec("optuna") is None:
        raise RequestError("--search optuna needs Optuna: pip install 'feature-learning-lab[search]'")


@dataclass(frozen=True)
class Told:
    """How a trial with these settings ended, or that it is still `running`.

    `values` are those of the goals if it finished. If it was stopped early, `at` is its last step and value.
    """

    settings: Mapping[str, Any]
    status: str = "running"
    values: tuple[float, ...] = ()
    at: tuple[int, float] | None = None


class Study(BaseModel):
    """What Optuna searches: `samples` trials over `axes`, whose other settings are those of `base`.

    A draw depends on the seed, its index and the earlier trials alone. So a sweep that was interrupted continues with
    the draws that it would have made.
    """

    model_config = ConfigDict(frozen=True)

    base: dict[str, Any]
    axes: dict[str, Drawn] = Field(min_length=1)
    samples: int = Field(ge=1, le=MOST_TRIALS)
    seed: int

    @field_validator("axes")
    @classmethod
    def _known(cls, axes: dict[str, Drawn]) -> dict[str, Drawn]:
        return {name: axis.checked() for name, axis in axes.items()}

    @classmethod
    def of(cls, base: Config, axes: Mapping[str, Axis], samples: int, seed: int) -> "Study":
        """Return the study of these axes; Optuna chooses among listed values. Has no more trials than there are points.

        Raises `RequestError` where `base` does not accept a value, and without Optuna.
        """
        require_optuna()
        drawn = {name: _as_drawn(name, axis, base) for name, axis in axes.items()}
        points = math.prod(_count(axis) for axis in drawn.values())
        return cls(base=base.model_dump(mode="json"), axes=drawn, samples=int(min(samples, points)), seed=seed)

    def draw(
        self, index: int, goals: Goals, earlier: Sequence[Told], accepted: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        """Return the settings of trial `index` that vary: new ones that are `accepted`.

        Optuna's TPE suggests them. A suggestion that is not new or not accepted is replaced by a random draw.
        Raises `RequestError` if no such settings are found.
        """
        rng = random.Random(f"{self.seed} {index}")
        seen = {_text(told.settings) for told in earlier}
        for settings in itertools.chain([self._suggest(rng.getrandbits(32), goals, earlier)], self._others(rng, seen)):
            if _text(settings) not in seen and accepted(settings):
                return settings
        raise RequestError("no settings are left that no trial has and that the experiment accepts")

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a config that vary."""
        return {name: config.get(name) for name in self.axes}

    def _suggest(self, seed: int, goals: Goals, earlier: Sequence[Told]) -> dict[str, Any]:
        import optuna

        with _quiet():
            study = optuna.create_study(
                directions=["minimize" if mode == "min" else "maximize" for mode in goals.values()],
                sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True),
            )
            distributions = {name: _distribution(axis) for name, axis in self.axes.items()}
            study.add_trials([self._frozen(told, distributions, len(goals)) for told in earlier])
            suggested = study.ask(distributions).params
        return {
            name: axis.arguments[suggested[name]] if axis.law == "choice" else suggested[name]
            for name, axis in self.axes.items()
        }

    def _frozen(self, told: Told, distributions: Mapping[str, Any], goals: int) -> "optuna.trial.FrozenTrial":
        from optuna.trial import TrialState, create_trial

        how: dict[str, Any] = {"state": TrialState.FAIL}  # Optuna learns nothing from it
        if told.values:
            how = {"values": told.values}
        elif told.status == "running":
            how = {"state": TrialState.RUNNING}
        elif goals == 1 and told.status in ("stopped", "diverged", "finished"):  # worse than all that finished
            how = {"state": TrialState.PRUNED, "intermediate_values": dict([told.at] if told.at else [])}
        params = {
            name: axis.arguments.index(told.settings[name]) if axis.law == "choice" else told.settings[name]
            for name, axis in self.axes.items()
        }
        return create_trial(params=params, distributions=dict(distributions), **how)

    def _others(self, rng: random.Random, seen: set[str]) -> Iterator[dict[str, Any]]:
        """Yield random draws; where there are few points, all of them in random order."""
        if math.prod(_count(axis) for axis in self.axes.values()) <= REDRAWS:
            values = [axis.arguments if axis.law == "choice" else range(*axis.arguments) for axis in self.axes.values()]
            points = list(itertools.product(*values))
            rng.shuffle(points)
            yield from (dict(zip(self.axes, point, strict=True)) for point in points)
        else:
            for _ in range(REDRAWS):
                yield {name: axis.sample(rng) for name, axis in self.axes.items()}


def _as_drawn(name: str, axis: Axis, base: Config) -> Drawn:
    """The axis as a law, with its values as a stored config has them; raises `RequestError` for a wrong value."""
    values = axis.values if isinstance(axis, Listed) else axis.ends()
    checked = [base.but(**{name: value}).model_dump(mode="json")[name] for value in values]
    if isinstance(axis, Drawn) and axis.law != "choice":
        return axis
    return choice(*(value for place, value in enumerate(checked) if value not in checked[:place]))


def _count(axis: Drawn) -> float:
    """How many values an axis has."""
    if axis.law == "choice":
        return len(axis.arguments)
    return axis.arguments[1] - axis.arguments[0] if axis.law == "randint" else math.inf


def _distribution(axis: Drawn) -> "optuna.distributions.BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.law == "choice":  # by place, since values may be lists
        return CategoricalDistribution(tuple(range(len(axis.arguments))))
    low, high = axis.arguments
    if axis.law == "randint":
        return IntDistribution(low, high - 1)
    return FloatDistribution(low, high, log=axis.law == "loguniform")


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside, Optuna does not announce its studies."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)
