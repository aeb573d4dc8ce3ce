"""One optimiser step, and every measure, of every figure at the paper's widths and dimensions."""

import functools

import numpy as np
import pytest
from agreeing import EXPERIMENTS, sweep
from matplotlib.figure import Figure
from publicfiles import public_images  # noqa: F401

from featurelab.pipelines.engine.errors import Missing
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.trial.run import perform
from featurelab.pipelines.engine.verdict.check import MemoryRecorder

# Fewer samples, or fewer networks to average over; nothing that a network is made of.
SMALLER = {
    "alignment_reversal": {"networks": 1, "balance": 0.25},  # one balance: each takes seconds
    "mean_kernel_quadratic": {"networks": 2, "observed": 2},
    "mean_kernel_relu": {"networks": 2, "observed": 2},
    "face_features": {"n_train": 8, "epochs": 1},
    "street_numbers": {"n_train": 32, "n_test": 16, "epochs": 1},
    "mlp_on_images": {"n_train": 20, "n_test": 10, "n_measured": 10, "epochs": 1, "measure_every": 1},
    "cnn_on_images": {"n_train": 20, "n_test": 10, "n_measured": 10, "epochs": 1, "measure_every": 1},
    "identities": {"monte_carlo": 2000},
}


pytestmark = pytest.mark.usefixtures("public_images")


def read_by_the_figure(name):
    """The metrics that claims and drawing of the paper's grid read, and the arrays as (name, part)."""
    experiment, made_up = EXPERIMENTS[name], sweep(name, "paper")
    metrics, arrays = set(), set()

    def read(metric):
        metrics.add(metric)
        return made_up.read(metric)

    class Parts(dict):
        def __init__(self, array, parts):
            super().__init__(parts)
            self.array = array

        def __getitem__(self, part):
            arrays.add((self.array, part))
            return super().__getitem__(part)

    watched = Results(made_up.trials, read, lambda run, array: Parts(array, made_up.load(run, array)))
    for claim in experiment.claims:
        claim.judge(watched)
    try:
        figure = unlaid(experiment.drawing, watched)
    except Missing as gap:
        raise AssertionError(gap) from None
    assert all(axis.has_data() for axis in figure.axes)
    return metrics, arrays


def unlaid(drawing, watched):
    """The figure drawn, but not laid out: that takes longer, and reads nothing."""
    figure = Figure(figsize=drawing.size)
    drawing.draw(watched, figure.subplots(drawing.rows, drawing.cols, squeeze=False))
    return figure


def smaller(name, config):
    fields = type(config).model_fields
    return config.but(**({"steps": 1} if "steps" in fields else {}), **SMALLER.get(name, {}))


def ends(name):
    """The first and the last point of the paper's grid, of one seed: both optimisers, targets, widths."""
    configs = EXPERIMENTS[name].configs("paper")
    return list(dict.fromkeys(smaller(name, config.but(seed=0)) for config in (configs[0], configs[-1])))


@functools.cache
def kept_of(name, config):
    kept = MemoryRecorder()
    perform(EXPERIMENTS[name], config, kept)
    return kept


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_paper_trial_records_all_that_its_figure_reads(name):
    metrics, arrays = read_by_the_figure(name)
    assert metrics
    for config in ends(name):
        kept = kept_of(name, config)
        assert metrics <= set(kept.curves), metrics - set(kept.curves)
        assert arrays <= {(array, part) for array, parts in kept.arrays.items() for part in parts}
        assert all(np.isfinite(list(curve.values())).all() for curve in kept.curves.values())
        assert len(kept.digest) == 32
        preset = EXPERIMENTS[name].paper
        if kept.weights:
            assert max(w.shape[0] for w in kept.weights.values()) == config.width
            assert {size: getattr(config, size, None) for size in ("dim", "hidden")} == {
                size: getattr(preset, size, None) for size in ("dim", "hidden")
            }


@pytest.mark.parametrize(("name", "inputs"), [("face_features", 96 * 96 * 3), ("street_numbers", 32 * 32 * 3)])
def test_paper_presets_on_images_see_whole_pictures(name, inputs):
    kept = kept_of(name, ends(name)[0])
    assert max(w.shape[1] for w in kept.weights.values()) == inputs
    side = {"face_features": 96, "street_numbers": 32}[name]
    assert all(image.shape == (side, side) for image in kept.arrays["diagonals"].values())
    assert kept.entries[0]["dataset"]["profile"]["dim"] == inputs
