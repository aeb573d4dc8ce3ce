"""Figures at small sizes, judged and drawn from what their trials really recorded: no store, no Ray."""

from typing import Any

from featurelab.pipelines.engine.experiment.axes import expand
from featurelab.pipelines.engine.experiment.config import Config, Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.verdict.check import drawn, performed, shuffled


def small(experiment: Experiment, scale: Scale = "laptop", **sizes: Any) -> list[Config]:
    """The trials of the figure's grid with these sizes in place of the preset's."""
    preset = experiment.preset(scale)
    points = expand(experiment.grid_of(scale))
    return [preset.but(**(point | {k: v for k, v in sizes.items() if k not in point})) for point in points]


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
