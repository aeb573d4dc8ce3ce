"""The marks of an interval plot: in the order of their values, within the plot, and none where nothing is known."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from featurelab.tracking.report.intervals import WIDTH, Plot, plots

NUMBERS = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-9)


def of(measured: float, **given: Any) -> Plot:
    return plots(measured, **given)[""]


@given(st.lists(NUMBERS, min_size=5, max_size=5, unique=True))
def test_marks_lie_in_the_order_of_their_values(values: list[float]) -> None:
    low, bound, value, paper, high = sorted(values)
    plot = of(value, ci=[low, high], expected=f"≥ {bound!r}", paper=paper)
    assert plot.interval
    assert plot.required
    assert plot.paper is not None
    marks = [plot.interval[0], plot.required[0], plot.value, plot.paper, plot.interval[1]]
    assert marks == sorted(marks)
    assert 0 <= marks[0] <= marks[-1] <= WIDTH
    assert plot.required[1] == WIDTH


def test_the_ground_is_where_the_claim_holds() -> None:
    assert of(1.0, expected="≤ 2").required == (0.0, of(2.0, expected="≤ 2", ci=[1.0, 2.0]).value)
    inside = of(0.9, expected="0.86 to 0.97")
    assert inside.required
    assert inside.required[0] < inside.value < inside.required[1]
    below = of(0.5, expected="0.86 to 0.97")
    assert below.required
    assert below.value < below.required[0]
    share = of(0.5, expected="≥ 3 in at least 80% of seeds")
    assert share.required
    assert share.value < share.required[0] < share.required[1] == WIDTH
    assert of(0.5, expected="about a half").required is None


def test_each_part_has_its_own_marks() -> None:
    drawn = plots(
        {"a": 1.0, "b": 100.0, "c": "text", "d": math.nan},
        ci={"a": [0.5, 1.5], "b": None},
        expected={"a": "> 0", "b": "> 0"},
        paper={"a": "0.7"},
        under={"untrained": {"a": 0.1}},
    )
    assert list(drawn) == ["a", "b"]
    assert drawn["a"].interval
    assert drawn["b"].interval is None
    assert (drawn["a"].paper is None, drawn["b"].paper) == (False, None)
    assert [name for name, _ in drawn["a"].under] == ["untrained"]
    assert drawn["b"].under == ()


def test_values_of_many_sizes_get_a_logarithmic_axis() -> None:
    exact = of(1e-15, expected="≤ 1e-09")
    assert exact.log
    assert exact.required
    assert exact.required[0] == 0 < exact.value < exact.required[1]
    assert not of(0.5, expected="≤ 1").log


def test_the_deciding_interval_is_drawn_where_it_is_another() -> None:
    assert of(0.5, ci=[0.4, 0.6], deciding=[0.4, 0.6]).deciding is None
    wider = of(0.5, ci=[0.4, 0.6], deciding=[0.3, 0.7])
    assert wider.deciding
    assert wider.interval
    assert wider.deciding[0] < wider.interval[0] < wider.interval[1] < wider.deciding[1]
