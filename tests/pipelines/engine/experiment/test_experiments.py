"""Rules that every experiment of the registry obeys; each test names all experiments that break its rule."""

import re
from collections import Counter
from collections.abc import Callable, Iterator

from featurelab.pipelines.engine.experiment.axes import Listed, lay_out, parse_axis
from featurelab.pipelines.engine.experiment.bounds import Bound
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.experiment import Experiment

EXPERIMENTS = registry.experiments()
RATES = {"lr", "lr_exponent"}
REGULARISERS = {"weight_decay", "ridge"}
SIZES = {"width", "dim", "n_train"}

Rule = Callable[[Experiment], Iterator[str]]


def broken(rule: Rule) -> list[str]:
    """What breaks the rule, one line each: the name of the experiment and what is wrong with it."""
    found = []
    for experiment in EXPERIMENTS:
        try:
            found += [f"{experiment.name}: {wrong}" for wrong in rule(experiment)]
        except Exception as error:
            found.append(f"{experiment.name}: {type(error).__name__}: {error}")
    return found


def of_every_experiment(rule: Rule) -> Callable[[], None]:
    """Make a test of a rule that yields what is wrong with one experiment."""

    def test() -> None:
        assert len(EXPERIMENTS) > 100
        found = broken(rule)
        assert not found, "\n".join([f"{len(found)} times:", *found])

    return test


def test_all_that_breaks_a_rule_is_named() -> None:
    def short_name(experiment: Experiment) -> Iterator[str]:
        if experiment is EXPERIMENTS[0]:
            yield "one thing"
            yield "another"
        if experiment is EXPERIMENTS[1]:
            raise LookupError("nothing here")

    first, second = EXPERIMENTS[0].name, EXPERIMENTS[1].name
    assert broken(short_name) == [f"{first}: one thing", f"{first}: another", f"{second}: LookupError: nothing here"]


@of_every_experiment
def test_presets_are_valid_and_can_be_stored(experiment: Experiment) -> Iterator[str]:
    for scale in experiment.scales:
        preset = experiment.preset(scale)
        if type(preset).read(preset.model_dump(mode="json")) != preset:
            yield f"the {scale} preset is another one once it is read back"


@of_every_experiment
def test_grids_name_each_trial_once(experiment: Experiment) -> Iterator[str]:
    for scale in experiment.scales:
        configs, varied = experiment.configs(scale), experiment.varied(scale)
        if not configs:
            yield f"the {scale} grid is empty"
        if len(set(configs)) < len(configs):
            yield f"the {scale} grid has a trial twice"
        if len({config.label(varied) for config in configs}) < len(configs):
            yield f"two trials of the {scale} grid have the same name"
        if unknown := set(varied) - set(type(experiment.preset(scale)).model_fields):
            yield f"the {scale} grid varies unknown settings {unknown}"


@of_every_experiment
def test_every_setting_says_what_it_means(experiment: Experiment) -> Iterator[str]:
    for name, field in type(experiment.paper).model_fields.items():
        if not field.description:
            yield f"{name} has no description"


@of_every_experiment
def test_every_point_of_the_grid_has_as_many_seeds_as_its_claims_need(experiment: Experiment) -> Iterator[str]:
    for scale in experiment.scales:
        seeds: dict[object, set[int]] = {}
        for config in experiment.configs(scale):
            seeds.setdefault(config.but(seed=0), set()).add(config.seed)
        fewest = min(map(len, seeds.values()))
        if fewest < 3:
            yield f"a point of the {scale} grid has {fewest} seeds"
        for claim in experiment.claims:
            if not 3 <= claim.seeds <= fewest:
                yield f"claim {claim.id} needs {claim.seeds} seeds, the {scale} grid has {fewest}"


@of_every_experiment
def test_the_paper_preset_is_no_smaller_than_the_laptop_s(experiment: Experiment) -> Iterator[str]:
    laptop, paper = experiment.laptop.model_dump(), experiment.paper.model_dump()
    for size in ("width", "dim", "n_train", "hidden", "epochs", "steps"):
        if (paper.get(size) or 0) < (laptop.get(size) or 0):
            yield f"{size} is {paper.get(size)} in the paper preset and {laptop[size]} in the laptop preset"
    if len(experiment.configs("paper")) < 3:
        yield "the paper grid has fewer than 3 trials"


@of_every_experiment
def test_claims_say_what_where_and_with_what_origin(experiment: Experiment) -> Iterator[str]:
    if not experiment.claims:
        yield "there is no claim"
    for claim in experiment.claims:
        if not re.fullmatch(r"[a-z0-9_]+", claim.id):
            yield f"claim {claim.id!r} has an id with other characters than a-z, 0-9 and _"
        if len(claim.says) <= 20:
            yield f"claim {claim.id} says no whole sentence"
        if not claim.where:
            yield f"claim {claim.id} does not say where it stands"
        if claim.paper is None and claim.origin == "paper":
            yield f"claim {claim.id} does not say the paper's value"
        if bool(claim.because()) != (claim.documented() != "holds"):
            yield f"claim {claim.id} is documented as {claim.documented()!r} for the reason {claim.because()!r}"
        bounds = [claim.expect] if isinstance(claim.expect, Bound) else list(claim.expect.values())
        if not bounds or any(bound.low == float("-inf") and bound.high == float("inf") for bound in bounds):
            yield f"claim {claim.id} expects any value"


@of_every_experiment
def test_the_declared_search_is_one_that_the_preset_accepts(experiment: Experiment) -> Iterator[str]:
    for scale in experiment.scales:
        configs = lay_out(experiment.preset(scale), experiment.sweep_axes, samples=5, seed=0)
        if len(configs) < 2:
            yield f"the search at {scale} scale has one trial"
        for name, axis in experiment.sweep_axes.items():
            if isinstance(axis, Listed):
                yield f"{name} is listed, not searched"
            elif parse_axis(str(axis)).law != axis.law:
                yield f"{name} is another domain once it is read back"
            if len({getattr(config, name) for config in configs}) < 2:
                yield f"{name} does not vary at {scale} scale"


@of_every_experiment
def test_what_trains_has_a_learning_rate_and_nothing_else_has_one(experiment: Experiment) -> Iterator[str]:
    if experiment.trains != bool(set(type(experiment.laptop).model_fields) & RATES):
        yield f"trains is {experiment.trains}, its settings are {sorted(type(experiment.laptop).model_fields)}"


@of_every_experiment
def test_the_declared_search_has_a_rate_a_size_and_a_regulariser_where_there_are_such(
    experiment: Experiment,
) -> Iterator[str]:
    fields, axes = set(type(experiment.laptop).model_fields), set(experiment.sweep_axes)
    if fields & SIZES and not axes & SIZES:
        yield f"none of {fields & SIZES} is searched"
    if fields & RATES and not axes & RATES:
        yield f"none of {fields & RATES} is searched"
    if fields & (RATES | REGULARISERS) and not axes & REGULARISERS:
        yield "no regulariser is searched"


@of_every_experiment
def test_costs_are_estimated_and_name_the_data(experiment: Experiment) -> Iterator[str]:
    for scale in experiment.scales:
        costs = [experiment.estimate(config) for config in experiment.configs(scale)]  # type: ignore[misc]
        if not all(cost.parameters > 0 and cost.flops > 0 and cost.memory_bytes > 0 for cost in costs):
            yield f"a trial at {scale} scale costs nothing"
        named, needed = {name for cost in costs for name in cost.data}, experiment.needs if scale == "paper" else ()
        if not (named if scale == "desktop" else named == set(needed)):
            yield f"the costs at {scale} scale name the data {named}, the experiment {set(needed)}"
        hours = sum(cost.gpu_hours for cost in costs)
        if abs(experiment.gpu_hours(scale) - hours) > 0.005001 * hours:  # three digits, and sums of floats
            yield f"the costs at {scale} scale depend on the seed"
        if not 0 < experiment.gpu_hours(scale) < 10_000:
            yield f"{experiment.gpu_hours(scale)} GPU hours at {scale} scale"


@of_every_experiment
def test_a_laptop_preset_that_stands_in_for_other_data_says_so(experiment: Experiment) -> Iterator[str]:
    costs = [experiment.estimate(config) for config in experiment.configs("paper")] if experiment.estimate else []
    other = bool(experiment.needs or any(cost.models for cost in costs))
    if bool(experiment.stand_in) != other:
        yield f"stand_in is {experiment.stand_in!r}, and the paper preset needs {'other' if other else 'no'} data"


@of_every_experiment
def test_summary_and_description_speak_of_the_same_claims(experiment: Experiment) -> Iterator[str]:
    summary, description = experiment.summary(), experiment.describe("paper")
    if summary["claims"] != [claim["id"] for claim in description["claims"]]:
        yield "summary and description name other claims"
    if [field["name"] for field in description["fields"]] != list(type(experiment.paper).model_fields):
        yield "the description names other settings"
    if description["config"]["seed"] != 0:
        yield "the described seed is not 0"


def test_first_looks_are_few_and_quick() -> None:
    headlines = [experiment for experiment in EXPERIMENTS if experiment.headline]
    by_system = Counter(experiment.system for experiment in headlines)
    assert max(by_system.values()) <= 2
    assert sum(experiment.minutes for experiment in headlines) <= 10
