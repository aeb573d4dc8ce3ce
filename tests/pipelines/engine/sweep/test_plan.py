"""A plan names its trials by what varies, in one look at all of them."""

from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.sweep.plan import Plan


class Wide(Config):
    width: int = 1
    depth: int = 2


def test_a_trial_is_named_by_the_axes_that_vary():
    configs = [Wide(width=width, seed=seed) for width in (1, 2) for seed in (0, 1)]
    plan = Plan(registry.find("neural_feature_ansatz/init_scale"), configs, ["width", "depth", "seed"], "laptop")
    assert [plan.label(config) for config in configs] == [
        "width=1 seed=0",
        "width=1 seed=1",
        "width=2 seed=0",
        "width=2 seed=1",
    ]
    same = Plan(plan.experiment, configs[:1], ["depth"], "laptop")
    assert same.label(configs[0]) == "depth=2", "where nothing varies, all axes are named"


def test_naming_all_trials_looks_at_each_a_number_of_times_that_does_not_grow():
    class Watched(Wide):
        def __getattribute__(self, name):
            if name == "width":
                looks[0] += 1
            return super().__getattribute__(name)

    counts = {}
    for number in (100, 1000):
        looks = [0]
        plan = Plan(registry.find("neural_feature_ansatz/init_scale"), [], ["width"], "laptop")
        plan.configs.extend(Watched(width=i + 1) for i in range(number))
        looks[0] = 0
        assert len({plan.label(config) for config in plan.configs}) == number
        counts[number] = looks[0] / number
    assert counts[1000] <= counts[100] <= 3
