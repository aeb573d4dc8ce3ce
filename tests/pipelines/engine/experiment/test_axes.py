"""The axes of a sweep: parsing, laws and the layout of trials."""

import itertools
import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import Field
from scipy import stats

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.axes import (
    Drawn,
    Listed,
    along,
    among,
    choice,
    expand,
    lay_out,
    loguniform,
    parse_axis,
    randint,
    uniform,
)
from featurelab.pipelines.engine.experiment.config import Config


class Fit(Config):
    lr: float = Field(0.1)
    width: int = Field(64, ge=1)
    weight_decay: float = Field(0.0, ge=0)
    speeds: tuple[float, ...] = (1.0,)
    decay: float | None = None


numbers = st.floats(-1e100, 1e100)
positive = st.floats(1e-300, 1e100)


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(), max_size=4, unique=True), max_size=3))
def test_a_grid_expands_to_the_product_of_its_axes_the_last_fastest(grid):
    points = expand(grid)
    assert [tuple(point.values()) for point in points] == list(itertools.product(*grid.values()))
    assert all(list(point) == list(grid) for point in points)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(), min_size=1, max_size=4, unique=True), max_size=3)
)
def test_along_a_grid_every_value_comes_once_beside_the_first_of_the_other_axes(grid):
    first, *rest = along(grid)
    assert first == {name: values[0] for name, values in grid.items()}
    moved = [[(name, value) for name, value in point.items() if value != first[name]] for point in rest]
    assert moved == [[(name, value)] for name, values in grid.items() for value in values[1:]]


VALUES = {"lr": [0.1, 1, 1.0, 2], "width": [64, 65], "speeds": [(1.0,), [1.0], [2]]}
SOME = st.fixed_dictionaries(
    {}, optional={name: st.lists(st.sampled_from(VALUES[name]), min_size=1, max_size=5) for name in VALUES}
)


@given(SOME, SOME, st.sampled_from([0, 1]))
def test_the_trials_of_a_grid_are_among_others_if_their_configs_are(grid, other, seed):
    bases = Fit(), Fit(seed=seed)
    trials, others = (set(base.each(expand(points))) for base, points in zip(bases, (grid, other), strict=True))
    assert among(bases[0], grid, bases[1], other) is (trials <= others)


def test_trials_of_another_type_are_not_among_others_of_equal_values():
    class Copy(Fit):
        pass

    assert among(Fit(), {"seed": [0]}, Fit(), {"seed": [1, 0]})
    assert not among(Copy(), {"seed": [0]}, Fit(), {"seed": [1, 0]})


def test_fields_that_vary_together_are_not_crossed():
    points = expand({"seed": [0, 1], ("optimizer", "lr"): [("gd", 0.25), ("slo", 0.05)]})
    assert points == [
        {"seed": 0, "optimizer": "gd", "lr": 0.25},
        {"seed": 0, "optimizer": "slo", "lr": 0.05},
        {"seed": 1, "optimizer": "gd", "lr": 0.25},
        {"seed": 1, "optimizer": "slo", "lr": 0.05},
    ]


def test_a_grid_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="zip"):
        expand({("optimizer", "lr"): [("gd",)]})


def test_listed_axes_are_crossed_and_each_crossing_draws_the_others():
    axes = {"width": Listed(("16", "32")), "lr": loguniform(1e-3, 1e-1), "seed": Listed((0, 1, 2))}
    configs = lay_out(Fit(), axes, samples=4, seed=7)
    assert len(configs) == 2 * 3 * 4
    assert sorted({(c.width, c.seed) for c in configs}) == list(itertools.product([16, 32], [0, 1, 2]))
    assert len({c.lr for c in configs}) == 24
    assert all(c.weight_decay == 0 for c in configs)


laws = st.one_of(
    st.tuples(positive, positive).filter(lambda ends: ends[0] < ends[1]).map(lambda ends: loguniform(*ends)),
    st.tuples(numbers, numbers).filter(lambda ends: ends[0] < ends[1]).map(lambda ends: uniform(*ends)),
)


@given(laws, st.integers(0, 2**63 - 1), st.integers(1, 20))
@example(loguniform(5.0, math.nextafter(5.0, 6.0)), 0, 20)  # exp(log(x)) is not always x
def test_every_draw_lies_within_its_bounds_and_repeats_with_the_seed(law, seed, samples):
    configs = lay_out(Fit(), {"lr": law}, samples, seed)
    low, high = law.arguments
    assert all(low <= config.lr <= high for config in configs)
    assert configs == lay_out(Fit(), {"lr": law}, samples, seed)


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(0, 100))
def test_random_integers_leave_out_the_upper_end(low, size, seed):
    law = randint(low, low + size)
    drawn = [config.width for config in lay_out(Fit(), {"width": law}, 10, seed)]
    assert all(low <= width < low + size for width in drawn)


def test_random_integers_may_end_above_what_the_config_takes():
    assert all(config.threads <= 1024 for config in lay_out(Fit(), {"threads": randint(1000, 1025)}, 50, 0))
    with pytest.raises(RequestError, match="threads = 1025"):
        lay_out(Fit(), {"threads": randint(1000, 1026)}, 1, 0)


def test_another_seed_draws_others():
    axes = {"lr": uniform(0, 1)}
    assert lay_out(Fit(), axes, 5, 0) != lay_out(Fit(), axes, 5, 1)


def test_draws_follow_their_laws():
    def draws(law):
        return [config.lr for config in lay_out(Fit(), {"lr": law}, 2000, 0)]

    assert stats.kstest(draws(uniform(-1, 3)), stats.uniform(-1, 4).cdf).pvalue > 1e-3
    assert stats.kstest(draws(loguniform(1e-4, 1e1)), stats.loguniform(1e-4, 1e1).cdf).pvalue > 1e-3
    assert stats.kstest(draws(uniform(1e-4, 1e1)), stats.loguniform(1e-4, 1e1).cdf).pvalue < 1e-3


def test_equal_trials_are_run_once():
    assert len(lay_out(Fit(), {"lr": Listed(("0.1", "1e-1", "0.10"))}, 3, 0)) == 1
    assert len(lay_out(Fit(), {"width": choice(1, 2)}, 200, 0)) == 2
    assert lay_out(Fit(), {}, 5, 0) == [Fit()]


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"lr": Listed(("fast",))}, "lr = 'fast'"),
        ({"width": Listed((8, 0))}, "width = 0"),
        ({"width": randint(0, 5)}, "width = 0"),
        ({"width": choice(8, -1)}, "width = -1"),
        ({"weight_decay": uniform(-1, 1)}, "weight_decay = -1"),
        ({"widht": Listed((1,))}, "did you mean width?"),
        ({"width": uniform(1, 9)}, "width = "),
    ],
)
def test_a_value_that_the_config_refuses_is_a_wrong_request(axes, says):
    with pytest.raises(RequestError, match=says) as error:
        lay_out(Fit(), axes, 3, 0)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("0.1,0.3,1.0", Listed(("0.1", "0.3", "1.0"))),
        (" 1 , 2 ", Listed(("1", "2"))),
        ("gd", Listed(("gd",))),
        ("none,2", Listed((None, "2"))),
        ("[1,2],[3,4]", Listed(([1, 2], [3, 4]))),
        ("loguniform(1e-4,1e-1)", Drawn("loguniform", (1e-4, 1e-1))),
        ("uniform( -1 , 2.5 )", Drawn("uniform", (-1.0, 2.5))),
        ("randint(1,5)", Drawn("randint", (1, 5))),
        ("choice(gd,slo)", Drawn("choice", ("gd", "slo"))),
        ("choice([1,2],[3])", Drawn("choice", ([1, 2], [3]))),
    ],
)
def test_a_domain_is_read_as_written_and_written_as_read(text, axis):
    assert parse_axis(text) == axis
    assert parse_axis(str(axis)) == axis


@given(laws)
def test_a_law_is_read_back_exactly(law):
    assert parse_axis(str(law)) == law


plain = st.text(st.characters(exclude_characters=",()[]", exclude_categories=["Cs", "Z", "C"]), min_size=1, max_size=8)
listed = plain.map(str.strip).filter(bool) | st.lists(st.integers() | plain, max_size=3)


@given(st.lists(listed, min_size=1, max_size=5))
def test_listed_values_are_read_back(values):
    assume(not any(isinstance(v, str) and v.lower() in ("none", "null") for v in values))
    axis = Listed(tuple(values))
    assert parse_axis(str(axis)) == axis


BAD = [
    "",
    " ",
    ",",
    "1,",
    "1,,2",
    "(",
    ")",
    "choice()",
    "choice(1,)",
    "uniform()",
    "uniform(1)",
    "uniform(1,2",
    "uniform(1,2,3)",
    "uniform(2,1)",
    "uniform(1,1)",
    "uniform(a,b)",
    "uniform(nan,1)",
    "uniform(0,inf)",
    "loguniform(0,1)",
    "loguniform(-1,1)",
    "randint(0.5,2)",
    "randint(3,3)",
    "randint(1,1e3)",
    "randint(1," + "9" * 5000 + ")",
    "randint(1," + "9" * 400 + ")",
    "normal(0,1)",
    "LogUniform(1,2)",
    "uniform(1,2)uniform(1,2)",
    "[1,2",
    "[" * 5000,
    "uniform(1,2)\nrandint(1,2)",
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_domain_is_refused_in_one_line(text):
    with pytest.raises(RequestError) as error:
        parse_axis(text)
    assert len(str(error.value).splitlines()) == 1


LAWS = ["choice", "uniform", "loguniform", "randint"]
pieces = st.sampled_from([*LAWS, "(", ")", ",", "[", "]", "1", "-2.5", "1e9", "nan", " ", "\n", "none", "a"])


def or_refused(function, *arguments):
    """The result, or the refusal, which must be one line; anything else that is raised is a fault."""
    try:
        return function(*arguments)
    except RequestError as error:
        refusal = error
    assert len(str(refusal).splitlines()) == 1
    return refusal


@given(st.one_of(st.text(st.characters(), max_size=30), st.lists(pieces, max_size=9).map("".join)))
def test_any_text_is_a_domain_or_refused_in_one_line(text):
    axis = or_refused(parse_axis, text)
    if isinstance(axis, RequestError):
        return
    if isinstance(axis, Drawn) and axis.law != "choice":
        low, high = axis.arguments
        assert math.isfinite(low)
        assert low < high < math.inf
    or_refused(lay_out, Fit(), {"lr": axis}, 2, 0)


def test_laws_built_in_python_are_checked_as_those_on_the_command_line():
    for build in (lambda: loguniform(0, 1), lambda: uniform(2, 1), lambda: choice(), lambda: uniform(0, math.nan)):
        with pytest.raises(RequestError):
            build()
    assert str(choice((1, 2), (3, 4))) == "choice([1, 2],[3, 4])"
