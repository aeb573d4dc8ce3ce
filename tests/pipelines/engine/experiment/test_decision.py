"""What values decide about a mean, a median, a share or the absence of an effect, and what a control does."""

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from featurelab.pipelines.engine.experiment.bounds import above, at_least, at_most, between
from featurelab.pipelines.engine.experiment.decision import Rule

ANYWHERE = (-math.inf, math.inf)

sys.path.append(str(Path(__file__).parents[4] / "docs"))
power = importlib.import_module("power")


def column(values):
    return [{"": float(value)} for value in values]


def rule(bound, about="mean", within=ANYWHERE, least=None):
    return Rule(about, {"": bound} if not isinstance(bound, dict) else bound, within, exact=False, least=least)


def test_decisions_are_those_that_the_simulation_counts():
    values = np.random.default_rng(0).exponential(size=(300, 16)) - 0.6
    for most, schedule in ((None, power.FIXED["6 seeds"]), (16, power.ADDED["`--most-seeds 16`"])):
        verdicts, seeds = power.decided(values, schedule)
        for row, verdict, number in zip(values, verdicts, seeds, strict=True):
            decision = rule(above(0)).decide(column(row[: max(schedule)]), most)
            assert decision.status == {1: "holds", -1: "fails", 0: "undecided"}[verdict]
            assert decision.seeds == number


@pytest.mark.parametrize("law", power.LAWS)
@pytest.mark.parametrize("schedule", ["3 seeds", "6 seeds", "`--most-seeds 16`", "`--most-seeds 256`"])
def test_at_most_one_decision_in_twenty_is_false_whatever_the_law_and_however_often_one_looks(law, schedule):
    draw, _ = power.LAWS[law]
    assert power.false_decisions(draw, power.SCHEDULES[schedule], 10_000) < 0.05 + 3 * (0.05 / 10_000) ** 0.5


def test_an_effect_of_one_standard_deviation_is_mostly_decided_within_sixteen_seeds_and_often_with_six():
    draw, _ = power.LAWS["normal"]
    assert power.power(draw, 1.0, power.ADDED["`--most-seeds 16`"], 4_000)[0] > 0.8
    assert power.power(draw, 1.0, power.ADDED["`--most-seeds 6`"], 4_000)[0] > 0.3


def test_equal_values_decide_a_mean_only_where_the_range_leaves_no_doubt():
    assert rule(at_least(0.5)).decide(column([1.0] * 16)).status == "undecided"
    assert rule(at_least(0.5), within=(0, 1)).decide(column([1.0] * 16)).status == "holds"
    assert rule(at_least(0.9), within=(0, 1)).decide(column([1.0] * 16)).status == "undecided"
    assert rule(at_most(0.1), within=(0, 1)).decide(column([1.0] * 16)).status == "fails"
    assert Rule("mean", {"": at_least(1)}, ANYWHERE, exact=True).decide(column([1.0] * 3)).status == "holds"


def test_a_median_is_decided_by_the_order_of_values_and_takes_an_outlier():
    values = [1.0, 1.1, 1.2, 1.25, 1.3, 1.35, 1.4, 1.5, -1000.0]
    assert rule(above(0)).decide(column(values)).status == "undecided"
    decision = rule(above(0), about="median").decide(column(values))
    assert (decision.status, decision.measured) == ("holds", {"": pytest.approx(1.25)})
    assert decision.deciding[""] == [1.0, 1.4], "the second smallest and the second largest of nine"
    assert rule(above(0), about="median").decide(column(values[:5])).status == "undecided", "too few for any interval"


def test_a_share_counts_the_seeds_on_which_every_part_is_within_its_bound():
    half = rule({"a": above(0), "b": at_most(1)}, about="share", least=0.5)
    values = [{"a": 1.0, "b": 0.0}] * 14 + [{"a": 1.0, "b": 2.0}, {"a": math.nan, "b": 0.0}]
    decision = half.decide(values)
    assert (decision.status, decision.measured) == ("holds", {"": 14 / 16})
    assert decision.plain[""] == pytest.approx([0.6165, 0.9845], abs=1e-3)
    assert half.decide(values[10:]).status == "undecided"
    assert half.decide([values[-1]] * 12).status == "fails"
    assert half.worst(values)["b"] == 2.0
    assert math.isnan(half.worst(values)["a"]), "what is not a number is the worst"


def test_the_absence_of_an_effect_holds_within_its_margin_and_fails_beyond():
    noise = np.random.default_rng(0).standard_normal(16)
    nil = rule(between(-0.5, 0.5), about="equivalence")
    assert nil.decide(column(0.1 * noise)).status == "holds"
    assert nil.decide(column(3 * noise)).status == "undecided"
    assert nil.decide(column(2 + 0.1 * noise)).status == "fails"


def states(plain, under, about="mean", bound=above(0), least=None):  # noqa: B008  # a bound is frozen
    return rule(bound, about, least=least).compare(column(plain), column(under))


@pytest.mark.parametrize("about", ["mean", "median"])
def test_a_control_breaks_what_loses_over_half_of_its_margin_and_what_keeps_more_survives(about):
    noise, other = np.random.default_rng(0).standard_normal((2, 16)) * 0.2
    assert states(1 + noise, -1 + other, about) == "broken", "it fails there"
    assert states(1 + noise, other, about) == "broken", "neither fails nor holds there, but all of it is gone"
    assert states(1 + noise, 1 + other, about) == "survives"
    assert states(1 + 5 * noise, 0.5 + 7 * other - 0.2, about) == "undecided"


def test_seeds_on_which_claim_and_control_differ_alike_are_judged_by_their_difference():
    seeds = np.random.default_rng(0).standard_normal(16)
    shared = rule(above(-1.5))
    assert shared.decide(column(2 * seeds)).status == "undecided"
    assert states(2 * seeds, seeds - 1.4, bound=above(-1.5)) == "undecided"
    assert states(4 + seeds, 4 + seeds - 3.5) == "broken", "on each seed 3.5 of about 4 are gone"


def test_a_share_is_broken_where_seeds_that_only_the_control_undoes_prevail():
    all_seeds, half, none = np.ones(16), np.r_[np.ones(8), np.zeros(8)] - 0.5, -np.ones(16)
    assert states(all_seeds, none, "share", least=0.5) == "broken"
    assert states(all_seeds, np.r_[np.ones(5), -np.ones(11)], "share", least=0.5) == "broken"
    assert states(all_seeds, half, "share", least=0.4) == "undecided"
    assert states(all_seeds, all_seeds, "share", least=0.5) == "survives"


def test_an_identity_is_broken_by_one_seed_that_misses_it():
    exact = Rule("mean", {"": at_most(1e-6)}, ANYWHERE, exact=True)
    assert exact.compare(column([0, 0, 0]), column([0, 0, 1])) == "broken"
    assert exact.compare(column([0, 0, 0]), column([0, 0, 0])) == "survives"
