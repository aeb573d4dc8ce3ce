"""Intervals, and decisions as seeds are added: how often they are false."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from featurelab.pipelines.engine.experiment.evidence import ERROR, LOOKS, look_interval, share, skewed, t_interval


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9).filter(lambda v: np.std(v) > 1e-6))
def test_the_interval_is_student_s(values):
    expected = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose(t_interval(values), expected, rtol=1e-9, atol=1e-9)


def test_there_is_no_interval_of_one_value_or_of_nan():
    for values in ([1.0], [], [1.0, math.nan], [math.inf, -math.inf]):
        assert t_interval(values) is None
    assert t_interval([2.0, 2.0]) == [2.0, 2.0]
    assert look_interval([1.0] * 5) is None
    assert look_interval([1.0] * 5 + [math.nan]) is None
    assert look_interval([2.0] * 6) == [2.0, 2.0]


def test_looks_share_the_error():
    assert sum(map(share, LOOKS)) == pytest.approx(1)


def test_between_two_looks_the_earlier_one_counts():
    values = list(np.random.default_rng(0).standard_normal(9))
    assert look_interval(values) == look_interval(values[:8]) != look_interval(values[:6])


def test_the_interval_of_a_look_has_the_probability_of_hall_s_transformed_t_at_its_ends():
    for seed in range(20):
        x = np.random.default_rng(seed).exponential(size=12)
        low, high = skewed(x, 0.05)
        plain = t_interval(list(x))
        skew, quantile = stats.skew(x, bias=False), stats.t.ppf(0.975, 11)

        def transformed(mean, x=x, skew=skew):
            root, t = np.sqrt(12), (x.mean() - mean) / stats.sem(x)
            return t + skew * t**2 / (3 * root) + skew**2 * t**3 / 27 / 12 + skew / (6 * root)

        for end, student, z in ((low, plain[0], quantile), (high, plain[1], -quantile)):
            assert end == pytest.approx(student) or transformed(end) == pytest.approx(z)
        assert low <= plain[0] < plain[1] <= high


DRAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape) - 0.5,
    "skewness 1": lambda rng, shape: rng.gamma(4, size=shape) - 4,
    "skewness 2": lambda rng, shape: rng.exponential(size=shape) - 1,
    "lognormal, skewness 1.75": lambda rng, shape: rng.lognormal(0, 0.5, size=shape) - math.exp(0.125),
    "t with 3 degrees of freedom": lambda rng, shape: rng.standard_t(3, size=shape),
}


def false_decisions(draw, samples, seed=0):
    """How often, with the mean just on the other side of a bound, looks find all of the interval beyond: up, down."""
    values = draw(np.random.default_rng(seed), (samples, LOOKS[-1]))
    decided = np.zeros(samples)
    for look in LOOKS:
        low, high = skewed(values[:, :look], ERROR * share(look))
        decided = np.where(decided == 0, 1.0 * (low > 0) - 1.0 * (high < 0), decided)
    return (decided > 0).mean(), (decided < 0).mean()


@pytest.mark.parametrize("seeds", DRAWS)
def test_fewer_than_one_decision_in_twenty_is_false_however_often_one_looks(seeds):
    assert max(false_decisions(DRAWS[seeds], 20_000)) < 0.05


def test_a_clear_effect_is_decided_after_few_seeds():
    values = np.random.default_rng(0).standard_normal((2_000, LOOKS[-1])) + 1
    decided = [(skewed(values[:, :look], ERROR * share(look))[0] > 0).mean() for look in LOOKS]
    assert decided[LOOKS.index(24)] > 0.9
