"""The figures on synthetic data: one step of the paper's presets at its widths, and what a step depends on."""

import pytest

from featurelab.pipelines.alignment_elasticity.one_step import SMALL
from featurelab.pipelines.alignment_elasticity.recall import LOGARITHMIC
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import performed, recorded

ELSEWHERE = ("ranking", "metric_learning", "tables")
SAME = ("rotations_short_means",)  # its paper preset is that of `rotations`
NAMES = [
    name
    for name in (figure.name.partition("/")[2] for figure in registry.experiments("alignment_elasticity"))
    if name not in ELSEWHERE + SAME
]


def experiment(name):
    return registry.find(f"alignment_elasticity/{name}")


@pytest.mark.parametrize("name", NAMES)
def test_presets_of_the_paper_take_their_step_at_its_widths(name):
    """With few samples and classes; dimension and width are the paper's own."""
    figure = experiment(name)
    fields = type(figure.paper).model_fields
    fewer = {"n_train": 16, "networks": 1, "n_test": 4, "rotations": 2, "shares": LOGARITHMIC[-2:]}
    if name in ("rank_one", "rank_one_regression", "decomposition"):
        fewer |= {"dim": 2048, "width": 64}  # the operator norm of a square matrix of that size takes a minute
    if name in ("rotations", "rotations_recall", "rotation_generator"):
        fewer |= {"dim": 256, "rotations": 3}  # and so does a rotation
    config = figure.paper.but(**{k: v for k, v in fewer.items() if k in fields})
    results = performed(figure, [config])
    assert results.trials.status.tolist() == ["finished"]
    assert recorded(results).value.notna().all()


def test_paper_presets_have_the_paper_s_sizes():
    for name in ("scores", "recall", "rotations", "rotations_recall"):
        paper = experiment(name).paper
        assert (paper.n_train, paper.dim, paper.width, paper.networks) == (2048, 2048, 2048, 30)
        assert paper.lr_exponent == 0.25
    assert experiment("rotations").paper.rotations == 300
    assert {config.mean_norm for config in experiment("rotations_recall").configs("paper")} == {5.0}


def test_a_trial_repeats_to_the_last_digit():
    figure = experiment("recall")
    config = figure.laptop.but(**SMALL)
    first, second = (recorded(performed(figure, [config])).value.tolist() for _ in range(2))
    assert first == second


def test_weight_decay_and_rate_change_the_step():
    figure = experiment("scores")
    values = [
        performed(figure, [figure.laptop.but(**SMALL, **change)]).final("elasticity/unseen")
        for change in ({}, {"weight_decay": 0.01}, {"lr_exponent": 0.1})
    ]
    assert len(set(values)) == 3


def test_more_networks_include_the_same_first_ones():
    """The average over two networks differs from the first one, and so does another seed."""
    figure = experiment("nearer_classes")
    one, two, other = (
        performed(figure, [figure.laptop.but(**(SMALL | {"networks": k, "seed": seed}))]).curve("alignment/initial")
        for k, seed in ((1, 0), (2, 0), (1, 1))
    )
    assert not one.equals(two)
    assert not one.equals(other)
