"""What earlier attempts of a run recorded, so that an attempt that resumes it stores nothing twice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from featurelab.tracking.outbox.journal import Journal
from featurelab.tracking.store.store import Store


class Point(NamedTuple):
    """One value of a metric, and when it was recorded (milliseconds since the epoch)."""

    metric: str
    step: int
    value: float
    time: int


class Earlier:
    """The points of a run before an attempt, each until it is recorded again or passed over."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._left: dict[tuple[str, int], list[Point]] = {}
        for point in dict.fromkeys(points):
            self._left.setdefault((point.metric, point.step), []).append(point)

    @classmethod
    def read(cls, store: Store, run_id: str) -> Earlier:
        """All that the store holds. Raises what the store raises."""
        from featurelab.tracking.store.query import histories  # needs pandas, which recording does not

        found = histories(store, [run_id])
        columns = (found[name].tolist() for name in ("metric", "step", "value", "timestamp"))
        return cls(Point(*row) for row in zip(*columns, strict=True))

    def joined_by(self, journal: Journal) -> Earlier:
        """These, and what a journal holds that they do not."""
        known = {(point.metric, point.step, point.time) for point in self}  # the store has nan for what is not finite
        return Earlier([*self, *(p for p in _lines(journal) if (p.metric, p.step, p.time) not in known)])

    def holds(self, metric: str, step: int, value: float) -> bool:
        """Whether this value of the metric is known at this step."""
        return any(same(point.value, value) for point in self._left.get((metric, step), ()))

    def take(self, metric: str, step: int, value: float) -> Point | None:
        """The known point that this one repeats, which then is known no longer; None for a new one.

        Where none has this value, the first one at this metric and step, which the value contradicts.
        """
        points = self._left.get((metric, step))
        if not points:
            return None
        repeated = next((point for point in points if same(point.value, value)), points[0])
        points.remove(repeated)
        return repeated

    def pass_over(self, until: int) -> list[tuple[int, dict[str, float]]]:
        """Forget the points up to a time; they are returned as they were recorded, as (step, values by name)."""
        passed: dict[tuple[int, int], dict[str, float]] = {}
        for point in self:
            if point.time <= until:
                passed.setdefault((point.time, point.step), {})[point.metric] = point.value
        self._left = {
            key: later for key, points in self._left.items() if (later := [p for p in points if p.time > until])
        }
        return [(step, values) for (_, step), values in passed.items()]

    def nonfinite(self) -> set[str]:
        """The metrics that had a value which is not finite."""
        return {point.metric for point in self if not math.isfinite(point.value)}

    def entries(self) -> Iterator[Mapping[str, Any]]:
        """The points as the lines of a journal say them."""
        for point in self:
            yield {"t": point.time, "s": point.step, "m": {point.metric: point.value}}

    def __iter__(self) -> Iterator[Point]:
        """In the order in which they were recorded."""
        everything = [point for points in self._left.values() for point in points]
        return iter(sorted(everything, key=lambda point: (point.time, point.step)))


def same(one: float, other: float) -> bool:
    """Whether two values are one to a store, which keeps nan for all that is not finite."""
    return one == other or not (math.isfinite(one) or math.isfinite(other))


def _lines(journal: Journal) -> Iterator[Point]:
    for _, entry in journal.lines():
        for metric, value in entry.get("m", {}).items():
            yield Point(metric, entry["s"], value, entry["t"])
