"""Write numbers for tables and pages: with few digits, and with more where two different numbers would look equal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

DIGITS = 4  # significant digits where they suffice
MOST_DIGITS = 12  # as in the bounds of claims
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")


def number(value: Any, beside: Iterable[float] = ()) -> str:
    """Return a value, a list of values or a mapping of named values as a short text; "-" for None.

    A float gets 4 significant digits, or as many more, up to 12, as distinguish it from the other numbers in `beside`.

    >>> number(0.123456), number([0.1, 2]), number({"layer 1": 0.5}), number(1 - 1e-9), number(1.0, [1 - 1e-9])
    ('0.1235', '0.1, 2', 'layer 1: 0.5', '1', '1')
    >>> number(1 - 1e-9, beside=[1.0])
    '0.999999999'
    """
    if value is None:
        return "-"
    others = list(beside)
    if isinstance(value, Mapping):
        return named({str(name): number(part, others) for name, part in value.items()})
    if isinstance(value, list | tuple):
        return ", ".join(number(part, others) for part in value)
    return _float(value, others) if isinstance(value, float) else str(value)


def interval(value: Any, beside: Iterable[float] = ()) -> str:
    """Return an interval, or named intervals, as "low to high" with distinguishable ends; "-" for None."""
    others = list(beside)
    if isinstance(value, Mapping):
        return named({str(name): interval(ends, others) for name, ends in value.items()})
    if not isinstance(value, list | tuple):
        return number(value, others)
    ends = numbers_of(value)
    return " to ".join(number(end, [*others, *ends]) for end in value)


def measurement(measured: Any, ci: Any, expected: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return (measured values, intervals) as texts by part, distinguishable from each other and from the bounds.

    Each argument is one value or a mapping from parts to values. `ci` holds intervals; `expected` holds bounds as text,
    one for all parts or one for each. A single value has the part "".
    """
    parts = [str(part) for value in (measured, ci) if isinstance(value, Mapping) for part in value]
    values: dict[str, str] = {}
    intervals: dict[str, str] = {}
    for part in dict.fromkeys(parts) or [""]:
        mean, ends, bounds = (_of(value, part) for value in (measured, ci, expected))
        limits = numbers_of(bounds)
        if mean is not None:
            values[part] = number(mean, [*numbers_of(ends), *limits])
        if ends is not None:
            intervals[part] = interval(ends, [*numbers_of(mean), *limits])
    return values, intervals


def named(parts: Mapping[str, str]) -> str:
    """Return named texts as one line; "-" if there are none.

    >>> named({"": "0.5"}), named({"a": "0.5", "b": "1"})
    ('0.5', 'a: 0.5, b: 1')
    """
    return ", ".join(f"{part}: {text}" if part else text for part, text in parts.items()) or "-"


def numbers_of(value: Any) -> list[float]:
    """Return the finite numbers in a value: a number, a list, a mapping, or a text that contains numbers.

    >>> numbers_of("0.9 to 1"), numbers_of([0.1, None]), numbers_of("> 1e-9")
    ([0.9, 1.0], [0.1], [1e-09])
    """
    if isinstance(value, str):
        value = [float(digits) for digits in NUMBER.findall(value)]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [each for part in value for each in numbers_of(part)]
    return [value] if isinstance(value, int | float) and math.isfinite(value) else []


def _float(value: float, others: list[float]) -> str:
    others = [other for other in others if other != value]
    for digits in range(DIGITS, MOST_DIGITS):
        text = f"{value:.{digits}g}"
        if all(text != f"{other:.{digits}g}" for other in others):
            return text
    return f"{value:.{MOST_DIGITS}g}"


def _of(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return {str(name): named_value for name, named_value in value.items()}.get(part)
    return value if not part or isinstance(value, str) else None
