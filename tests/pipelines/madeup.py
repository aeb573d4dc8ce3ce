"""Results that nobody measured: for claims, drawings and the view on results."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from featurelab.pipelines.engine.experiment.claims import Claim
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.verdict.check import Table

Curve = float | Mapping[int, float]


def seed_by_seed(claim: Claim) -> Claim:
    """The claim as one that every seed decides: equal values, as made-up ones are, would decide no mean."""
    return dataclasses.replace(claim, kind="identity", about="mean", least=None)


def results(
    configs: Sequence[Mapping[str, Any]],
    measured: Callable[[Mapping[str, Any]], Mapping[str, Curve]],
    arrays: Callable[[Mapping[str, Any], str], Mapping[str, Any]] | None = None,
    status: Callable[[Mapping[str, Any]], str] = lambda config: "finished",
) -> Results:
    """One trial a config; `measured(config)` gives each metric's last value, or its values by step."""
    rows, points = [], []
    for index, config in enumerate(configs):
        rows.append({"run_id": f"run{index}", "status": status(config), **config})
        for metric, curve in measured(config).items():
            values = curve if isinstance(curve, Mapping) else {0: curve}
            points += [(f"run{index}", metric, step, float(value)) for step, value in values.items()]
    by_id = {row["run_id"]: row for row in rows}

    def load(run_id: str, name: str) -> Mapping[str, Any]:
        assert arrays is not None
        return arrays(by_id[run_id], name)

    frame = pd.DataFrame(rows, dtype=object)
    table = Table(pd.DataFrame(points, columns=["run_id", "metric", "step", "value"]))
    return Results(frame, functools.cache(table), load)
