"""A search that learns draws by seed, index and earlier trials alone, never the same settings twice."""

import math
import random

import pytest

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.axes import Listed, choice, loguniform, randint, uniform
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.sweep.plan import Plan, plan_search
from featurelab.pipelines.engine.sweep.search import study as studies
from featurelab.pipelines.engine.sweep.search.goals import front, parse_goals
from featurelab.pipelines.engine.sweep.search.study import Study, Told
from featurelab.pipelines.engine.trial.record import TrialRecord

NAME = "neural_feature_ansatz/init_scale"
LOSS = {"loss/test": "min"}


class Wide(Config):
    lr: float = 0.1
    width: int = 1
    sizes: tuple[int, ...] = (1,)


@pytest.fixture
def wide():
    return Study.of(Wide(), {"lr": loguniform(1e-4, 1.0), "width": randint(1, 9)}, 30, seed=3)


def anything(settings):
    return True


def distance(settings):
    """How far settings are from the best ones, lr=0.01 and width=3."""
    return abs(math.log10(settings["lr"]) + 2) + abs(settings["width"] - 3) / 4


def searched(
    study, goals=LOSS, accepted=anything, tell=lambda settings: Told(settings, "finished", (distance(settings),))
):
    earlier = []
    for index in range(study.samples):
        earlier.append(tell(study.draw(index, goals, earlier, accepted)))
    return earlier


def test_draws_come_nearer_to_the_best_settings(wide):
    nearer = [distance(told.settings) for told in searched(wide)]
    farther = [distance(told.settings) for told in searched(wide, {"loss/test": "max"})]
    assert nearer[:10] == farther[:10], "Optuna's first ten draws are random"
    assert sum(nearer[-10:]) < sum(nearer[:10]) < sum(farther[-10:])


def test_a_draw_depends_on_the_seed_and_the_earlier_trials_alone(wide):
    first = searched(wide)
    assert searched(Study.model_validate_json(wide.model_dump_json())) == first
    earlier = first[:20]
    expected = first[20].settings
    assert wide.draw(20, LOSS, earlier, anything) == expected
    assert wide.model_copy(update={"seed": 4}).draw(20, LOSS, earlier, anything) != expected
    otherwise = [Told(told.settings, "finished", (-told.values[0],)) for told in earlier]
    assert wide.draw(20, LOSS, otherwise, anything) != expected


def test_diverged_and_stopped_trials_turn_draws_away_and_running_and_failed_ones_are_no_problem(wide):
    def tell(settings):
        if settings["lr"] > 0.1:
            return Told(settings, "diverged")
        return Told(settings, "stopped", at=(3, 1.0)) if settings["width"] > 4 else Told(settings, "finished", (1.0,))

    statuses = [told.status for told in searched(wide, tell=tell)]
    assert statuses[-10:].count("finished") > statuses[:10].count("finished")
    for status in ("running", "failed"):
        assert len(searched(wide, tell=lambda settings, status=status: Told(settings, status))) == 30


def test_a_small_space_is_drawn_point_by_point_and_no_point_twice():
    axes = {"lr": Listed(("0.1", "1e-1", 0.2)), "width": randint(1, 4), "sizes": choice([1, 2], [3])}
    study = Study.of(Wide(), axes, 100, seed=0)
    assert study.samples == 2 * 3 * 2, "0.1 and 1e-1 are one value"
    drawn = [told.settings for told in searched(study)]
    assert len({str(settings) for settings in drawn}) == 12
    assert {type(settings["lr"]) for settings in drawn} == {float}
    assert {tuple(settings["sizes"]) for settings in drawn} == {(1, 2), (3,)}
    with pytest.raises(RequestError, match="no settings are left"):
        study.draw(12, LOSS, searched(study), anything)


def test_settings_that_the_experiment_refuses_are_not_drawn(wide):
    drawn = searched(wide, accepted=lambda settings: settings["width"] % 2)
    assert {told.settings["width"] % 2 for told in drawn} == {1}


def test_several_metrics_are_searched_together(wide):
    goals = {"loss/test": "min", "accuracy/test": "max"}
    both = searched(wide, goals, tell=lambda s: Told(s, "finished", (distance(s), -distance(s))))
    assert sum(distance(t.settings) for t in both[-10:]) < sum(distance(t.settings) for t in both[:10])
    assert len(searched(wide, goals, tell=lambda settings: Told(settings, "diverged"))) == 30


def test_the_front_holds_what_no_other_trial_beats():
    rng = random.Random(0)
    trials = [
        TrialRecord(
            experiment=NAME,
            config={},
            scale="laptop",
            status=rng.choice(["finished", "finished", "failed"]),
            run_id=str(index),
            metrics={"a": rng.randrange(5), "b": rng.randrange(5)},
        )
        for index in range(40)
    ]
    trials.append(trials[0].model_copy(update={"status": "finished", "metrics": {"a": math.nan, "b": 9}}))
    points = [(t.metrics["a"], t.metrics["b"], t) for t in trials[:-1] if t.status == "finished"]
    expected = [t for a, b, t in points if not any(x <= a and y >= b and (x, y) != (a, b) for x, y, _ in points)]
    assert front(trials, {"a": "min", "b": "max"}) == expected
    assert 0 < len(expected) < len(points)


def test_a_stored_plan_is_the_same_plan(wide):
    experiment = registry.find(NAME)
    axes = {"lr": loguniform(1e-3, 0.1), "width": Listed(("8", "16"))}
    details = {"search": "optuna", "scale": "laptop", "metric": "loss/test", "other_goals": {"loss/train": "max"}}
    plan = plan_search(experiment, axes, 5, experiment.laptop.but(steps=10), **details)
    assert (plan.configs, plan.undrawn, plan.axes) == ([], 5, ["lr", "width"])
    assert plan.goals == {"loss/test": "min", "loss/train": "max"}
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    further = plan.with_drawn([{"lr": 0.05, "width": 16}])
    assert further.undrawn == 4
    assert (further.config(0).lr, further.config(0).width, further.config(0).steps) == (0.05, 16, 10)
    assert further.label(0) == "lr=0.05 width=16"


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"search": "optun"}, "optuna"),
        ({"search": "random", "other_goals": {"b": "min"}}, "--search optuna"),
        ({"search": "optuna", "scheduler": "asha", "other_goals": {"b": "min"}}, "--scheduler asha"),
        ({"search": "optuna", "axes": {"width": uniform(8.2, 9.9)}}, "width"),
        ({"search": "optuna", "axes": {"width": choice(8, "x")}}, "width"),
    ],
)
def test_a_wrong_request_is_refused(details, said):
    experiment = registry.find(NAME)
    axes = details.pop("axes", {"lr": loguniform(1e-3, 0.1)})
    with pytest.raises(RequestError, match=said):
        plan_search(experiment, axes, 5, experiment.laptop, scale="laptop", **details)


def test_without_optuna_the_search_says_what_to_install(monkeypatch):
    monkeypatch.setattr(studies, "find_spec", lambda name: None)
    with pytest.raises(RequestError) as refused:
        Study.of(Wide(), {"lr": uniform(0, 1)}, 5, seed=0)
    assert str(refused.value) == "--search optuna needs Optuna: pip install 'feature-learning-lab[search]'"


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"lr": {"law": "normal", "arguments": [0, 1]}}, "no axis"),
        ({"lr": {"law": "uniform", "arguments": ["a", "b"]}}, "no axis"),
        ({"lr": {"law": "loguniform", "arguments": [0, 1]}}, "above 0"),
    ],
)
def test_a_stored_study_with_another_law_is_refused(axes, said):
    with pytest.raises(RequestError, match=said):
        Study.model_validate({"base": {}, "axes": axes, "samples": 1, "seed": 0})


@pytest.mark.parametrize(
    ("metric", "mode", "parsed"),
    [
        ("", None, ([], [])),
        ("a", "max", (["a"], ["max"])),
        ("", "max", ([], ["max"])),
        (["a", "b"], ["min"], (["a", "b"], ["min", "min"])),
        ("a,b", "min,max", (["a", "b"], ["min", "max"])),
    ],
)
def test_metrics_and_modes_are_given_one_by_one_or_with_commas(metric, mode, parsed):
    assert parse_goals(metric, mode) == parsed


@pytest.mark.parametrize(
    ("metric", "mode", "said"), [("a", "mini", "min"), ("a,a", "min", "twice"), ("a,b,c", "min,max", "3 metrics")]
)
def test_wrong_metrics_and_modes_are_refused(metric, mode, said):
    with pytest.raises(RequestError, match=said):
        parse_goals(metric, mode)
