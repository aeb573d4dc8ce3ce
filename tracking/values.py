"""What may be recorded: names of metrics and tags, numbers, steps."""

import numbers
import re
from collections.abc import Iterable
from typing import Any

LARGEST = 2**63 - 1  # step or time that a store holds
# Of metrics that are made from others, for sorting. Without a slash, their charts come last in MLflow's pages. The
# others are those of earlier versions.
BEST = "best."
DERIVED = (BEST, "best/", "final/")
NAME = re.compile(r"[\w.\- :]+(/[\w.\- :]+)*")  # what MLflow allows on every system it runs on, and no empty part


def check_name(name: str) -> None:
    """Raise ValueError for what cannot be the name of a metric, param or tag."""
    if not isinstance(name, str) or len(name) > 230 or not NAME.fullmatch(name) or {".", ".."} & set(name.split("/")):
        allowed = "letters, digits, _ - . : and space, parts separated by /, at most 230 characters"
        raise ValueError(f"{name!r:.260} cannot be the name of a metric or tag: {allowed}")


def number(name: str, value: Any) -> float:
    """The value of a metric, numpy's and torch's scalars too, as a float. Raises TypeError for what is no number."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"metric {name!r} must be a number, not {type(value).__name__} ({value!r:.60})")
    return float(value)


def integer(step: Any) -> int:
    """A step as an int. Raises TypeError for what is no whole number."""
    if isinstance(step, bool) or not isinstance(step, numbers.Integral):
        raise TypeError(f"step must be an integer, not {type(step).__name__} ({step!r:.60})")
    return int(step)


def check_step(step: int, names: Iterable[str]) -> None:
    """Raise ValueError for a step that no store has room for."""
    if not -LARGEST - 1 <= step <= LARGEST:
        metrics = ", ".join(map(repr, names)) or "no metric"
        shown = str(step) if step.bit_length() < 200 else f"of {step.bit_length()} bits"
        raise ValueError(f"step {shown} of {metrics:.200} is out of range: steps are integers of 64 bits")
