"""What is derived from all points of a run: the best value of each loss, error and accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlflow.entities import Metric

from featurelab.tracking.values import BEST, DERIVED

DIRECTION = {"loss": min, "error": min, "accuracy": max}  # by the first part of a metric's name: which value is best


@dataclass
class Summary:
    """The best value of each loss, error and accuracy: of `loss/test` the run carries it as `best.loss.test`."""

    last: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and step of the last point
    best: dict[str, float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Take in one line of metrics."""
        for name, value in entry["m"].items():
            if name.startswith(DERIVED):
                continue
            self.last[name] = (entry["t"], entry["s"])
            better = DIRECTION.get(name.split("/", 1)[0])
            if better and math.isfinite(value):
                self.best[name] = better(value, self.best.get(name, value))

    def metrics(self) -> list[Metric]:
        """Return the derived metrics, each at the time and step of the last point."""
        return [metric(BEST + name.replace("/", "."), value, *self.last[name]) for name, value in self.best.items()]


def metric(name: str, value: float, t: int, step: int) -> Metric:
    """A point as MLflow takes it."""
    # MLflow turns inf into 1.8e308, which would be plotted; the tag `nonfinite/<name>` says where it happened
    return Metric(name, value if math.isfinite(value) else math.nan, t, step)
