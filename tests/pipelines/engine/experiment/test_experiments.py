"""What every experiment of the registry must be, whatever its figure."""

import re
from collections import Counter

import pytest

from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.experiment.axes import Listed, lay_out, parse_axis
from featurelab.pipelines.engine.experiment.claims import Bound
from featurelab.pipelines.engine.experiment.config import SCALES

EXPERIMENTS = registry.experiments()
RATES = {"lr", "lr_exponent"}
REGULARISERS = {"weight_decay", "ridge"}

each = pytest.mark.parametrize("experiment", EXPERIMENTS, ids=[e.name.partition("/")[2] for e in EXPERIMENTS])
at_each_scale = pytest.mark.parametrize("scale", SCALES)


@each
@at_each_scale
def test_presets_and_grids_are_valid_and_name_each_trial_once(experiment, scale):
    preset = experiment.preset(scale)
    assert type(preset).read(preset.model_dump(mode="json")) == preset
    configs = experiment.configs(scale)
    assert len(set(configs)) == len(configs) > 0
    varied = experiment.varied(scale)
    assert len({config.label(varied) for config in configs}) == len(configs)
    assert set(varied) <= set(type(preset).model_fields)


@each
def test_every_setting_says_what_it_means(experiment):
    for name, field in type(experiment.paper).model_fields.items():
        assert field.description, f"{experiment.name}: {name}"


@each
@at_each_scale
def test_every_point_of_the_grid_has_as_many_seeds_as_its_claims_need(experiment, scale):
    by_point = {}
    for config in experiment.configs(scale):
        by_point.setdefault(config.but(seed=0), set()).add(config.seed)
    fewest = min(map(len, by_point.values()))
    assert fewest >= 3
    assert all(3 <= claim.seeds <= fewest for claim in experiment.claims)


@each
def test_the_paper_preset_is_no_smaller_than_the_laptop_s(experiment):
    laptop, paper = experiment.laptop.model_dump(), experiment.paper.model_dump()
    for size in ("width", "dim", "n_train", "hidden", "epochs", "steps"):
        assert (paper.get(size) or 0) >= (laptop.get(size) or 0), size
    assert len(experiment.configs("paper")) >= 3


@each
def test_claims_say_what_where_and_with_what_origin(experiment):
    assert experiment.claims
    for claim in experiment.claims:
        assert re.fullmatch(r"[a-z0-9_]+", claim.id)
        assert len(claim.says) > 20
        assert claim.where
        assert claim.paper is not None or claim.origin != "paper", "what the paper says stands beside the verdict"
        assert bool(claim.because()) == (claim.documented() != "holds")
        bounds = [claim.expect] if isinstance(claim.expect, Bound) else list(claim.expect.values())
        assert bounds
        assert all(bound.low > float("-inf") or bound.high < float("inf") for bound in bounds)


@each
@at_each_scale
def test_the_declared_search_is_one_that_the_preset_accepts(experiment, scale):
    configs = lay_out(experiment.preset(scale), experiment.sweep_axes, samples=5, seed=0)
    assert len(configs) > 1
    for name, axis in experiment.sweep_axes.items():
        assert not isinstance(axis, Listed)
        assert len({getattr(config, name) for config in configs}) > 1
        assert parse_axis(str(axis)).law == axis.law


@each
def test_the_declared_search_has_a_rate_a_width_and_a_regulariser_where_there_are_such(experiment):
    fields, axes = set(type(experiment.laptop).model_fields), set(experiment.sweep_axes)
    sizes = {"width", "dim", "n_train"}
    assert axes & sizes or not fields & sizes
    assert bool(fields & RATES) == experiment.trains
    if fields & RATES:
        assert axes & RATES
        assert axes & REGULARISERS
    assert axes & REGULARISERS or not fields & REGULARISERS


@each
@at_each_scale
def test_costs_are_estimated_and_name_the_data(experiment, scale):
    costs = [experiment.estimate(config) for config in experiment.configs(scale)]
    assert all(cost.parameters > 0 and cost.flops > 0 and cost.memory_bytes > 0 for cost in costs)
    assert {name for cost in costs for name in cost.data} == set(experiment.needs if scale == "paper" else ())
    assert 0 < experiment.gpu_hours(scale) < 10_000


@each
def test_a_laptop_preset_that_stands_in_for_other_data_says_so(experiment):
    costs = [experiment.estimate(config) for config in experiment.configs("paper")] if experiment.estimate else []
    assert bool(experiment.stand_in) == bool(experiment.needs or any(cost.models for cost in costs))


@each
def test_summary_and_description_speak_of_the_same_claims(experiment):
    summary, description = experiment.summary(), experiment.describe("paper")
    assert summary["claims"] == [claim["id"] for claim in description["claims"]]
    assert [field["name"] for field in description["fields"]] == list(type(experiment.paper).model_fields)
    assert description["config"]["seed"] == 0


def test_first_looks_are_few_and_quick():
    headlines = [experiment for experiment in EXPERIMENTS if experiment.headline]
    by_system = Counter(experiment.system for experiment in headlines)
    assert max(by_system.values()) <= 2
    assert sum(experiment.minutes for experiment in headlines) <= 6
