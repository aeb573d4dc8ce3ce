"""The view on a sweep that claims and drawings work on."""

import math

import numpy as np
import pytest
from madeup import results

from featurelab.pipelines.engine.errors import Missing

RATES = (0.1, 0.3)
SPEEDS = ((1.0, 2.0), (3.0, 4.0))
CONFIGS = [
    {"seed": seed, "lr": lr, "decay": decay, "speeds": speeds}
    for lr in RATES
    for decay in (None, 2.0)
    for speeds in SPEEDS
    for seed in (0, 1, 2)
]


def value(config):
    return config["lr"] + 10 * (config["decay"] or 0) + 100 * config["speeds"][0] + 1000 * config["seed"]


@pytest.fixture
def runs():
    return results(
        CONFIGS,
        lambda config: {"loss": {10: value(config), 0: 7.0, 5: -value(config)}, "seed": config["seed"]},
        arrays=lambda config, name: {name: np.full(3, config["seed"])},
    )


def test_trials_are_chosen_by_number_by_none_and_by_tuple(runs):
    assert len(runs.where(lr=0.1).trials) == 12
    assert len(runs.where(decay=None).trials) == 12
    assert len(runs.where(speeds=(3.0, 4.0)).trials) == 12
    one = runs.where(lr=0.3, decay=None, speeds=(1.0, 2.0), seed=2)
    assert len(one.trials) == 1
    assert set(one.curves("loss")) == set(one.trials.run_id)
    assert one.final("loss") == 0.3 + 100 + 2000
    assert len(runs.where(decay=3.0).trials) == 0
    assert len(runs.where().trials) == len(CONFIGS)


def test_the_final_value_is_that_of_the_last_step_whatever_the_order(runs):
    chosen = {"lr": 0.1, "decay": 2.0, "speeds": (3.0, 4.0)}
    assert runs.final("loss", seed=1, **chosen) == 0.1 + 20 + 300 + 1000
    assert runs.final("loss", **chosen) == pytest.approx(0.1 + 20 + 300 + 1000)  # the mean of seeds 0, 1, 2
    assert runs.final("loss") == pytest.approx(np.mean([value(c) for c in CONFIGS]))


def test_the_final_value_weighs_trials_and_not_points():
    curves = {0: {0: 0.0, 1: 1.0, 2: 1.0, 3: 1.0}, 1: {0: 3.0}}
    runs = results([{"seed": 0}, {"seed": 1}], lambda config: {"loss": curves[config["seed"]]})
    assert runs.final("loss") == 2.0


def test_a_curve_that_ends_in_nan_has_no_final_value():
    runs = results([{"seed": 0}, {"seed": 1}], lambda c: {"nfa": {0: 0.5, 1: math.nan if c["seed"] else 0.7}})
    assert runs.final("nfa", seed=0) == 0.7
    assert math.isnan(runs.final("nfa", seed=1))
    assert math.isnan(runs.final("nfa"))
    assert math.isnan(runs.at("nfa", 1))
    assert runs.at("nfa", 0) == 0.5


def test_values_at_a_step_are_averaged_over_trials(runs):
    assert runs.at("loss", 5, seed=0, lr=0.1, decay=None) == pytest.approx(-(0.1 + 200))
    assert runs.at("loss", 0) == 7.0
    with pytest.raises(Missing, match=r"no loss at step 3 with seed = 0"):
        runs.at("loss", 3, seed=0)


def test_curves_have_a_row_a_step_and_a_column_a_trial(runs):
    table = runs.curves("loss", lr=0.1, decay=None)
    assert list(table.index) == [0, 5, 10]
    assert table.shape == (3, 6)
    assert list(runs.curve("loss", lr=0.1, decay=None)) == pytest.approx([7.0, -1200.1, 1200.1])
    assert np.allclose(runs.curve("loss"), runs.curves("loss").mean(axis=1))


def test_arrays_come_one_a_trial_in_the_order_of_the_grid(runs):
    kept = runs.arrays("features", lr=0.1, decay=None, speeds=(1.0, 2.0))
    assert [arrays["features"][0] for arrays in kept] == [0, 1, 2]
    with pytest.raises(Missing, match=r"no finished trial with lr = 9"):
        runs.arrays("features", lr=9)


def test_values_of_a_field_come_in_the_order_of_the_grid(runs):
    assert runs.values("lr") == [0.1, 0.3]
    assert runs.values("decay") == [None, 2.0]
    assert runs.values("speeds") == list(SPEEDS)


def test_results_are_told_apart_by_seed(runs):
    by_seed = dict(runs.by_seed())
    assert list(by_seed) == [0, 1, 2]
    for seed, one in by_seed.items():
        assert set(one.trials.seed) == {seed}
        assert one.final("seed") == seed
    assert list(results([], lambda config: {}).by_seed()) == []


@pytest.mark.parametrize("ended", ["diverged", "failed", "killed", "stopped", "running"])
def test_a_trial_that_did_not_finish_makes_what_it_belongs_to_missing(ended):
    runs = results(
        CONFIGS,
        lambda config: {"loss": 1.0},
        arrays=lambda config, name: {},
        status=lambda config: ended if config["lr"] == 0.3 and config["seed"] == 1 else "finished",
    )
    assert runs.final("loss", lr=0.1) == 1.0
    assert runs.final("loss", lr=0.3, seed=0) == 1.0
    reads = [
        lambda: runs.final("loss", lr=0.3),
        lambda: runs.at("loss", 0, lr=0.3),
        lambda: runs.curves("loss", lr=0.3),
        lambda: runs.curve("loss", lr=0.3),
    ]
    for read in reads:
        with pytest.raises(Missing, match=rf"4 trials {ended} with lr = 0.3"):
            read()
    assert len(runs.arrays("features", lr=0.3)) == 8
    with pytest.raises(Missing, match="no finished trial"):
        runs.arrays("features", lr=0.3, seed=1)


def test_a_metric_that_was_not_recorded_is_missing_and_named(runs):
    for read in (runs.final, runs.curves, runs.curve):
        with pytest.raises(Missing, match=r"no nfa/0 with decay = None"):
            read("nfa/0", decay=None)
    with pytest.raises(Missing, match="no loss with lr = 5"):
        runs.final("loss", lr=5)
