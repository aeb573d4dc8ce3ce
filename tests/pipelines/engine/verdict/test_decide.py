"""Further seeds go to undecided claims alone, and to those trials alone that these look at."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from madeup import results

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.bounds import above
from featurelab.pipelines.engine.experiment.config import TrainedConfig
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.verdict.decide import further_trials, seed_limit

SEEDS = [0, 1, 2]


class Widths(TrainedConfig):
    width: int = 1
    shape: tuple[int, ...] = (1, 2)


def figure():
    made = Experiment(
        name="a/b",
        figures=("Fig. 1",),
        title="t",
        minutes=1,
        laptop=Widths(),
        paper=Widths(),
        grid={"width": [1, 2, 3], "seed": SEEDS},
    )

    @made.claim("clear", says="s", expect=above(0), controls=[])
    def clear(runs):
        return runs.final("loss", width=3)

    @made.claim("unclear", says="s", expect=above(0), controls=["permuted_labels"])
    def unclear(runs):
        return runs.final("loss", width=2) - runs.final("loss", width=1)

    return made


def loss(config):
    """Clearly above 0 at width 3; elsewhere noise about 0."""
    noise = np.random.default_rng([config["width"], config["seed"]]).standard_normal()
    return {"loss": 5 + 0.1 * noise if config["width"] == 3 else noise}


def wanted(configs, most_seeds, measured=loss):
    experiment = figure()
    plan = Plan.of(experiment, configs, ["width", "seed"], "laptop", most_seeds=most_seeds)
    found = results([config.model_dump() for config in configs], measured)
    verdicts = [claim.judge(found, most_seeds=most_seeds) for claim in experiment.claims]
    return verdicts, further_trials(experiment, plan, verdicts, found)


def test_an_undecided_claim_gets_seeds_up_to_its_next_look_for_the_trials_that_it_looks_at():
    experiment = figure()
    verdicts, more = wanted(experiment.configs("laptop"), 16, lambda c: loss(c) | {"other": 1.0})
    assert [verdict.status for verdict in verdicts] == ["undecided", "undecided"], "three seeds are fewer than a look"
    assert {(c["width"], c["seed"]) for c in more} == {(w, s) for w in (1, 2, 3) for s in (3, 4, 5)}
    six = [Widths(width=width, seed=seed) for width in (1, 2, 3) for seed in range(6)]
    verdicts, more = wanted(six, 16)
    assert [verdict.status for verdict in verdicts] == ["holds", "undecided"]
    assert sorted((c["width"], c["seed"]) for c in more) == [(1, 6), (1, 7), (2, 6), (2, 7)]
    assert all(c["shape"] == [1, 2] and c["control"] == "none" for c in more)


def test_further_seeds_follow_those_that_are_there_so_that_earlier_looks_stay_as_they_were():
    three = [Widths(width=width, seed=seed) for width in (1, 2, 3) for seed in (7, 8, 9)]
    assert {c["seed"] for c in wanted(three, 8)[1]} == {10, 11, 12}


def test_a_claim_that_needs_trials_that_it_does_not_read_gets_these_too():
    experiment = figure()

    @experiment.claim("widest", says="s", expect=above(0), controls=[])
    def widest(runs):
        return runs.final("loss", width=sorted(runs.values("width"))[1])

    configs = experiment.configs("laptop")
    plan = Plan.of(experiment, configs, ["width", "seed"], "laptop", most_seeds=6)
    found = results([config.model_dump() for config in configs], loss)
    verdicts = [claim.judge(found, most_seeds=6) for claim in experiment.claims]
    verdicts[:2] = [verdict.model_copy(update={"status": "holds"}) for verdict in verdicts[:2]]
    more = further_trials(experiment, plan, verdicts, found)
    assert {(c["width"], c["seed"]) for c in more} == {(w, s) for w in (1, 2, 3) for s in (3, 4, 5)}


def test_trials_that_name_no_seed_get_none():
    experiment = figure()
    found = results([config.model_dump() for config in experiment.configs("laptop")], loss)
    verdicts = [claim.judge(found, most_seeds=8) for claim in experiment.claims]
    plan = Plan.of(experiment, experiment.configs("laptop"), ["width"], "laptop", most_seeds=8)
    plan = plan.but(configs=[{"width": config["width"]} for config in plan.configs])
    assert further_trials(experiment, plan, verdicts, found) == []


def test_no_more_seeds_are_added_than_were_asked_for():
    eight = [Widths(width=width, seed=seed) for width in (1, 2, 3) for seed in range(8)]
    assert len(wanted(eight, 11)[1]) == 2 * 3, "the last look is at the most seeds"
    assert len(wanted(eight, 12)[1]) == 2 * 4
    assert wanted(eight, None)[1] == []


def test_seeds_on_which_a_claim_cannot_be_measured_are_not_made_up_for():
    def gappy(config):
        return {} if config["seed"] in (4, 5) else loss(config)

    six = [Widths(width=width, seed=seed) for width in (1, 2, 3) for seed in range(6)]
    verdicts, more = wanted(six, 6, gappy)
    assert [verdict.status for verdict in verdicts] == ["undecided", "undecided"]
    assert more == []


def test_limits_are_refused_in_one_line():
    assert seed_limit(False, None) is None
    assert seed_limit(True, None) == 16
    assert seed_limit(True, 6) == 6
    for decide, most, says in ((False, 8, "give both"), (True, 5, "from 6 to 256"), (True, 257, "from 6 to 256")):
        with pytest.raises(RequestError, match=says):
            seed_limit(decide, most)


def controlled(value, under, noise=0.02, **others):
    """The verdict on `unclear` whose differences are about `value`, and about `under` with permuted labels."""

    def noisy(config):
        about = {"none": value, "permuted_labels": under, **others}[config["control"]]
        drawn = np.random.default_rng([len(config["control"]), config["seed"]]).standard_normal()
        return {"loss": about + noise * drawn if config["width"] == 2 else 0.0}

    experiment, controls = figure(), ["none", "permuted_labels", *others]
    rows = [{"width": w, "seed": s, "control": c} for w in (1, 2, 3) for s in range(6) for c in controls]
    everything, claim = results(rows, noisy), experiment.claims[1]
    return claim.against(claim.judge(everything.under("none")), everything, also=controls[1:])


@pytest.mark.parametrize(
    ("under", "status", "state", "specific"),
    [
        (-1.0, "fails", "broken", True),
        (0.0, "undecided", "broken", True),
        (1.0, "holds", "survives", False),
        (0.1, "holds", "survives", False),  # weaker, but it still holds
    ],
)
def test_a_claim_that_its_control_breaks_is_specific_and_one_that_survives_it_is_not(under, status, state, specific):
    verdict = controlled(1.0, under)
    assert verdict.status == "holds"
    assert verdict.measured == pytest.approx(1.0, abs=0.05), "what a control did is not mixed in"
    there = verdict.controls["permuted_labels"]
    assert (there.status, there.state, verdict.specific) == (status, state, specific)
    assert there.measured == pytest.approx(under, abs=0.05)


def test_nobody_knows_whether_a_claim_is_specific_where_a_control_is_undecided_or_the_claim_does_not_hold():
    verdict = controlled(2.0, 0.8, noise=0.6)
    assert (verdict.status, verdict.controls["permuted_labels"].state, verdict.specific) == ("holds", "undecided", None)
    verdict = controlled(-1.0, -1.0)
    assert (verdict.status, verdict.controls["permuted_labels"].state, verdict.specific) == ("fails", "broken", None)


def test_a_claim_that_survives_the_control_of_another_claim_is_not_specific():
    assert controlled(1.0, -1.0, untrained=-1.0).specific is True
    assert controlled(1.0, -1.0, untrained=1.0).specific is False
    assert controlled(1.0, -1.0, untrained=0.02).specific is True, "one that leaves it undecided proves nothing"


def test_a_measure_need_not_stand_a_control_that_its_claim_does_not_name():
    experiment = figure()

    @experiment.claim("fragile", says="s", expect=above(0), controls=["permuted_labels"])
    def fragile(runs):
        return {"none": 1.0, "permuted_labels": -1.0}[runs.values("control")[0]] + 0.01 * runs.values("seed")[0]

    rows = [{"width": 1, "seed": s, "control": c} for s in range(6) for c in ("none", "permuted_labels", "untrained")]
    everything, claim = results(rows, lambda config: {}), experiment.claims[-1]
    verdict = claim.against(claim.judge(everything.under("none")), everything, also=["untrained"])
    assert (list(verdict.controls), verdict.specific) == (["permuted_labels"], True)
    with pytest.raises(KeyError):
        replace(claim, controls=("untrained",)).against(verdict, everything)


def test_a_control_that_ran_for_some_parts_of_a_claim_alone_leaves_its_verdict_as_it_is():
    experiment = figure()

    @experiment.claim("neighbours", says="s", expect=above(0), controls=["permuted_labels"])
    def neighbours(runs):
        pairs = pairwise(sorted(runs.values("width")))
        return {f"{a} to {b}": runs.final("loss", width=b) - runs.final("loss", width=a) for a, b in pairs}

    rows = [{"width": w, "seed": s, "control": "none"} for w in (1, 2, 3) for s in range(6)]
    rows += [{"width": w, "seed": s, "control": "permuted_labels"} for w in (1, 3) for s in range(6)]
    everything = results(rows, lambda config: {"loss": config["width"] + 0.01 * config["seed"] * config["width"]})
    claim = experiment.claims[-1]
    verdict = claim.against(claim.judge(everything.under("none")), everything)
    assert (verdict.status, verdict.controls["permuted_labels"].status, verdict.specific) == ("holds", "untested", None)


def test_a_measure_need_not_stand_a_control_that_ran_for_another_claim_alone():
    experiment = figure()

    @experiment.claim("all_three", says="s", expect=above(0), controls=["permuted_labels"])
    def all_three(runs):
        first, _, third = (runs.final("loss", width=width) for width in sorted(runs.values("width")))
        return third - first

    rows = [{"width": w, "seed": s, "control": "none"} for w in (1, 2, 3) for s in range(6)]
    rows += [{"width": 1, "seed": s, "control": "permuted_labels"} for s in range(6)]
    everything = results(rows, lambda config: {"loss": config["width"] + 0.01 * config["seed"] * config["width"]})
    claim = experiment.claims[-1]
    verdict = claim.against(claim.judge(everything.under("none")), everything)
    assert (verdict.status, verdict.controls["permuted_labels"].status, verdict.specific) == ("holds", "untested", None)


def test_a_claim_that_holds_gets_the_controls_of_the_figure_on_each_of_its_seeds_and_no_other_claim_does():
    experiment = figure()

    @experiment.claim("wide", says="s", expect=above(0), controls=["untrained"])
    def wide(runs):
        return runs.final("loss", width=3)

    @experiment.claim("false", says="s", expect=above(10), controls=["untrained"])
    def false(runs):
        return runs.final("loss", width=2)

    configs = [Widths(width=width, seed=seed) for width in (1, 2, 3) for seed in range(6)]
    plan = Plan.of(experiment, configs, ["width", "seed", "control"], "laptop", most_seeds=6, controls=True)
    found = results([config.model_dump() for config in configs], loss)
    verdicts = [claim.judge(found, most_seeds=6) for claim in experiment.claims]
    assert [verdict.status for verdict in verdicts] == ["holds", "undecided", "holds", "fails"]
    more = further_trials(experiment, plan, verdicts, found)
    expected = {(control, 3, seed) for control in ("permuted_labels", "untrained") for seed in range(6)}
    assert {(c["control"], c["width"], c["seed"]) for c in more} == expected
    assert further_trials(experiment, plan.but(configs=[*plan.configs, *more]), verdicts, found) == []
    assert further_trials(experiment, plan.but(controls=False), verdicts, found) == []


def test_without_its_controls_nobody_knows_whether_a_claim_is_specific():
    experiment = figure()
    found = results([config.model_dump() for config in experiment.configs("laptop")], loss)
    for claim in experiment.claims:
        verdict = claim.against(claim.judge(found.under("none")), found)
        assert (verdict.controls, verdict.specific) == ({}, None)


def test_a_figure_cannot_name_a_control_that_it_cannot_be_run_under():
    with pytest.raises(ValueError, match="cannot be run under rotated"):
        figure().claim("c", says="s", expect=above(0), controls=["rotated"])(lambda runs: 1.0)


def test_the_controls_of_a_figure_are_those_of_its_claims_but_not_of_identities():
    experiment = figure()
    experiment.controls = ("untrained",)
    experiment.claim("c", says="s", expect=above(0))(lambda runs: 1.0)
    experiment.claim("exact", says="s", expect=above(0), kind="identity")(lambda runs: 1.0)
    assert [claim.controls for claim in experiment.claims] == [(), ("permuted_labels",), ("untrained",), ()]
    assert {config.control for config in experiment.controlled("laptop")} == {"permuted_labels", "untrained"}
    assert len(experiment.controlled("laptop")) == 2 * len(experiment.configs("laptop"))
