"""The metrics derived from all points of a run: the best value of each loss, error and accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlflow.entities import Metric

from featurelab.tracking.values import BEST, DERIVED

DIRECTION = {"loss": min, "error": min, "accuracy": max}  # which value is best, by the first part of a metric's name


@dataclass
class Summary:
    """The best value of each loss, error and accuracy; that of `loss/test` becomes the metric `best.loss.test`."""

    last: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and step of the last point
    best: dict[str, float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Update the summary with one journal line of metrics."""
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


def metric(name: str, value: float, time: int, step: int) -> Metric:
    """Return a point as MLflow takes it, with `time` in milliseconds; a value that is not finite becomes nan."""
    # MLflow would turn inf into 1.8e308 and plot it; the tag `nonfinite/<name>` says where it occurred
    return Metric(name, value if math.isfinite(value) else math.nan, time, step)
