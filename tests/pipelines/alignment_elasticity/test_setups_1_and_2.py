"""The figures on synthetic data: run small, and one step of the paper's presets at its widths."""

import pytest
from checking import check_figure

from featurelab.pipelines.alignment_elasticity.recall import LOGARITHMIC
from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.verdict.check import performed, recorded

SMALL = {"n_train": 24, "dim": 24, "width": 24, "networks": 1, "n_test": 20}
SIZES = {
    "scores": SMALL,
    "recall": SMALL,
    "rotations": SMALL | {"rotations": 8},
    "rotations_recall": SMALL | {"rotations": 8},
    "rotations_short_means": SMALL | {"rotations": 8},
    "theory": SMALL,
    "learning_rate": SMALL,
    "nearer_classes": SMALL,
    "rank_one": {},
    "rank_one_regression": {},
    "decomposition": {},
    "hermite": {"dim": 4, "width": 2, "nodes": 30, "degree": 6},
    "generators": {"dim": 8, "n_train": 64},
    "rotation_generator": {"dim": 16, "rotations": 5},
}


def experiment(name):
    return registry.find(f"alignment_elasticity/{name}")


@pytest.mark.parametrize("name", [name for name, sizes in SIZES.items() if sizes])
def test_figures_can_be_judged_and_drawn_small(name):
    check_figure(experiment(name), **SIZES[name])


@pytest.mark.parametrize("name", ["rank_one", "rank_one_regression", "decomposition"])
def test_figures_over_sizes_can_be_judged_and_drawn_small(name, monkeypatch):
    figure = experiment(name)
    sizes = [(8,) * 4, (12,) * 4] if name == "decomposition" else [(8,) * 3, (12,) * 3]
    grid = {key: sizes if "n_train" in key else values for key, values in figure.grid.items()}
    monkeypatch.setattr(figure, "grid", grid)
    check_figure(figure)


@pytest.mark.parametrize("name", SIZES)
def test_presets_of_the_paper_take_their_step_at_its_widths(name):
    """With few samples and classes; dimension and width are the paper's own."""
    figure = experiment(name)
    fields = type(figure.paper).model_fields
    fewer = {"n_train": 16, "networks": 1, "n_test": 4, "rotations": 2, "shares": LOGARITHMIC[-2:]}
    if name in ("rank_one", "rank_one_regression", "decomposition"):
        fewer |= {"dim": 2048, "width": 64}  # the operator norm of a square matrix of that size takes a minute
    if name in ("rotations", "rotations_recall", "rotations_short_means", "rotation_generator"):
        fewer |= {"dim": 256, "rotations": 3}  # and so does a rotation
    config = figure.paper.but(**{k: v for k, v in fewer.items() if k in fields})
    results = performed(figure, [config])
    assert results.trials.status.tolist() == ["finished"]
    assert recorded(results).value.notna().all()


def test_the_paper_s_presets_are_its_numbers():
    for name in ("scores", "recall", "rotations", "rotations_recall"):
        paper = experiment(name).paper
        assert (paper.n_train, paper.dim, paper.width, paper.networks) == (2048, 2048, 2048, 30)
        assert paper.lr_exponent == 0.25
    assert experiment("rotations").paper.rotations == 300


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


def test_more_networks_keep_those_that_were_there():
    """An average over more networks is of the same ones and further ones: so it moves by less than they differ."""
    figure = experiment("nearer_classes")
    one, two, other = (
        performed(figure, [figure.laptop.but(**(SMALL | {"networks": k, "seed": seed}))]).curve("alignment/initial")
        for k, seed in ((1, 0), (2, 0), (1, 1))
    )
    assert not one.equals(two)
    assert not one.equals(other)
