"""Trials in this process, judged and drawn from what they really recorded: no store, no Ray."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from keeping import Kept
from madeup import Table
from matplotlib.figure import Figure

from featurelab.modules.learners import Diverged
from featurelab.pipelines.engine.experiment.axes import expand
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.drawing import style
from featurelab.pipelines.engine.experiment.experiment import Experiment, Scale
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.trial.run import perform
from featurelab.tracking.outbox.record import Diverged as NotFinite


def small(experiment: Experiment, scale: Scale = "laptop", **sizes: Any) -> list[Config]:
    """The trials of the figure's grid with these sizes in place of the preset's."""
    preset = experiment.preset(scale)
    points = expand(experiment.grid_of(scale))
    return [preset.but(**(point | {k: v for k, v in sizes.items() if k not in point})) for point in points]


def performed(experiment: Experiment, configs: Iterable[Config], say: Any = None) -> Results:
    """Run these trials one after another, and see their results as claims and drawings would."""
    rows: list[dict[str, Any]] = []
    points: list[tuple[str, str, int, float]] = []
    arrays: dict[str, dict[str, Mapping[str, Any]]] = {}
    for index, config in enumerate(configs):
        kept, run_id, status = Kept(), f"run{index}", "finished"
        try:
            perform(experiment, config, kept)
        except (Diverged, NotFinite):
            status = "diverged"
        rows.append({"run_id": run_id, "status": status, **config.model_dump()})
        points += [(run_id, name, step, value) for name, curve in kept.curves.items() for step, value in curve.items()]
        arrays[run_id] = {
            name: {part: np.asarray(value) for part, value in parts.items()} for name, parts in kept.arrays.items()
        }
        if say is not None:
            say(index, config, kept, status)
    frame = pd.DataFrame(rows, dtype=object)
    return Results(
        frame,
        Table(pd.DataFrame(points, columns=["run_id", "metric", "step", "value"])),
        lambda run_id, name: arrays[run_id][name],
    )


def recorded(results: Results) -> pd.DataFrame:
    """Everything that trials of `performed` recorded: `run_id`, `metric`, `step`, `value`."""
    assert isinstance(results.read, Table)
    return results.read.points


def shuffled(results: Results, seed: int = 0) -> Results:
    """The same trials with random numbers in place of everything measured."""
    rng = np.random.default_rng(seed)

    def load(run_id: str, name: str) -> Mapping[str, np.ndarray]:
        return {
            part: rng.random(value.shape) if value.dtype.kind == "f" else value
            for part, value in results.load(run_id, name).items()
        }

    points = recorded(results)
    return replace(results, read=Table(points.assign(value=rng.random(len(points)))), load=load)


def drawn(experiment: Experiment, results: Results) -> Figure:
    """The figure, as `reproduce` would draw it."""
    drawing = experiment.drawing
    assert drawing is not None
    with style():
        figure = Figure(figsize=drawing.size, layout="constrained")
        drawing.draw(results, figure.subplots(drawing.rows, drawing.cols, squeeze=False))
        figure.suptitle(f"{experiment.figure}. {experiment.title}")
        figure.draw_without_rendering()
    return figure


def check_figure(experiment: Experiment, scale: Scale = "laptop", **sizes: Any) -> Results:
    """Run the grid small: every claim can be measured, none is a constant, and the figure can be drawn."""
    results = performed(experiment, small(experiment, scale, **sizes))
    drawn(experiment, results)
    verdicts = {claim.id: claim.judge(results) for claim in experiment.claims}
    others = {claim.id: claim.judge(shuffled(results)) for claim in experiment.claims}
    for name, verdict in verdicts.items():
        assert verdict.measured is not None, f"{name}: {verdict.reason}"
        assert others[name].measured != verdict.measured, f"{name} does not depend on what was measured"
    return results
