"""Each claim holds on measurements that agree with it, fails on such that contradict it, and reads nothing else."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from agreeing import EXPERIMENTS, MEASURED, sweep
from madeup import results, seed_by_seed

from featurelab.pipelines.engine.experiment.axes import expand
from featurelab.pipelines.engine.experiment.bounds import Bound
from featurelab.pipelines.engine.experiment.results import Results

each = pytest.mark.parametrize("name", EXPERIMENTS)
at_each_grid = pytest.mark.parametrize(
    ("name", "scale"),
    [(name, scale) for name, e in EXPERIMENTS.items() for scale in e.scales if scale != "paper" or e.paper_grid],
)


@functools.cache
def random_sweep(name) -> Results:
    """Every metric random in every trial, so that a value that a claim reads is seen to matter."""
    rng = np.random.default_rng(0)
    points = expand({**EXPERIMENTS[name].grid, "seed": range(3)})
    return results(
        [EXPERIMENTS[name].laptop.but(**point).model_dump() for point in points],
        lambda config: {m: {step: rng.random() for step in (0, 10, 800)} for m in MEASURED[name](config, True)},
    )


def ends_of_axes(name):
    """The first and the last value of each axis of the figure but the seed, as the config fields that have it."""
    for key, values in EXPERIMENTS[name].grid.items():
        for value in (values[0], values[-1]) if key != "seed" else []:
            yield {key: value} if isinstance(key, str) else dict(zip(key, value, strict=True))


def only(runs, fields, *, without=False):
    """The trials that have all these values, or the others."""
    chosen = np.ones(len(runs.trials), dtype=bool)
    for field, value in fields.items():
        chosen &= np.array([v == value for v in runs.trials[field]])
    return replace(runs, trials=runs.trials[~chosen if without else chosen])


def verdicts(name, runs):
    return {claim.id: seed_by_seed(claim).judge(runs) for claim in EXPERIMENTS[name].claims}


def test_every_experiment_has_made_up_measurements():
    assert set(MEASURED) == set(EXPERIMENTS)


@at_each_grid
def test_every_claim_holds_on_results_that_agree_with_it(name, scale):
    for id, verdict in verdicts(name, sweep(name, scale)).items():
        assert verdict.status == "holds", (id, verdict.measured, verdict.reason)


@each
def test_every_part_of_every_claim_fails_on_results_that_contradict_it(name):
    for id, verdict in verdicts(name, sweep(name, agree=False)).items():
        assert verdict.status == "fails", (id, verdict.measured, verdict.reason)
        parts = {"": verdict.measured} if isinstance(verdict.measured, float) else verdict.measured
        expect = next(claim for claim in EXPERIMENTS[name].claims if claim.id == id).expect
        bounds = {"": expect} if isinstance(expect, Bound) else expect
        assert set(parts) == set(bounds)
        assert not any(bounds[part].holds(value) for part, value in parts.items()), (id, parts)


@each
def test_a_claim_is_untested_where_trials_that_it_reads_are_missing(name):
    everything = random_sweep(name)
    full = verdicts(name, everything)
    for fields in ends_of_axes(name):
        for id, verdict in verdicts(name, only(everything, fields, without=True)).items():
            assert verdict.status == "untested" or verdict.measured == full[id].measured, (id, fields, verdict)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if list(ends_of_axes(name))])
def test_a_sweep_of_one_point_leaves_every_comparison_untested(name):
    preset = EXPERIMENTS[name].configs("laptop")[0].model_dump(exclude={"seed"})
    runs = only(sweep(name), preset)
    assert len(runs.trials) >= 3
    _, everything = next(sweep(name).by_seed())
    for claim in EXPERIMENTS[name].claims:
        read: set[str] = set()
        claim.measure(replace(everything, looked_at=read))
        compares = not read <= set(runs.trials.run_id)
        assert (claim.judge(runs).status == "untested") == compares, claim.id
