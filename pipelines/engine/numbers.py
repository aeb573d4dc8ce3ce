"""Numbers as tables and pages write them."""

from collections.abc import Mapping
from typing import Any


def number(value: Any) -> str:
    """A value, several, or named ones, short."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{part}: {number(part_value)}" for part, part_value in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(number(part) for part in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def interval(value: Any) -> str:
    """A confidence interval, or named ones."""
    if isinstance(value, Mapping):
        return ", ".join(f"{part}: {interval(ends)}" for part, ends in value.items())
    return "-" if value is None else f"{number(value[0])} to {number(value[1])}"
