"""A sweep written down in a YAML file, in the shape of Weights & Biases' sweep files.

experiment: neural_feature_ansatz/init_scale
method: random
metric: {name: loss/test, goal: minimize}
samples: 64
parameters:
  lr: {distribution: log_uniform_values, min: 1.0e-4, max: 0.1}
  width: {values: [64, 128]}
  steps: {value: 500}
scheduler: asha
resources: {cpus: 2, gpus: 0.5, timeout: 600}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from featurelab.pipelines.engine.errors import RequestError, nearest, unknown
from featurelab.pipelines.engine.experiment.axes import Axis, Drawn, Listed, choice, loguniform, randint, uniform
from featurelab.pipelines.engine.experiment.config import Config, Scale, read_mapping
from featurelab.pipelines.engine.sweep.search.goals import Mode
from featurelab.pipelines.engine.trial.record import Save
from featurelab.tracking.lines import quoted

LAWS = {"uniform": "uniform", "log_uniform_values": "loguniform", "int_uniform": "randint", "categorical": "choice"}
GOALS: dict[str, Mode] = {"minimize": "min", "maximize": "max"}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Parameter(_Part):
    """A setting: one `value`, or several `values`, or what lies between `min` and `max`.

    `values` are crossed with those of other parameters; with `distribution: categorical`, they are drawn. Both ends of
    `int_uniform` are included. Without a distribution, whole numbers are drawn between whole numbers.
    """

    value: Any = None
    values: list[Any] | None = None
    min: int | float | None = None
    max: int | float | None = None
    distribution: str | None = None

    def axis(self) -> Axis:
        """The axis, for a parameter that is not fixed; raises `RequestError` where it is not one."""
        law = self.distribution
        if law is not None and law not in LAWS:
            raise unknown("distribution", law, LAWS)
        if self.values is not None:
            if self.min is not None or self.max is not None or law not in (None, "categorical"):
                raise RequestError("values stand alone or with distribution: categorical")
            if not self.values:
                raise RequestError("values are empty")
            return choice(*map(_plain, self.values)) if law else Listed(tuple(map(_plain, self.values)))
        if self.min is None or self.max is None or law == "categorical":
            raise RequestError("write value, values, or min and max")
        whole = isinstance(self.min, int) and isinstance(self.max, int)
        if law == "int_uniform" or (law is None and whole):
            if not whole:
                raise RequestError("int_uniform needs whole numbers")
            return randint(int(self.min), int(self.max) + 1)
        return (loguniform if law == "log_uniform_values" else uniform)(float(self.min), float(self.max))


class Metric(_Part):
    """The metric that ranks trials."""

    name: str = ""
    goal: Literal["minimize", "maximize"] | None = None

    @property
    def mode(self) -> Mode | None:
        return GOALS[self.goal] if self.goal else None


class OfTrial(_Part):
    """The resources of a whole trial, as the options `--cpus-per-trial` and so on give them."""

    cpus: float | None = None
    gpus: float = 0
    workers: int | None = None
    timeout: float | None = None


class SweepFile(_Part):
    """What a sweep file holds."""

    experiment: str
    name: str = ""
    scale: Scale = "laptop"
    method: Literal["grid", "random"] = "random"
    search: Literal["random", "optuna"] = "random"
    metric: Metric = Metric()
    other_metrics: list[Metric] = Field(default_factory=list)
    samples: int | None = None
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    scheduler: Literal["fifo", "asha"] = "fifo"
    resources: OfTrial = OfTrial()
    save: Save = ""

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file at `path`; raises `RequestError`, with one line that names it, where it is not a sweep file."""
        try:
            return cls.model_validate(read_mapping(path))
        except ValidationError as error:
            raise RequestError(f"{quoted(str(path))}: {_explained(error)}") from None

    def fixed(self, model: type[Config]) -> dict[str, Any]:
        """The settings that have one value in all trials; raises `RequestError` for an unknown setting."""
        return {name: _plain(part.value) for name, part in self._known(model).items() if "value" in _given(part)}

    def axes(self, model: type[Config]) -> dict[str, Axis]:
        """The axes; raises `RequestError` for an unknown setting, and for what is no axis."""
        axes: dict[str, Axis] = {}
        for name, part in self._known(model).items():
            if "value" in _given(part):
                if len(_given(part)) > 1:
                    raise RequestError(f"{name}: value stands alone")
                continue
            try:
                axes[name] = part.axis()
            except RequestError as error:
                raise RequestError(f"{name}: {error}") from None
            if self.method == "grid" and isinstance(axes[name], Drawn):
                raise RequestError(f"{name}: method: grid takes values alone; method: random draws")
        return axes

    def _known(self, model: type[Config]) -> Mapping[str, Parameter]:
        for name in self.parameters:
            if name not in model.model_fields:
                raise unknown("setting", name, model.model_fields)
        return self.parameters

    def text(self) -> str:
        """The file as YAML, without what is as by default."""
        import yaml

        values = self.model_dump(mode="json", exclude_defaults=True)
        values["parameters"] = {name: part.model_dump(exclude_unset=True) for name, part in self.parameters.items()}
        order = [name for name in type(self).model_fields if values.get(name)]
        return yaml.safe_dump({name: values[name] for name in order}, sort_keys=False, default_flow_style=None)


def _given(part: Parameter) -> set[str]:
    return part.model_fields_set


def parameters(axes: Mapping[str, Axis], fixed: Mapping[str, Any], base: Config) -> dict[str, Parameter]:
    """Axes and fixed settings as a sweep file has them; raises `RequestError` for a value that `base` refuses."""

    def typed(name: str, value: Any) -> Any:
        return base.but(**{name: value}).model_dump(mode="json")[name]

    written = {name: Parameter(value=typed(name, value)) for name, value in fixed.items()}
    laws = {ours: theirs for theirs, ours in LAWS.items()}
    for name, axis in axes.items():
        if isinstance(axis, Listed):
            written[name] = Parameter(values=[typed(name, value) for value in axis.values])
        elif axis.law == "choice":
            values = [typed(name, value) for value in axis.arguments]
            written[name] = Parameter(distribution="categorical", values=values)
        else:
            low, high = axis.arguments
            for end in axis.ends():
                base.but(**{name: end})
            high -= axis.law == "randint"  # theirs includes both ends
            written[name] = Parameter(distribution=laws[axis.law], min=low, max=high)
    return written


def _plain(value: Any) -> Any:
    """A value as the command line gives it: YAML reads 1e-4 as a text, and pydantic converts texts."""
    return list(value) if isinstance(value, list | tuple) else value


def _explained(error: ValidationError) -> str:
    """The first error in one line: for a key that does not exist, with the nearest one."""
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        parts: dict[str, type[_Part]] = {
            "metric": Metric,
            "other_metrics": Metric,
            "resources": OfTrial,
            "parameters": Parameter,
        }
        known = parts[where[0]] if len(where) > 1 else SweepFile
        place = f" of {'.'.join(where[:-1])}" if len(where) > 1 else ""
        return f"unknown key {quoted(where[-1])}{place}: {nearest(where[-1], known.model_fields)}"
    if first["type"] == "missing":
        return f"the key {'.'.join(where)} is missing"
    if first["type"] in ("model_type", "model_attributes_type"):
        return f"{'.'.join(where)} = {quoted(first['input'])}: write a mapping, such as {where[-1]}: {{value: 0.1}}"
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"{'.'.join(where)} = {quoted(first['input'])}: {message}"
