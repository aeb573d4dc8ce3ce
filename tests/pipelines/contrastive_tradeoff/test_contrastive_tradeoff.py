"""What the figures on contrastive pre-training rest on."""

import pytest
import torch

from featurelab.modules import theory
from featurelab.pipelines.contrastive_tradeoff import (
    invariant_features,
    label_efficiency,
    learned_weights,
    rademacher,
    target_learning,
    xor_layout,
)
from featurelab.pipelines.engine.verdict.check import performed


def test_weights_of_two_tasks_come_to_their_closed_form_in_a_few_steps():
    config = learned_weights.even.laptop.but(tasks=2, shared=2, private=2, spurious=2, steps=150, batch_size=512)
    found = performed(learned_weights.even, [config])
    assert found.final("weight/shared") == pytest.approx(1, abs=0.02)
    assert found.final("weight/private/0") == pytest.approx(0.5, abs=0.05)
    assert found.final("weight/spurious") < 0.02


@pytest.mark.parametrize("control", ["untrained", "shuffled_pairs"])
def test_without_pairs_or_updates_nothing_is_learned(control):
    config = learned_weights.even.laptop.but(
        tasks=2, shared=2, private=2, spurious=2, steps=90, batch_size=256, control=control
    )
    assert performed(learned_weights.even, [config]).final("weight/shared") < 0.2


def test_tasks_that_are_not_in_the_mixture_get_no_weight():
    config = learned_weights.even.laptop.but(
        tasks=1, present=2, shared=2, private=2, spurious=1, steps=150, batch_size=256
    )
    found = performed(learned_weights.even, [config])
    assert found.final("weight/private/0") == pytest.approx(1, abs=0.03)
    assert found.final("weight/private/1") < 0.01


def test_learning_on_the_target_moves_as_far_as_it_may_and_no_farther():
    config = target_learning.figure.laptop.but(spurious=2, steps=90, batch_size=128, radius=0.4)
    found = performed(target_learning.figure, [config])
    assert found.final("moved") == pytest.approx(0.4, abs=1e-6)
    assert found.final("weight/private/0") ** 0.5 == pytest.approx(0.7, abs=0.02)


def test_shuffled_pairs_make_the_best_representation_constant():
    config = invariant_features.figure.laptop.but(norm=1.0, steps=400)
    found = {c: performed(invariant_features.figure, [config.but(control=c)]) for c in ("none", "shuffled_pairs")}
    assert found["none"].final("encoding/z1") > 0.3
    assert found["shuffled_pairs"].final("encoding/z1") < 0.01


def test_risks_of_ideal_weights_are_those_of_a_bare_loop():
    s, tasks, m = 3, 4, 8
    scale = torch.tensor([1.0] * s + [tasks**-0.5] * s, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(9, 2 * s, dtype=torch.float64)).Q
    F = scale[:, None] * rotation.T
    goal = torch.full((2 * s,), (1 / (2 * s)) ** 0.5, dtype=torch.float64)
    z = torch.randn(5 * m, 2 * s, dtype=torch.float64)
    y = z @ goal
    radius = float(theory.contrastive_tradeoff.predicted_predictor_norm(0.5, 0.5, 1, 1 / tasks))
    total = 0.0
    for part in range(5):
        rows = slice(part * m, part * m + m)
        u = theory.contrastive_tradeoff.least_squares_in_ball(z[rows] @ F, y[rows], radius)
        total += (F @ u - goal).square().sum().item() / 5
    assert label_efficiency.risk(z @ F, y, F, goal, m, m).item() == pytest.approx(total, abs=1e-9)


def test_layouts_of_the_square_have_the_least_loss_of_a_fine_search():
    places = torch.tensor(xor_layout.LAYOUTS["xor"], dtype=torch.float64) * torch.pi / 2
    best = xor_layout.losses(xor_layout.circle(places)[None]).item()
    around = places + 0.05 * torch.randn(500, 4, dtype=torch.float64)
    assert (xor_layout.losses(xor_layout.circle(around)) >= best).all()
    assert xor_layout.least_of_grid(12) == pytest.approx(best)


def test_the_complexity_depends_on_the_number_of_samples_as_its_leading_term():
    config = rademacher.figure.laptop.but(tasks=4, draws=2000)
    found = [performed(rademacher.figure, [config.but(samples=m)]).final("over_leading") for m in (10, 100)]
    assert found[0] == pytest.approx(found[1], rel=0.02)
