"""Numbers as tables and pages write them: with few digits, and with more where fewer would make two of them one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

DIGITS = 4  # significant ones, where they are enough
MOST_DIGITS = 12  # with which the bounds of claims are written
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")


def number(value: Any, beside: Iterable[float] = ()) -> str:
    """A value, several, or named ones, short; "-" for None.

    A float has 4 significant digits, and as many more, up to 12, as it takes to differ from the numbers in `beside`
    that it is not equal to.

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
    """An interval, or named ones, as "low to high", its ends told apart; "-" for None."""
    others = list(beside)
    if isinstance(value, Mapping):
        return named({str(name): interval(ends, others) for name, ends in value.items()})
    if not isinstance(value, list | tuple):
        return number(value, others)
    ends = numbers_of(value)
    return " to ".join(number(end, [*others, *ends]) for end in value)


def measurement(measured: Any, ci: Any, expected: Any) -> tuple[dict[str, str], dict[str, str]]:
    """What was measured and its intervals as text by part: told apart from each other and from the bounds.

    Each is one value, or a mapping from parts to values; `ci` has intervals, `expected` bounds as text, one for all
    parts or one for each. The only part of one value is "".
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
    """Texts by the names of their parts in one line; "-" for none.

    >>> named({"": "0.5"}), named({"a": "0.5", "b": "1"})
    ('0.5', 'a: 0.5, b: 1')
    """
    return ", ".join(f"{part}: {text}" if part else text for part, text in parts.items()) or "-"


def numbers_of(value: Any) -> list[float]:
    """The finite numbers in a value: itself, those of a list or a mapping, those that a text names.

    >>> numbers_of("0.9 to 1"), numbers_of([0.1, None]), numbers_of("> 1e-9")
    ([0.9, 1.0], [0.1], [1e-09])
    """
    if isinstance(value, str):
        value = [float(found) for found in NUMBER.findall(value)]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [found for part in value for found in numbers_of(part)]
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
        return {str(name): own for name, own in value.items()}.get(part)
    return value if not part or isinstance(value, str) else None
