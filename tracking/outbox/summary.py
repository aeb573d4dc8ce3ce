"""The metrics derived from all points of a run: the best value of each loss, error and accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from featurelab.tracking.store.points import Point
from featurelab.tracking.values import BEST, DERIVED

DIRECTION = {"loss": min, "error": min, "accuracy": max}  # which value is best, by the first part of a metric's name


@dataclass
class Summary:
    """The best value of each loss, error and accuracy; that of `loss/test` becomes the metric `best.loss.test`."""

    last: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and step of the last point
    best: dict[str, float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Update the summary with one journal line of metrics."""
        when = entry["t"], entry["s"]
        for name, value in entry["m"].items():
            is_derived, better = _kind(name)
            if is_derived:
                continue
            self.last[name] = when
            if better and math.isfinite(value):
                self.best[name] = better(value, self.best.get(name, value))

    def metrics(self) -> list[Point]:
        """Return the derived metrics, each at the time and step of the last point."""
        return [Point(BEST + name.replace("/", "."), value, *self.last[name]) for name, value in self.best.items()]


def points_of(entry: Mapping[str, Any]) -> list[Point]:
    """Return the points of one journal line as MLflow takes them; a value that is not finite becomes nan."""
    # MLflow would turn inf into 1.8e308 and plot it; the tag `nonfinite/<name>` says where it occurred
    time, step, finite, nan = entry["t"], entry["s"], math.isfinite, math.nan
    return [Point(name, value if finite(value) else nan, time, step) for name, value in entry["m"].items()]


@lru_cache(4096)
def _kind(name: str) -> tuple[bool, Callable[..., float] | None]:
    """Return whether a metric is derived from others, and which of its values is best."""
    return name.startswith(DERIVED), DIRECTION.get(name.split("/", 1)[0])
