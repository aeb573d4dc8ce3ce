"""Check what a store says before it is used: others may write to a store, so its content is untrusted input."""

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
    """Return `values` as `model`; raise `RequestError` with the first error, of `what`, in one line."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise RequestError(_explained(error, what)) from None


def parsed(text: str, what: str) -> dict[str, Any]:
    """Return the settings that a tag holds as JSON; raise `RequestError` if it holds anything else."""
    try:
        return TypeAdapter(Json[dict[str, Any]]).validate_python(text)
    except ValidationError as error:
        raise RequestError(_explained(error, what)) from None


def verdicts(values: Any, what: str) -> list[Verdict]:
    """Return the verdicts in a `verdicts.json`; raise `RequestError` if it holds anything else."""
    try:
        return TypeAdapter(list[Verdict]).validate_python(values)
    except ValidationError as error:
        raise RequestError(_explained(error, what)) from None


def require_settings(experiment: Experiment, config: Mapping[str, Any], axes: list[str], what: str) -> None:
    """Raise `RequestError` unless the experiment accepts the values in `config`, and has all settings in `axes`.

    `config` may lack settings, or have others besides: it may be of another version of the experiment.
    """
    fields = type(experiment.laptop).model_fields
    try:
        experiment.laptop.but(**{name: value for name, value in config.items() if name in fields})
    except RequestError as error:
        raise RequestError(f"{what} is not as featurelab records it: {error}") from None
    if missing := [axis for axis in axes if axis not in fields]:
        raise RequestError(f"{what} is not as featurelab records it: no setting is called {quoted(missing[0])}")


def seconds(text: Any) -> float:
    """The duration in the tag of a sweep; 0 for anything but a number of seconds."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return 0.0
    return value if math.isfinite(value) and value >= 0 else 0.0


def _explained(error: ValidationError, what: str) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "it"
    return f"{what} is not as featurelab records it: {field}: {first['msg'][:1].lower() + first['msg'][1:]}"
