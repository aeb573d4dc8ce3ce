"""One value of a metric, on its way to the store."""

from typing import NamedTuple

from mlflow.entities import Metric


class Point(NamedTuple):
    """What MLflow's `Metric` holds, under the same names; one is made and read in a fraction of the time.

    The points of a run are made in the background, but under the interpreter's lock, for which training waits.
    """

    key: str
    value: float
    timestamp: int  # milliseconds since the epoch
    step: int
    model_id: None = None

    def as_metric(self) -> Metric:
        return Metric(*self)
