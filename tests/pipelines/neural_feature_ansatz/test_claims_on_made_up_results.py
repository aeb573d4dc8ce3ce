"""Each claim holds on measurements that agree with it, fails on such that contradict it, and reads nothing else."""

import numpy as np
import pytest
from agreeing import MEASURED
from madeup import Results, results
from matplotlib.figure import Figure

from pipelines import registry
from pipelines.axes import expand
from pipelines.drawing import style
from pipelines.experiment import SCALES

EXPERIMENTS = {e.name.partition("/")[2]: e for e in registry.experiments("neural_feature_ansatz")}
each = pytest.mark.parametrize("name", EXPERIMENTS)
at_each_scale = pytest.mark.parametrize("scale", SCALES)


def curve(value):
    """The metric by step; a pair is that at step 10 and that at the end."""
    early, final = value if isinstance(value, tuple) else (value, value)
    return {0: early, 10: early, 800: final}


def sweep(name, scale="laptop", *, agree=True, keep=lambda config: True) -> Results:
    configs = [config.model_dump() for config in EXPERIMENTS[name].configs(scale)]
    return results(
        [config for config in configs if keep(config)],
        lambda config: {metric: curve(v) for metric, v in MEASURED[name](config, agree).items()},
        arrays=lambda config, array: {m: np.eye(8) for m in ("nfm", "agop", "egop", "control")},
    )


def verdicts(name, runs):
    return {claim.id: claim.judge(runs) for claim in EXPERIMENTS[name].claims}


def only_at_laptop_scale(name, claim_id):
    return (name, claim_id) == ("street_numbers", "c34c_faster_first_layer")  # a run that the paper does not have


def test_every_experiment_has_made_up_measurements():
    assert set(MEASURED) == set(EXPERIMENTS)


@each
@at_each_scale
def test_every_claim_holds_on_results_that_agree_with_it(name, scale):
    for id, verdict in verdicts(name, sweep(name, scale)).items():
        if scale == "paper" and only_at_laptop_scale(name, id):
            assert verdict.status == "untested"
            continue
        assert verdict.status == "holds", (id, verdict.measured, verdict.reason)


@each
@at_each_scale
def test_every_claim_fails_on_results_that_contradict_it(name, scale):
    for id, verdict in verdicts(name, sweep(name, scale, agree=False)).items():
        if scale == "paper" and only_at_laptop_scale(name, id):
            continue
        assert verdict.status == "fails", (id, verdict.measured, verdict.reason)
        parts = {"": verdict.measured} if isinstance(verdict.measured, float) else verdict.measured
        bounds = next(claim for claim in EXPERIMENTS[name].claims if claim.id == id).expect
        bounds = bounds if isinstance(bounds, dict) else {"": bounds}
        assert set(parts) == set(bounds)
        assert not any(bounds[part].holds(value) for part, value in parts.items()), "every part can fail by itself"


def random_sweep(name, keep=lambda config: True):
    """Every metric random in every trial: eight seeds, so that a value that a claim reads is seen to matter."""
    experiment = EXPERIMENTS[name]
    points = expand({**experiment.grid, "seed": range(8)})
    configs = [experiment.laptop.but(**point).model_dump() for point in points]

    def measured(config):
        rng = np.random.default_rng(list(repr(sorted(config.items(), key=str)).encode()))
        return {metric: {0: rng.random(), 10: rng.random(), 800: rng.random()} for metric in MEASURED[name](config, True)}

    return results([config for config in configs if keep(config)], measured)


def values_of_axes(name):
    """Each value of each axis of the figure but the seed, as the config fields that have it."""
    for key, values in EXPERIMENTS[name].grid.items():
        for value in values if key != "seed" else []:
            yield {key: value} if isinstance(key, str) else dict(zip(key, value, strict=True))


def has(config, fields):
    return all(config[field] == value for field, value in fields.items())


@each
def test_no_claim_is_judged_on_a_constant(name):
    for claim in EXPERIMENTS[name].claims:
        measured = [claim.measure(runs) for _, runs in random_sweep(name).by_seed()]
        parts = [m if isinstance(m, dict) else {"": m} for m in measured]
        for part in parts[0]:
            assert len({round(seed[part], 12) for seed in parts}) == len(parts), (claim.id, part)


@each
def test_a_claim_is_untested_where_trials_that_it_reads_are_missing(name):
    full = verdicts(name, random_sweep(name))
    for fields in values_of_axes(name):
        for id, verdict in verdicts(name, random_sweep(name, lambda c, f=fields: not has(c, f))).items():
            assert verdict.status == "untested" or verdict.measured == full[id].measured, (id, fields, verdict)


@each
def test_a_sweep_of_one_point_leaves_every_comparison_untested(name):
    points = list(values_of_axes(name))
    if not points:
        pytest.skip("the figure varies the seed alone")
    preset = EXPERIMENTS[name].configs("laptop")[0].model_dump(exclude={"seed"})
    for id, verdict in verdicts(name, sweep(name, keep=lambda config: has(config, preset))).items():
        assert verdict.status == "untested", id


@each
@at_each_scale
def test_every_figure_is_drawn_and_every_panel_shows_something(name, scale):
    experiment = EXPERIMENTS[name]
    drawing = experiment.drawing
    with style():
        figure = Figure(figsize=drawing.size, layout="constrained")
        axes = figure.subplots(drawing.rows, drawing.cols, squeeze=False)
        drawing.draw(sweep(name, scale), axes)
        figure.draw_without_rendering()
    assert figure.axes
    assert all(axis.has_data() and axis.get_title() for axis in figure.axes)
