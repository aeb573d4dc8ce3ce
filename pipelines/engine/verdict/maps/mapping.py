"""Where the claims of a figure hold: its grid in every cell that some settings span, each cell judged by itself."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from featurelab.pipelines.engine.errors import RequestError, unknown
from featurelab.pipelines.engine.experiment.axes import MOST_TRIALS, Axis, Listed, expand
from featurelab.pipelines.engine.experiment.claims import STATUSES, Verdict
from featurelab.pipelines.engine.experiment.config import Config, Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.needs import require_data
from featurelab.pipelines.engine.sweep.descriptions import map_note
from featurelab.pipelines.engine.sweep.plan import Plan, check_name
from featurelab.pipelines.engine.sweep.records import as_text, log_values, read_sweep, read_trials
from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.pipelines.engine.verdict.judge import collect, judge_claim
from featurelab.pipelines.engine.verdict.maps.picture import picture
from featurelab.tracking.pages import NOTE
from featurelab.tracking.store.connect import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CELLS = 100
CELLS = "cells.json"  # the artifact with the verdicts of each cell


@dataclass(frozen=True)
class Cell:
    """One setting of a map's axes, and the verdicts on the figure's claims there."""

    config: dict[str, Any]
    verdicts: list[Verdict]


@dataclass(frozen=True)
class Mapped:
    """A map: its cells in the order of its axes, and a picture for each claim."""

    experiment: Experiment
    name: str
    sweep_run_id: str
    trials: list[TrialRecord]
    over: list[str]
    cells: list[Cell]
    figures: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The map as `featurelab map --json` prints it."""
        keys = ("id", "status", "measured", "ci")
        return {
            "name": self.experiment.name,
            "sweep_run_id": self.sweep_run_id,
            "cells": [
                {"config": cell.config, "claims": [{key: getattr(v, key) for key in keys} for v in cell.verdicts]}
                for cell in self.cells
            ],
            "figures": self.figures,
        }

    @property
    def counts(self) -> dict[str, int]:
        """How many verdicts, of all claims in all cells, have each status."""
        statuses = [verdict.status for cell in self.cells for verdict in cell.verdicts]
        return {status: statuses.count(status) for status in STATUSES}


def plan_map(experiment: Experiment, axes: Mapping[str, Axis], scale: Scale, *, name: str = "") -> Plan:
    """Return the plan of a map over listed values; its trials are the figure's grid in each cell, cell after cell.

    Raises `RequestError` for an axis that is no list or that the figure's grid sets, for too many cells or trials, for
    values that the experiment does not accept, and for data that are not on this machine.
    """
    if not experiment.claims:
        raise RequestError(f"{experiment.name} has no claims to map")
    if not axes:
        raise RequestError("a map needs an axis: give some with --over key=VALUES, such as --over lr=0.01,0.1")
    for axis_name, axis in axes.items():
        if not isinstance(axis, Listed):
            raise RequestError(f"{axis_name}={axis}: a map needs listed values, such as {axis_name}=0.01,0.1")
        if axis_name in experiment.varied(scale):
            raise RequestError(f"{axis_name} is set by the grid of {experiment.name}: choose another setting")
    if name:
        check_name(name)
    number = math.prod(len(axis.values) for axis in axes.values() if isinstance(axis, Listed))
    if number > MOST_CELLS:
        raise RequestError(f"a map of {number} cells is too large: it may have {MOST_CELLS}")
    cells = expand({axis_name: axis.values for axis_name, axis in axes.items() if isinstance(axis, Listed)})
    configs: list[Config] = list(dict.fromkeys(c for cell in cells for c in experiment.configs(scale, cell)))
    if len(configs) > MOST_TRIALS:
        raise RequestError(f"a map of {len(configs)} trials is too large: it may have {MOST_TRIALS}")
    require_data(experiment, configs)
    details: dict[str, Any] = {"metric": experiment.metric, "mode": experiment.mode, "name": name}
    return Plan.of(
        experiment, configs, [*axes, *experiment.varied(scale)], scale, kind="map", over=list(axes), **details
    )


def cells_of(plan: Plan) -> list[dict[str, Any]]:
    """The cells of a map, each once, in the order of its trials."""
    return list({as_text(cell): cell for cell in map(plan.cell, plan.configs)}.values())


def estimated_time(plan: Plan) -> str:
    """The time that all trials of a plan are expected to take, as a text."""
    experiment: Experiment = plan.declared
    configs = [plan.config(index) for index in range(len(plan.configs))]
    if plan.scale != "paper":
        return f"about {experiment.minutes_of(configs, plan.scale):.1f} min on two cores"
    if experiment.estimate is None:
        return f"of unknown duration: {experiment.name} declares no cost"
    return f"about {sum(experiment.estimate(config).gpu_hours for config in configs):.3g} GPU-hours"


def judge_map(sweep_run_id: str, store: Store) -> Mapped:
    """Judge every claim in every cell of a map, and store a table of all verdicts and a picture for each claim.

    They replace earlier ones of the same map. Raises `RequestError` for a run that is not a map.
    """
    experiment, plan, tags = read_sweep(store, sweep_run_id)
    if plan.kind != "map":
        raise RequestError(f"{sweep_run_id} is not a map: featurelab judge {sweep_run_id} judges it")
    trials = read_trials(store, experiment.name, sweep_run_id)
    results = collect(trials, store)
    where = [as_text(plan.cell(trial.config)) for trial in trials]
    cells = []
    for config in cells_of(plan):
        inside = np.array([place == as_text(config) for place in where], dtype=bool)
        here = replace(results, trials=results.trials[inside])
        cells.append(Cell(config, [judge_claim(claim, here, plan) for claim in experiment.claims]))
    mapped = Mapped(experiment, tags["sweep"], sweep_run_id, trials, plan.over, cells, [])
    rows = [
        {
            **cell.config,
            **verdict.model_dump(include={"id", "statement", "status", "measured", "ci", "seeds", "reason"}),
        }
        for cell in cells
        for verdict in cell.verdicts
    ]
    stored = [{"config": cell.config, "claims": [v.model_dump() for v in cell.verdicts]} for cell in cells]
    store.log_json(sweep_run_id, stored, CELLS)
    table = pd.DataFrame([{key: _flat(value) for key, value in row.items()} for row in rows])
    store.log_table(sweep_run_id, table, "cells.csv")
    store.log_mlflow_table(sweep_run_id, table, "cells_table.json")
    figures = _draw(mapped, store)
    log_values(store, sweep_run_id, {f"claims/{status}": number for status, number in mapped.counts.items()})
    verdict = ", ".join(f"{number} {status}" for status, number in mapped.counts.items() if number)
    note = map_note(experiment, tags["sweep"], plan.over, len(cells))
    store.set_tags(sweep_run_id, {"verdict": verdict, NOTE: note})
    return replace(mapped, figures=figures)


def picture_name(claim_id: str) -> str:
    """The path, without suffix, of a claim's picture among the artifacts of a map."""
    return f"map_{re.sub(r'[^A-Za-z0-9_-]+', '_', claim_id)}"


def drawn(mapped: Mapped, claim_id: str) -> "Figure":
    """Return the picture of one claim on a map. Raises `RequestError` for a claim that the figure does not have."""
    from featurelab.pipelines.engine.experiment.drawing import style

    by_id = {claim.id: number for number, claim in enumerate(mapped.experiment.claims)}
    if claim_id not in by_id:
        raise unknown(f"claim of {mapped.experiment.name}", claim_id, by_id)
    number = by_id[claim_id]
    title = f"{mapped.experiment.figure}. {mapped.experiment.claims[number].says}"
    verdicts: Sequence[Verdict] = [cell.verdicts[number] for cell in mapped.cells]
    with style():
        return picture(title, mapped.over, [cell.config for cell in mapped.cells], verdicts)


def _draw(mapped: Mapped, store: Store) -> list[str]:
    from featurelab.pipelines.engine.experiment.drawing import style

    figures = []
    for claim in mapped.experiment.claims:
        with style():
            store.log_figure(mapped.sweep_run_id, drawn(mapped, claim.id), picture_name(claim.id))
        figures.append(f"{picture_name(claim.id)}.png")
    return figures


def _flat(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value
