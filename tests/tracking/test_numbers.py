"""Numbers in tables are short, and distinguishable if they differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from featurelab.tracking.numbers import interval, measurement, named, number, numbers_of

finite = st.floats(-1e300, 1e300)


def test_a_number_alone_has_four_digits():
    values = (0.123456, 1e-7, 1_500_000, 64.0, True, None, float("nan"), float("-inf"), "as printed")
    assert [number(value) for value in values] == [
        *("0.1235", "1e-07", "1500000", "64", "True", "-", "nan", "-inf", "as printed")
    ]
    assert number([0.1, 2]) == "0.1, 2"
    assert number({"layer 1": 0.5, "layer 2": [1, 2.0]}) == "layer 1: 0.5, layer 2: 1, 2"


def test_a_number_gets_the_digits_that_distinguish_it_from_its_neighbours():
    assert number(0.96949, [0.9695]) == "0.96949"
    assert number(1 - 1e-9, [1.0]) == "0.999999999"
    assert number(0.96949, [0.96949, 0.5]) == "0.9695"
    assert number(1 - 1e-15, [1.0]) == "1"  # 12 digits are the most
    assert interval([0.99999, 1.0]) == "0.99999 to 1"
    assert interval({"a": [0.1, 0.25], "b": None}) == "a: 0.1 to 0.25, b: -"


@given(finite, st.lists(finite, max_size=4))
def test_a_written_number_stays_on_its_side_of_every_bound(value, bounds):
    bounds = [float(f"{bound:.12g}") for bound in bounds]  # as bounds are written
    written = float(number(value, bounds))
    assert written == pytest.approx(value, rel=1e-3)
    for bound in bounds:
        if f"{value:.12g}" != f"{bound:.12g}":
            assert (written < bound) == (value < bound)


def test_a_measured_value_its_interval_and_its_bounds_are_distinguishable():
    assert measurement(1.0, [0.9999999995, 1.0], "> 0.999999999") == ({"": "1"}, {"": "0.9999999995 to 1"})
    values, intervals = measurement({"a": 0.50001, "b": 2.0}, {"a": [0.5, 0.50002], "b": None}, {"a": "≥ 0.5"})
    assert values == {"a": "0.50001", "b": "2"}
    assert intervals == {"a": "0.5 to 0.50002"}
    assert named(values) == "a: 0.50001, b: 2"
    assert measurement(None, None, "≥ 0.5") == ({}, {})
    assert named({}) == "-"


def test_numbers_are_found_in_the_text_of_bounds():
    assert numbers_of("-4.9 to 6.9e-05") == [-4.9, 6.9e-05]
    assert numbers_of({"layer 1": "≥ 0.5", "layer 2": None}) == [0.5]
    assert numbers_of("conv2 of 3x3") == []
    assert numbers_of([float("nan"), "9" * 999, 1]) == [1]
