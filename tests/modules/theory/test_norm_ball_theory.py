"""Least squares in a ball, against a general solver, and risks against samples."""

import numpy as np
import pytest
import torch
from scipy import optimize

from featurelab.modules import theory


def problem(m, k, seed=0):
    chance = np.random.default_rng(seed)
    return torch.from_numpy(chance.standard_normal((m, k))), torch.from_numpy(chance.standard_normal(m))


@pytest.mark.parametrize(("m", "k", "radius"), [(8, 3, 0.3), (8, 3, 9.0), (3, 6, 0.2), (3, 6, 9.0)])
def test_the_minimiser_is_that_of_a_general_solver(m, k, radius):
    features, y = problem(m, k)
    found = theory.contrastive_tradeoff.least_squares_in_ball(features, y, radius)
    assert found.norm() <= radius * (1 + 1e-9)
    other = optimize.minimize(
        lambda u: np.square(features.numpy() @ u - y.numpy()).sum(),
        np.zeros(k),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda u: radius**2 - u @ u},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert (features @ found - y).square().sum().item() <= other.fun + 1e-7
    if m > k:
        assert found.numpy() == pytest.approx(other.x, abs=1e-4)


def test_inside_the_ball_it_is_the_shortest_least_squares_solution():
    features, y = problem(4, 7)
    shortest = torch.linalg.pinv(features) @ y
    assert torch.allclose(theory.contrastive_tradeoff.least_squares_in_ball(features, y, 100.0), shortest)


def test_a_batch_is_solved_as_its_parts_are():
    features, y = zip(*[problem(5, 3, seed) for seed in range(4)], strict=True)
    together = theory.contrastive_tradeoff.least_squares_in_ball(torch.stack(features), torch.stack(y), 0.4)
    for row, one, target in zip(together, features, y, strict=True):
        assert torch.allclose(row, theory.contrastive_tradeoff.least_squares_in_ball(one, target, 0.4))


def test_features_that_repeat_one_another_and_labels_of_zero_do_no_harm():
    features, y = problem(6, 2)
    twice = torch.cat([features, features], 1)
    half = theory.contrastive_tradeoff.least_squares_in_ball(twice, y, 50.0)
    assert torch.allclose(half[:2] + half[2:], theory.contrastive_tradeoff.least_squares_in_ball(features, y, 50.0))
    assert theory.contrastive_tradeoff.least_squares_in_ball(features, 0 * y, 1.0).norm() == 0
    with pytest.raises(ValueError, match="radius"):
        theory.contrastive_tradeoff.least_squares_in_ball(features, y, 0.0)


def test_the_excess_risk_is_that_of_fresh_samples():
    chance = np.random.default_rng(1)
    F, u, target = (torch.from_numpy(chance.standard_normal(shape)) for shape in ((5, 3), (3,), (5,)))
    z = torch.from_numpy(chance.standard_normal((400_000, 5)))
    sampled = (z @ F @ u - z @ target).square().mean().item()
    assert theory.contrastive_tradeoff.excess_risk(u, F, target).item() == pytest.approx(sampled, rel=0.02)
    assert theory.contrastive_tradeoff.excess_risk(torch.stack([u, 0 * u]), F, target)[1].item() == pytest.approx(
        target @ target
    )
