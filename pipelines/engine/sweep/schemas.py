"""What a store says, checked before it is used: others may write to a store, so its texts are input like any other."""

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, Json, TypeAdapter, ValidationError

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.claims import Verdict
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.tracking.lines import quoted

Checked = TypeVar("Checked", bound=BaseModel)


def checked(model: type[Checked], values: Any, what: str) -> Checked:
    """`values` as `model`; raises `RequestError` with one line that names `what` and the first thing wrong in it."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise RequestError(_explained(error, what)) from None


def parsed(text: str, what: str) -> dict[str, Any]:
    """The settings that a tag holds as JSON; raises `RequestError` where it holds none."""
    try:
        return TypeAdapter(Json[dict[str, Any]]).validate_python(text)
    except ValidationError as error:
        raise RequestError(_explained(error, what)) from None


def verdicts(values: Any, what: str) -> list[Verdict]:
    """The verdicts of a sweep, read from its `verdicts.json`; raises `RequestError` where they are none."""
    try:
        return TypeAdapter(list[Verdict]).validate_python(values)
    except ValidationError as error:
        raise RequestError(_explained(error, what)) from None


def require_settings(experiment: Experiment, config: Mapping[str, Any], axes: list[str], what: str) -> None:
    """Raise `RequestError` unless all settings of the experiment that `config` and `axes` name can have these values.

    A setting that `config` lacks, or has beyond those of the experiment, may stem from another version.
    """
    known = type(experiment.laptop).model_fields
    try:
        experiment.laptop.but(**{name: value for name, value in config.items() if name in known})
    except RequestError as error:
        raise RequestError(f"{what} is not as featurelab records it: {error}") from None
    if strange := [axis for axis in axes if axis not in known]:
        raise RequestError(f"{what} is not as featurelab records it: no setting is called {quoted(strange[0])}")


def seconds(text: Any) -> float:
    """How long a sweep took by its tag; 0 where it does not say."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return 0.0
    return value if math.isfinite(value) and value >= 0 else 0.0


def _explained(error: ValidationError, what: str) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "it"
    return f"{what} is not as featurelab records it: {place}: {first['msg'][:1].lower() + first['msg'][1:]}"
