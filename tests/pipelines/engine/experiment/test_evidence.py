"""Intervals of means, medians and shares, and the looks at them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from featurelab.pipelines.engine.experiment.evidence import (
    ERROR,
    LOOKS,
    SHOWN,
    allowed,
    interval,
    looks,
    mean_ends,
    median_ends,
    plain_interval,
    share_ends,
    skewed,
)

ANYWHERE = (-math.inf, math.inf)
spread = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9).filter(lambda v: np.std(v) > 1e-3)


@given(spread)
def test_the_plain_interval_of_a_mean_is_student_s(values):
    expected = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose(plain_interval("mean", values, ANYWHERE), expected, rtol=1e-9, atol=1e-9)


@given(spread)
def test_the_interval_that_decides_covers_student_s_at_its_level(values):
    error = allowed(len(values))
    low, high = interval("mean", values, error, ANYWHERE)
    student = stats.t.interval(1 - error, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    tiny = 1e-9 * np.abs(values).max()
    assert low <= student[0] + tiny
    assert high >= student[1] - tiny


def test_there_is_no_interval_of_one_value_or_of_nan():
    for values in ([1.0], [], [1.0, math.nan], [math.inf, -math.inf]):
        for about in ("mean", "median", "share"):
            assert interval(about, values, ERROR, ANYWHERE) is None
            assert plain_interval(about, values, ANYWHERE) is None


@pytest.mark.parametrize("most", [*LOOKS, 7, 10, 63])
def test_looks_end_at_the_most_seeds_and_share_the_whole_error_more_for_later_ones(most):
    schedule = looks(most)
    assert sum(schedule.values()) == pytest.approx(ERROR)
    assert list(schedule)[-1] == most == max(schedule)
    assert list(schedule.values()) == sorted(schedule.values())
    assert looks(6) == {6: ERROR}


def test_the_interval_has_the_probability_of_hall_s_transformed_t_at_its_ends():
    for seed in range(20):
        x = np.random.default_rng(seed).exponential(size=12)
        low, high = skewed(x, 0.05)
        plain = plain_interval("mean", list(x), ANYWHERE)
        skew, quantile = SHOWN * stats.skew(x, bias=False), stats.t.ppf(0.975, 11)

        def transformed(mean, x=x, skew=skew):
            root, t = np.sqrt(12), (x.mean() - mean) / stats.sem(x)
            return t + skew * t**2 / (3 * root) + skew**2 * t**3 / 27 / 12 + skew / (6 * root)

        for end, student, z in ((low, plain[0], quantile), (high, plain[1], -quantile)):
            assert end == pytest.approx(student) or transformed(end) == pytest.approx(z)
        assert low <= plain[0] < plain[1] <= high


@pytest.mark.parametrize("n", [3, 6, 16])
def test_equal_values_allow_for_as_many_others_as_they_do_not_exclude(n):
    assert interval("mean", [2.0] * n, ERROR, ANYWHERE) is None, "zero width decides nothing"
    error = allowed(n)
    low, high = interval("mean", [0.75] * n, error, (0.0, 1.0))
    others = (0.75 - low) / 0.75
    assert others == pytest.approx((high - 0.75) / 0.25), "the same share at either end of the range"
    assert (1 - others) ** n == pytest.approx(error / 2), "so many others would show with probability 1 - error / 2"
    assert interval("mean", [0.75] * n, error, (0.0, math.inf)) == [pytest.approx(low), math.inf]
    nearly = [0.75, *[0.75 * (1 + 1e-15)] * (n - 1)]
    assert interval("mean", nearly, error, (0.0, 1.0)) == pytest.approx([low, high]), "rounding is no spread"


@pytest.mark.parametrize("n", [5, 6, 8, 12, 16, 33, 64])
@pytest.mark.parametrize("error", [0.05, 0.01])
def test_the_interval_of_a_median_is_the_narrowest_whose_ends_are_values_and_which_misses_it_seldom_enough(n, error):
    values = np.arange(1.0, n + 1)
    low, high = median_ends(values[::-1].copy(), error, ANYWHERE)
    below = np.random.default_rng(0).binomial(n, 0.5, 200_000)  # how many of n values lie below the median

    def misses(end):  # the interval from the end-th smallest value to the end-th largest
        return (below < end).mean() + (below > n - end).mean()

    if not np.isfinite(low):
        assert misses(1) > error
        return
    assert (low, high) == (low, n + 1 - low)
    assert misses(low) < error + 0.002
    assert misses(low + 1) > error - 0.002


@given(st.integers(1, 40), st.integers(0, 40))
def test_the_interval_of_a_share_is_clopper_s_and_pearson_s(n, ones):
    ones = min(n, ones)
    expected = stats.binomtest(ones, n).proportion_ci(1 - ERROR, method="exact")
    low, high = share_ends(np.array([1.0] * ones + [0.0] * (n - ones)), ERROR)
    assert (low, high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_intervals_of_many_rows_are_those_of_each():
    rows = np.random.default_rng(0).exponential(size=(20, 12)).round(1)
    rows[3] = 1.0
    for ends in (mean_ends, median_ends, share_ends):
        low, high = ends(rows if ends is not share_ends else 1.0 * (rows > 1), 0.02, (0.0, 9.0))
        for row in range(20):
            one = rows[row] if ends is not share_ends else 1.0 * (rows[row] > 1)
            assert (low[row], high[row]) == pytest.approx(tuple(map(float, ends(one, 0.02, (0.0, 9.0)))))
