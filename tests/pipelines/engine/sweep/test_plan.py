"""A plan names its trials by what varies, in one look at all of them."""

import pytest

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.resources import Resources


class Wide(Config):
    width: int = 1
    depth: int = 2


def test_a_trial_is_named_by_the_axes_that_vary():
    configs = [Wide(width=width, seed=seed) for width in (1, 2) for seed in (0, 1)]
    plan = Plan.of(registry.find("neural_feature_ansatz/init_scale"), configs, ["width", "depth", "seed"], "laptop")
    assert [plan.label(index) for index in range(4)] == [
        "width=1 seed=0",
        "width=1 seed=1",
        "width=2 seed=0",
        "width=2 seed=1",
    ]
    same = plan.but(configs=plan.configs[:1], axes=["depth"])
    assert same.label(0) == "depth=2", "where nothing varies, all axes are named"


def test_naming_all_trials_looks_at_each_a_number_of_times_that_does_not_grow():
    class Watched(dict):
        def get(self, name, default=None):
            looks[0] += 1
            return super().get(name, default)

    counts = {}
    for number in (100, 1000):
        looks = [0]
        plan = Plan.of(registry.find("neural_feature_ansatz/init_scale"), [], ["width"], "laptop")
        plan.configs.extend(Watched(width=i + 1) for i in range(number))
        assert len({plan.label(index) for index in range(number)}) == number
        counts[number] = looks[0] / number
    assert counts[1000] <= counts[100] <= 3
    assert counts[100] >= 1


def test_a_plan_is_what_its_json_says_but_for_what_is_of_this_time_only():
    experiment = registry.find("neural_feature_ansatz/init_scale")
    resources = Resources(cpus=2, gpus=0.5)
    plan = Plan.of(
        experiment,
        experiment.configs("laptop")[:2],
        ["init_scale"],
        "laptop",
        resources=resources,
        name="mine",
        tags={"a": "b"},
    )
    read = Plan.model_validate_json(plan.model_dump_json())
    assert (read.name, read.tags) == ("", {})
    assert read == plan.but(name="", tags={})
    assert [read.config(index) for index in range(2)] == experiment.configs("laptop")[:2]


def test_settings_that_a_stored_plan_lacks_have_todays_values_and_unknown_ones_are_refused():
    experiment = registry.find("neural_feature_ansatz/init_scale")
    plan = Plan.of(experiment, experiment.configs("laptop")[:1], ["seed"], "laptop")
    without = {name: value for name, value in plan.configs[0].items() if name != "threads"}
    assert plan.but(configs=[without]).completed() == plan
    with pytest.raises(RequestError, match="unknown setting 'widht'"):
        plan.but(configs=[plan.configs[0] | {"widht": 3}]).completed()
