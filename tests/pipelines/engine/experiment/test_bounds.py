"""Bounds: what holds within them, how far from them a value lies, and how they are written."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from featurelab.pipelines.engine.experiment.bounds import above, at_least, at_most, below, between

finite = st.floats(-1e100, 1e100)


@given(finite, finite)
def test_bounds_are_closed_unless_strict(value, limit):
    assert at_least(limit).holds(value) == (value >= limit)
    assert at_most(limit).holds(value) == (value <= limit)
    assert above(limit).holds(value) == (value > limit)
    assert below(limit).holds(value) == (value < limit)


@given(finite, finite)
def test_a_margin_is_negative_outside_of_bounds_alone(value, limit):
    for bound in (at_least(limit), at_most(limit), between(limit, math.inf)):
        assert (bound.margin(value) >= 0) == bound.holds(value)
    assert between(0, 10).margin(3) == 3
    assert between(0, 10).margin(12) == -2


@given(st.lists(finite, min_size=2, max_size=2).map(sorted), finite)
def test_an_interval_holds_its_ends(ends, value):
    low, high = ends
    bound = between(low, high)
    assert bound.holds(low)
    assert bound.holds(high)
    assert bound.holds(value) == (low <= value <= high)


@pytest.mark.parametrize("bound", [at_least(-1), at_most(1), above(-1), below(1), between(-1, 1)])
def test_no_bound_holds_nan(bound):
    assert bound.holds(0.0)
    assert not bound.holds(math.nan)


def test_bounds_are_written_as_papers_write_them():
    written = [str(b) for b in (at_least(0.5), at_most(1e-10), above(0), below(2), between(4.9, 6.9))]
    assert written == ["≥ 0.5", "≤ 1e-10", "> 0", "< 2", "4.9 to 6.9"]
