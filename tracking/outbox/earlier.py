"""The points that earlier attempts at a run recorded, so that an attempt that resumes it stores nothing twice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Point(NamedTuple):
    """One value of a metric, and when it was recorded (milliseconds since the epoch)."""

    metric: str
    step: int
    value: float
    time: int


class Earlier:
    """The points recorded before an attempt began. Each stays until it is recorded again or passed over."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._remaining: dict[tuple[str, int], list[Point]] = {}
        for point in dict.fromkeys(points):
            self._remaining.setdefault((point.metric, point.step), []).append(point)

    def holds(self, metric: str, step: int, value: float) -> bool:
        """Return whether the metric has this value at this step."""
        return any(same(point.value, value) for point in self._remaining.get((metric, step), ()))

    def take(self, metric: str, step: int, value: float) -> Point | None:
        """Remove and return the earlier point that this one repeats; None if the point is new.

        If no point at this metric and step has this value, return the first one: the new value contradicts it.
        """
        points = self._remaining.get((metric, step))
        if not points:
            return None
        repeated = next((point for point in points if same(point.value, value)), points[0])
        points.remove(repeated)
        return repeated

    def pass_over(self, until: int) -> list[tuple[int, dict[str, float]]]:
        """Remove the points up to a time and return them as they were recorded: (step, values by name)."""
        passed: dict[tuple[int, int], dict[str, float]] = {}
        for point in self:
            if point.time <= until:
                passed.setdefault((point.time, point.step), {})[point.metric] = point.value
        self._remaining = {
            key: later for key, points in self._remaining.items() if (later := [p for p in points if p.time > until])
        }
        return [(step, values) for (_, step), values in passed.items()]

    def nonfinite(self) -> set[str]:
        """Return the metrics with a value that is not finite."""
        return {point.metric for point in self if not math.isfinite(point.value)}

    def journal_lines(self) -> Iterator[Mapping[str, Any]]:
        """Yield the points as lines of a journal."""
        for point in self:
            yield {"t": point.time, "s": point.step, "m": {point.metric: point.value}}

    def __iter__(self) -> Iterator[Point]:
        """Iterate in the order in which the points were recorded."""
        points = [point for at_step in self._remaining.values() for point in at_step]
        return iter(sorted(points, key=lambda point: (point.time, point.step)))


def same(one: float, other: float) -> bool:
    """Return whether a store cannot tell two values apart: it keeps nan for every value that is not finite."""
    return one == other or not (math.isfinite(one) or math.isfinite(other))
