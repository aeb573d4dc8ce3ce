"""Check what is recorded: names of metrics and tags, values, steps."""

import numbers
import re
from collections.abc import Iterable
from typing import Any

LARGEST = 2**63 - 1  # the largest step or time that a store can hold
BEST = "best."  # begins the names of derived metrics; without a slash, their charts come last in MLflow's pages
DERIVED = (BEST, "best/", "final/")  # with the prefixes of earlier versions
NAME = re.compile(r"[\w.\- :]+(/[\w.\- :]+)*")  # what MLflow allows on every operating system, without empty parts


def check_name(name: str) -> None:
    """Raise ValueError for an invalid name of a metric, param or tag."""
    if not isinstance(name, str) or len(name) > 230 or not NAME.fullmatch(name) or {".", ".."} & set(name.split("/")):
        allowed = "letters, digits, _ - . : and space, parts separated by /, at most 230 characters"
        raise ValueError(f"{name!r:.260} cannot be the name of a metric or tag: {allowed}")


def number(name: str, value: Any) -> float:
    """Return the value of a metric, possibly a numpy or torch scalar, as a float. Raises TypeError for other types."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"metric {name!r} must be a number, not {type(value).__name__} ({value!r:.60})")
    return float(value)


def integer(step: Any) -> int:
    """Return a step as an int. Raises TypeError for anything but an integer."""
    if isinstance(step, bool) or not isinstance(step, numbers.Integral):
        raise TypeError(f"step must be an integer, not {type(step).__name__} ({step!r:.60})")
    return int(step)


def check_step(step: int, names: Iterable[str]) -> None:
    """Raise ValueError for a step beyond 64 bits, which no store can hold. `names` are the metrics for the message."""
    if not -LARGEST - 1 <= step <= LARGEST:
        metrics = ", ".join(map(repr, names)) or "no metric"
        shown = str(step) if step.bit_length() < 200 else f"of {step.bit_length()} bits"
        raise ValueError(f"step {shown} of {metrics:.200} is out of range: steps are integers of 64 bits")
