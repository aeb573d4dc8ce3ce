"""Where the marks of an interval plot lie: a value and its interval, on the ground of what a claim requires."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from featurelab.tracking.numbers import NUMBER, numbers_of

WIDTH = 240.0  # of a plot, in the units of its drawing
EDGE = 8.0  # on each side, free of marks unless a bound has no end
DECADES = 3.0  # positive values that span more are drawn on a logarithmic axis
SHARE = re.compile(r" in at least (\d+)% of seeds$")

Ends = tuple[float, float]


@dataclass(frozen=True)
class Plot:
    """The marks of one measured part, as distances from the left between 0 and `WIDTH`.

    `required` is the ground with which the claim holds, `interval` the 95% interval, `deciding` the one that decided
    where that is another, `paper` the published value and `under` the value under each control. Marks that are not
    known are None. On a logarithmic axis `log` is true.
    """

    value: float
    required: Ends | None = None
    interval: Ends | None = None
    deciding: Ends | None = None
    paper: float | None = None
    under: tuple[tuple[str, float], ...] = ()
    log: bool = False


def plots(
    measured: Any, *, ci: Any = None, deciding: Any = None, expected: Any = None, paper: Any = None, under: Any = None
) -> dict[str, Plot]:
    """Return the plot of each measured part; a single value has the part "". What is not a finite number gets none.

    `ci` and `deciding` hold intervals, `expected` bounds as text, one for all parts or one for each, `paper` the
    published values and `under` the values under controls by their names.
    """
    drawn = {}
    for part, value in (measured if isinstance(measured, Mapping) else {"": measured}).items():
        if not _finite(value):
            continue
        ends = {"interval": _ends(_of(ci, part)), "deciding": _ends(_of(deciding, part))}
        controls = {name: _of(values, part) for name, values in (under or {}).items()}
        drawn[str(part)] = _plot(value, ends, _bounds(_of(expected, part)), _number(_of(paper, part)), controls)
    return drawn


def _plot(
    value: float, ends: Mapping[str, Ends | None], bounds: Ends | None, paper: float | None, under: Mapping[str, Any]
) -> Plot:
    known = [
        value,
        *(end for pair in (*ends.values(), bounds) if pair for end in pair),
        *([] if paper is None else [paper]),
    ]
    place, log = _axis([each for each in known if math.isfinite(each)])
    return Plot(
        value=place(value),
        required=(place(bounds[0]), place(bounds[1])) if bounds else None,
        interval=_placed(ends["interval"], place),
        deciding=None if ends["deciding"] == ends["interval"] else _placed(ends["deciding"], place),
        paper=None if paper is None else place(paper),
        under=tuple((str(name), place(each)) for name, each in under.items() if _finite(each)),
        log=log,
    )


def _axis(values: Iterable[float]) -> tuple[Any, bool]:
    """Return the function from a value to its place, and whether its axis is logarithmic. Places end at the edges."""
    values = sorted(values)
    log = values[0] > 0 and math.log10(values[-1] / values[0]) > DECADES
    scaled = math.log10 if log else float
    low, high = scaled(values[0]), scaled(values[-1])
    middle, half = (low + high) / 2, (high - low) / 2 or abs(high) / 2 or 1.0

    def place(value: float) -> float:
        if value == math.inf or value == -math.inf or (log and value <= 0):
            return WIDTH if value == math.inf else 0.0
        share = (scaled(value) - middle) / half
        return round(min(max(WIDTH / 2 + share * (WIDTH / 2 - 3 * EDGE), 0.0), WIDTH), 1)

    return place, log


def _bounds(text: Any) -> Ends | None:
    """Return the ends of a bound: "≥ 0.25", "0.86 to 0.97", "≤ 0.1 in at least 80% of seeds"; None for another text."""
    if not isinstance(text, str):
        return None
    if share := SHARE.search(text):
        return float(share[1]) / 100, math.inf
    numbers = numbers_of(text)
    if re.fullmatch(rf"[≥>] {NUMBER.pattern}", text) and len(numbers) == 1:
        return numbers[0], math.inf
    if re.fullmatch(rf"[≤<] {NUMBER.pattern}", text) and len(numbers) == 1:
        return -math.inf, numbers[0]
    return (numbers[0], numbers[1]) if re.fullmatch(rf"{NUMBER.pattern} to {NUMBER.pattern}", text) else None


def _number(value: Any) -> float | None:
    """Return a published value that is a number, also as a text; None for a sentence."""
    if isinstance(value, str) and re.fullmatch(NUMBER.pattern, value):
        value = float(value)
    return float(value) if _finite(value) else None


def _ends(value: Any) -> Ends | None:
    pair = list(value) if isinstance(value, list | tuple) else []
    return (float(pair[0]), float(pair[1])) if len(pair) == 2 and all(map(_finite, pair)) else None


def _placed(ends: Ends | None, place: Any) -> Ends | None:
    return (place(ends[0]), place(ends[1])) if ends else None


def _of(value: Any, part: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): each for name, each in value.items()}.get(str(part))
    return value if isinstance(value, str) or part == "" else None


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
