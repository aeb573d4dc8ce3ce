"""Verdicts: means over seeds and their intervals, and what happens when something was not measured."""

import math

import numpy as np
import pytest
from madeup import results
from scipy.stats import binomtest

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.bounds import above, at_least, at_most, between
from featurelab.pipelines.engine.experiment.claims import Claim
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.evidence import allowed, interval, looks, plain_interval
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.known import Finding, Known


def recorded(status, reason):
    """What `known.toml` may say of a claim at laptop scale; nothing where it is to hold."""
    return lambda: Known(laptop=None if status == "holds" else Finding(status=status, reason=reason))


def seeds(*values):
    """One finished trial a seed whose metric `loss` ends at the value given; none where it is None."""
    return results(
        [{"seed": seed} for seed in range(len(values))],
        lambda config: {} if values[config["seed"]] is None else {"loss": values[config["seed"]]},
    )


ANYWHERE = (-math.inf, math.inf)


def student(values):
    return plain_interval("mean", values, ANYWHERE)


def deciding(values, error=None):
    return interval("mean", values, error or allowed(len(values)), ANYWHERE)


def claim(expect, measure=lambda runs: runs.final("loss"), **details):
    return Claim(id="c", says="it is so", measure=measure, expect=expect, **details)


def test_a_claim_holds_where_the_whole_interval_does_and_fails_where_it_is_all_outside():
    measured = [0.55, 0.6, 0.65]
    low, high = deciding(measured)
    for limit, status in ((low - 1e-9, "holds"), (0.6, "undecided"), (low + 1e-9, "undecided"), (high + 1e-9, "fails")):
        verdict = claim(at_least(limit)).judge(seeds(*measured))
        assert verdict.status == status
        assert (verdict.measured, verdict.seeds) == (pytest.approx(0.6), 3)
        assert verdict.ci == pytest.approx(student(measured)), "the plain interval, for reading"
        assert (verdict.decided is None) == (status == "undecided")
        if verdict.decided:
            assert (verdict.decided.level, verdict.decided.seeds) == (0.9875, 3), "three values get a stricter one"
            assert verdict.decided.ci == pytest.approx([low, high])
        assert verdict.worst == 0.55
        other = {"holds": "fails", "fails": "holds"}.get(status, status)
        assert claim(at_most(limit)).judge(seeds(*measured)).status == other
    assert claim(between(low, high)).judge(seeds(*measured)).status == "holds"
    assert claim(between(low, 0.6)).judge(seeds(*measured)).status == "undecided"


def test_a_claim_of_several_parts_holds_when_every_part_does_and_fails_when_one_does():
    def both(runs):
        value = runs.final("loss")
        return {"value": value, "square": value**2}

    measured = seeds(1.99, 2.0, 2.01)
    verdict = claim({"value": at_least(1), "square": at_most(6)}, both).judge(measured)
    assert verdict.status == "holds"
    assert verdict.measured == pytest.approx({"value": 2.0, "square": 12.0002 / 3})
    assert verdict.ci["square"] == pytest.approx(student([1.99**2, 4.0, 2.01**2]))
    assert verdict.worst == {"value": 1.99, "square": pytest.approx(2.01**2)}, "each part on the seed worst for it"
    assert verdict.expected == {"value": "≥ 1", "square": "≤ 6"}
    assert claim({"value": at_least(2), "square": at_most(6)}, both).judge(measured).status == "undecided"
    assert claim({"value": at_least(3), "square": at_most(6)}, both).judge(measured).status == "fails"
    assert claim({"value": at_least(3), "square": at_most(4)}, both).judge(measured).status == "fails"


def test_parts_share_the_error_of_a_failure():
    values = [1.9, 2.0, 2.1]
    alone, shared = deciding(values)[1], deciding(values, allowed(3) / 2)[1]
    limit = at_least((alone + shared) / 2)
    measured = seeds(*values)
    assert claim(limit).judge(measured).status == "fails"
    parts = claim({"a": limit, "b": at_least(0)}, lambda runs: dict.fromkeys("ab", runs.final("loss")))
    assert parts.judge(measured).status == "undecided"


def test_an_identity_is_judged_seed_by_seed_without_an_interval():
    exact = claim(at_most(1e-6), kind="identity")
    assert exact.judge(seeds(1e-9, 1e-7, 9e-7)).status == "holds"
    verdict = exact.judge(seeds(1e-9, 1e-9, 2e-6))
    assert (verdict.status, verdict.kind, verdict.ci) == ("fails", "identity", None)
    assert claim(at_most(1e-6)).judge(seeds(1e-9, 1e-9, 2e-6)).status == "undecided"


def test_an_interval_stays_where_the_quantity_can_be():
    verdict = claim(at_least(0.8), within=(-1, 1)).judge(seeds(0.97, 0.99, 1.0))
    assert verdict.ci[1] == verdict.decided.ci[1] == 1.0 < student([0.97, 0.99, 1.0])[1]
    assert verdict.status == "holds"


def test_where_seeds_were_added_the_first_decision_counts():
    rng = np.random.default_rng(0)
    values = [*(1 + 0.1 * rng.standard_normal(8)), -1000.0, *rng.standard_normal(7)]
    verdict = claim(at_least(0)).judge(seeds(*values), most_seeds=16)
    assert (verdict.status, verdict.seeds) == ("holds", 6)
    assert verdict.ci == student(values[:6])
    assert verdict.decided.level == pytest.approx(1 - looks(16)[6], abs=1e-5)
    assert verdict.decided.ci == deciding(values[:6], looks(16)[6])
    assert verdict.measured == pytest.approx(np.mean(values[:6]))
    later = claim(at_least(0.98)).judge(seeds(*values), most_seeds=16)
    assert (later.status, later.seeds, later.decided) == ("undecided", 16, None)
    few = claim(at_least(0)).judge(seeds(*values[:5]), most_seeds=16)
    assert (few.status, few.seeds, few.decided) == ("undecided", 5, None)


def test_fewer_looks_decide_with_fewer_seeds():
    values = list(1 + np.random.default_rng(3).standard_normal(6))
    low, high = deciding(values, looks(6)[6])
    assert deciding(values, looks(16)[6])[0] < low < high
    limit = at_least(low - 1e-9)
    assert claim(limit).judge(seeds(*values), most_seeds=6).status == "holds"
    assert claim(limit).judge(seeds(*values), most_seeds=16).status == "undecided"


def test_zero_width_decides_nothing_but_an_identity():
    assert claim(at_least(0)).judge(seeds(1.0, 1.0, 1.0)).status == "undecided"
    assert claim(at_least(0), kind="identity").judge(seeds(1.0, 1.0, 1.0)).status == "holds"


def test_a_claim_about_a_share_says_how_many_seeds_are_to_meet_its_bound():
    share = claim(at_least(0.9), about="share", least=0.75)
    verdict = share.judge(seeds(*[0.95] * 15, 0.2))
    assert (verdict.status, verdict.about, verdict.measured) == ("undecided", "share", 15 / 16)
    assert (verdict.expected, verdict.worst) == ("≥ 0.9 in at least 75% of seeds", 0.2)
    assert share.judge(seeds(*[0.95] * 16)).status == "holds"
    assert share.judge(seeds(*[0.95] * 4, *[0.2] * 12)).status == "fails"


def test_one_part_of_a_claim_may_be_about_a_share():
    """That training fits the labels is reached or not, on 16 seeds of 16; how far classes lie apart has a mean."""
    declared = claim(
        {"distance": at_least(2), "accuracy": at_least(0.99)},
        lambda runs: {"distance": 2.5 + 0.1 * runs.final("loss"), "accuracy": float(runs.final("loss") > -9)},
        least={"accuracy": 0.75},
    )
    values = np.random.default_rng(0).normal(size=16)
    verdict = declared.judge(seeds(*values))
    assert (verdict.status, verdict.measured["accuracy"]) == ("holds", 1.0)
    assert verdict.expected == {"distance": "≥ 2", "accuracy": "≥ 0.99 in at least 75% of seeds"}
    assert verdict.ci["accuracy"] == pytest.approx(binomtest(16, 16).proportion_ci(0.95))
    assert declared.judge(seeds(*values[:6])).status == "undecided", "six seeds of six may be 54% of all"
    assert declared.judge(seeds(*values[:4], *[-10.0] * 12)).status == "fails"


def test_a_control_breaks_a_part_about_a_share_if_few_seeds_reach_it_there():
    expect = {"distance": at_least(2), "accuracy": at_least(0.99)}
    rule = claim(expect, lambda runs: {}, least={"accuracy": 0.75}).rule([])
    values = np.random.default_rng(0).normal(3, 0.1, size=16)
    plain = [{"distance": value, "accuracy": 1.0} for value in values]
    assert rule.compare(plain, plain) == "survives"
    assert rule.compare(plain, [{"distance": value, "accuracy": 0.5} for value in values]) == "broken"
    assert rule.compare(plain, [{"distance": value - 2, "accuracy": 1.0} for value in values]) == "broken"


def test_one_bound_is_for_all_parts_that_the_grid_of_a_preset_has():
    def measure(runs):
        return {f"d = {dim}": runs.final("loss") + dim for dim in dims}

    for dims, status in (((0, 1), "holds"), ((0, 1, 2), "holds"), ((0, 1, -3), "fails")):
        verdict = claim(at_least(0), measure).judge(seeds(1.0, 1.1, 1.2))
        assert (verdict.status, verdict.expected) == (status, "≥ 0")
        assert set(verdict.measured) == set(verdict.worst) == {f"d = {dim}" for dim in dims}


@pytest.mark.parametrize(
    ("expect", "parts", "says"),
    [
        ({"a": at_least(0)}, {"a": 1.0, "b": 1.0}, "seed 0: there is no bound for 'b'"),
        ({"a": at_least(0), "b": at_least(0)}, {"a": 1.0}, "seed 0: 'b' was not measured"),
    ],
)
def test_a_claim_is_untested_where_its_parts_are_not_those_that_have_a_bound(expect, parts, says):
    verdict = claim(expect, lambda runs: parts).judge(seeds(1.0, 1.0, 1.0))
    assert verdict.status == "untested"
    assert says in verdict.reason


def test_a_seed_with_other_parts_than_the_first_is_left_out():
    def measure(runs):
        (seed,) = runs.values("seed")
        return {"a": 1.0 + seed / 10, "b": 1.0 - seed / 20} if seed != 2 else {"a": 1.0}

    verdict = claim(at_least(0), measure).judge(seeds(1.0, 1.0, 1.0, 1.0))
    assert (verdict.status, verdict.seeds, verdict.reason) == ("holds", 3, "seed 2: 'b' was not measured")


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ({"least": {"accuracy": 0.75}}, "`least` names 'accuracy', for which there is no bound"),
        ({"least": {"": 1.5}}, "`least` is the share of seeds"),
        ({"least": {"": 0.5}, "kind": "identity"}, "an identity is judged seed by seed"),
        ({"about": "share"}, "`least` is the share of seeds"),
        ({"about": "share", "least": 1.0}, "`least` is the share of seeds"),
        ({"least": 0.5}, "`least` is the share of seeds"),
        ({"about": "equivalence"}, "a margin with two ends"),
        ({"about": "median", "kind": "identity"}, "an identity is judged seed by seed"),
        ({"about": "mode"}, "one of mean, median, share, equivalence"),
    ],
)
def test_a_claim_that_could_not_be_judged_cannot_be_declared(details, says):
    with pytest.raises(ValueError, match=says):
        claim(at_least(0), **details)


def test_too_few_seeds_leave_a_claim_untested_and_say_so():
    verdict = claim(at_least(0)).judge(seeds(1.0, 2.0))
    assert verdict.status == "untested"
    assert verdict.reason == "2 of the 3 seeds it needs could be measured"
    assert verdict.measured == 1.5
    assert verdict.seeds == 2
    assert claim(at_least(0), seeds=2).judge(seeds(1.0, 1.001)).status == "holds"


def test_without_any_trial_a_claim_is_untested():
    verdict = claim(at_least(0)).judge(results([], lambda config: {}))
    assert (verdict.status, verdict.measured, verdict.ci, verdict.seeds) == ("untested", None, None, 0)
    assert "0 of the 3 seeds" in verdict.reason


def test_a_missing_metric_leaves_its_seed_out_with_the_reason():
    verdict = claim(at_least(0)).judge(seeds(1.0, None, 3.0))
    assert verdict.status == "untested"
    assert verdict.reason == "2 of the 3 seeds it needs could be measured (seed 1: no loss)"
    verdict = claim(at_least(0)).judge(seeds(2.5, None, 3.0, 3.5))
    assert (verdict.status, verdict.measured, verdict.seeds) == ("holds", 3.0, 3)
    assert verdict.reason == "seed 1: no loss"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("expect", [at_least(0), at_most(1), between(0, 1)])
def test_a_value_that_is_not_finite_fails_and_the_reason_says_so(expect, bad):
    verdict = claim(expect, lambda runs: runs.final("loss") + bad).judge(seeds(0.5, 0.5, 0.5))
    one = claim(expect, lambda runs: runs.final("loss") * (math.nan if runs.values("seed") == [1] else 1))
    assert verdict.status == "fails"
    assert f"seed 0: it is {bad}" in verdict.reason
    verdict = one.judge(seeds(0.5, 0.5, 0.5))
    assert verdict.status == "fails"
    assert verdict.reason == "seed 1: it is nan"
    assert math.isnan(verdict.measured)
    assert verdict.ci is None


def test_infinities_of_both_signs_do_not_stop_the_judge():
    verdict = claim(at_least(0), lambda runs: math.inf * (-1) ** runs.values("seed")[0]).judge(seeds(1.0, 1.0, 1.0))
    assert verdict.status == "fails"


@pytest.mark.parametrize(
    ("documented", "value", "status", "surprising"),
    [
        ("holds", 1.0, "holds", False),
        ("holds", -1.0, "fails", True),
        ("fails", -1.0, "fails", False),
        ("fails", 1.0, "holds", True),
    ],
)
def test_a_verdict_surprises_when_it_is_not_the_documented_one(documented, value, status, surprising):
    because = "the step is too long" if documented == "fails" else ""
    judged = claim(at_least(0), recorded=recorded(documented, because)).judge(seeds(value, value, value + 0.001))
    assert (judged.status, judged.surprising) == (status, surprising)
    assert because in judged.reason


def test_what_is_undecided_surprises_nobody():
    assert claim(at_least(0)).judge(seeds(-1.0, 0.0, 1.0)).status == "undecided"
    assert not claim(at_least(0)).judge(seeds(-1.0, 0.0, 1.0)).surprising
    unsure = claim(at_least(0), recorded=recorded("undecided", "seeds differ too much"))
    assert unsure.documented() == "undecided"
    assert unsure.documented("desktop") == "holds"
    for value in (-1.0, 1.0):
        verdict = unsure.judge(seeds(value, value, value))
        assert (verdict.surprising, verdict.reason) == (False, "seeds differ too much")


def test_an_untested_claim_surprises_unless_documented():
    assert claim(at_least(0)).judge(seeds(1.0)).surprising
    known = recorded("untested", "the step is too long")
    assert not claim(at_least(0), recorded=known).judge(seeds(1.0)).surprising


def test_a_share_of_nothing_is_a_missing_measurement():
    made = claim(at_least(0), measure=lambda runs: 1 / runs.final("loss"), seeds=2)
    verdict = made.judge(seeds(0.0, 1.0, 2.0))
    assert verdict.seeds == 2
    assert "seed 0: it is a share of nothing" in verdict.reason
    assert made.judge(seeds(0.0, 0.0)).status == "untested"


def test_an_error_in_a_claim_is_not_taken_for_a_missing_measurement():
    with pytest.raises(KeyError):
        claim(at_least(0), lambda runs: {}["x"]).judge(seeds(1.0, 1.0, 1.0))


def test_a_seed_with_some_of_its_trials_alone_is_no_reason_to_stop():
    def second(runs):
        return runs.finals("loss", width=sorted(runs.values("width"))[1])[0]

    rows = [{"seed": seed, "width": width} for seed in range(4) for width in (1, 2) if (seed, width) != (3, 1)]
    found = results(rows, lambda config: {"loss": config["width"] + 0.01 * config["seed"]})
    verdict = claim(between(1, 3), second).judge(found)
    assert (verdict.status, verdict.seeds) == ("holds", 3)
    assert "seed 3: not all of its trials are there" in verdict.reason
    with pytest.raises(IndexError):
        claim(between(1, 3), lambda runs: sorted(runs.values("width"))[2]).judge(found)


def declared(**details):
    given = {"name": "a/b", "laptop": Config(), "paper": Config(), "grid": {"seed": [0]}} | details
    return Experiment(figures=("Fig. 1",), title="t", minutes=1, **given)


def test_a_claim_has_a_name_of_its_own():
    figure = declared()
    figure.claim("c1", says="s", expect=above(0))(lambda runs: 1.0)
    assert figure.claims[0].where == "Fig. 1"
    with pytest.raises(ValueError, match="two claims called c1"):
        figure.claim("c1", says="s", expect=above(0))(lambda runs: 1.0)


def test_a_shared_claim_stands_in_the_place_of_each_figure():
    one = declared()
    two = one.variant("c", figures=("Fig. 2",), title="t", seed=3)
    one.claim("c1", says="s", expect=above(0), also=[two])(lambda runs: 1.0)
    assert (one.claims[0].where, two.claims[0].where) == ("Fig. 1", "Fig. 2")


def test_a_variant_inherits_presets_grid_trial_drawing_and_cost_but_no_claims():
    one = declared(grid={"seed": [0, 1]}, caption="of both", headline=True)
    early = one.variant("early", figures=("Fig. 2",), title="t", seed=7, minutes=3)
    one.claim("c1", says="s", expect=above(0))(lambda runs: 1.0)
    one.trial(print)
    one.draw(rows=2)(print)
    one.cost(print)
    late = early.variant("late", figures=("Fig. 3",), title="t", grid={"seed": [5]}, laptop=Config(threads=2))
    assert (early.name, early.figure, early.laptop.seed, early.paper.seed, early.minutes) == (
        "a/early",
        "Fig. 2",
        7,
        7,
        3,
    )
    assert (early.grid, early.caption, early.headline) == ({"seed": [0, 1]}, "of both", False)
    assert (late.grid, late.laptop.threads, late.paper.seed) == ({"seed": [5]}, 2, 7)
    assert [len(figure.claims) for figure in (one, early, late)] == [1, 0, 0]
    assert {early.run_trial, late.run_trial, early.estimate, late.estimate} == {print}
    assert early.drawing is late.drawing is one.drawing is not None
    late.trial(repr)
    one.trial(len)
    assert (one.run_trial, early.run_trial, late.run_trial) == (len, len, repr)
    with pytest.raises(ValueError, match="neither a part of an experiment nor a setting: sead"):
        one.variant("wrong", figures=("Fig. 4",), title="t", sead=1)


class Other(Config):
    pass


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ({"grid": {"seed": [-1]}}, "seed = -1"),
        ({"paper_grid": {"sed": [0]}}, "did you mean seed"),
        ({"name": "NoSystem"}, "<system>/<experiment>"),
        ({"name": "a/b/c"}, "<system>/<experiment>"),
        ({"paper": Other()}, "different config types"),
    ],
)
def test_an_experiment_that_could_not_run_cannot_be_declared(details, says):
    assert declared().system == "a"
    with pytest.raises((RequestError, ValueError), match=says):
        declared(**details)


def test_a_figure_can_read_those_trials_alone_that_the_other_has():
    whole = declared(grid={"seed": [0, 1, 2]})
    part = whole.variant("part", figures=("Fig. 2",), title="t", grid={"seed": [2, 1]}, reads=whole)
    assert part.reads is whole
    with pytest.raises(ValueError, match="a/b, which it reads, lacks some of its laptop trials"):
        whole.variant("more", figures=("Fig. 3",), title="t", grid={"seed": [2, 3]}, reads=whole)
