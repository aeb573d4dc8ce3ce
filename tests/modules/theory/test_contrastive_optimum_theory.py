"""Closed forms of contrastive pre-training against finite differences, sampling and other solvers."""

import numpy as np
import pytest
import torch
from scipy import optimize

from featurelab.modules import theory

KINDS = ["logistic", "exp", "linear"]


def chi(dof, n, seed):
    return torch.from_numpy(np.random.default_rng(seed).chisquare(dof, n))


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_of_pair_losses_are_their_finite_differences(kind):
    t = torch.linspace(-3, 3, 13, dtype=torch.float64)
    slope = (
        theory.contrastive_tradeoff.pair_loss(t + 1e-6, kind) - theory.contrastive_tradeoff.pair_loss(t - 1e-6, kind)
    ) / 2e-6
    assert torch.allclose(theory.contrastive_tradeoff.pair_loss_slope(t, kind), slope, atol=1e-8)
    with pytest.raises(ValueError, match="did you mean 'logistic'"):
        theory.contrastive_tradeoff.pair_loss(t, "logistik")


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_the_uneven_objective_is_its_finite_difference(kind):
    Z, Zt = chi(3, 500, 0), torch.stack([chi(2, 500, seed) for seed in (1, 2, 3)])
    a, weights = np.array([0.7, 0.2, 0.5, 0.9]), (0.5, 0.3, 0.2)
    options = {"kind": kind, "shared_scale": 1.2, "private_scale": 0.8}
    _, gradient = theory.contrastive_tradeoff.uneven_objective(a, weights, Z, Zt, **options)
    steps = 1e-5 * np.eye(4)
    values = [
        [theory.contrastive_tradeoff.uneven_objective(a + s * h, weights, Z, Zt, **options)[0] for s in (1, -1)]
        for h in steps
    ]
    assert gradient == pytest.approx([(up - down) / 2e-5 for up, down in values], rel=1e-5)


def test_even_weights_have_the_even_optimum():
    Z, one = chi(4, 5000, 0), chi(4, 5000, 1)
    alpha, own = theory.contrastive_tradeoff.uneven_optimum([0.25] * 4, Z, one.expand(4, -1), shared=4, private=4)
    even = theory.contrastive_tradeoff.even_optimum(Z, one, shared=4, private=4, tasks=4)
    assert (alpha, *own.tolist()) == pytest.approx((even.alpha, *[even.beta] * 4), abs=1e-4)
    assert even.beta == theory.contrastive_tradeoff.private_weight(even.alpha, 4, 4, 4) == 0.25
    assert even.losses.argmin() == 200


def test_the_uneven_optimum_is_no_worse_than_any_point_that_is_allowed():
    Z, Zt = chi(4, 2000, 0), torch.stack([chi(4, 2000, seed) for seed in (1, 2, 3)])
    weights, s, q = (0.6, 0.3, 0.1), 4, 4
    alpha, own = theory.contrastive_tradeoff.uneven_optimum(weights, Z, Zt, shared=s, private=q)
    best = theory.contrastive_tradeoff.uneven_objective(np.array([alpha, *own]), weights, Z, Zt)[0]
    assert s * alpha + q * own.sum().item() <= s + q + 1e-8
    chance = np.random.default_rng(0)
    for _ in range(300):
        a = chance.random(4)
        a *= min(1.0, (s + q) / (s * a[0] + q * a[1:].sum()))
        assert theory.contrastive_tradeoff.uneven_objective(a, weights, Z, Zt)[0] >= best - 1e-9
    with pytest.raises(ValueError, match="2 weights for 3 tasks"):
        theory.contrastive_tradeoff.uneven_optimum(weights[:2], Z, Zt, shared=s, private=q)


def test_the_least_predictor_is_that_of_a_constrained_solver_and_of_the_closed_form():
    F, u = normal(4, 6), normal(4, seed=1)
    found = optimize.minimize(
        lambda v: v @ v, np.zeros(6), constraints={"type": "eq", "fun": lambda v: F.numpy() @ v - u.numpy()}
    )
    assert theory.contrastive_tradeoff.predictor_norm(F, u).item() == pytest.approx(found.fun**0.5, rel=1e-5)
    alpha, beta = 0.9, 0.2
    scaled = torch.diag(torch.tensor([alpha, alpha, beta, beta], dtype=torch.float64).sqrt())
    rotated = scaled @ torch.linalg.qr(normal(7, 4, seed=2)).Q.T
    v1, v2 = u[:2].square().sum().item(), u[2:].square().sum().item()
    assert theory.contrastive_tradeoff.predictor_norm(rotated, u).item() == pytest.approx(
        theory.contrastive_tradeoff.predicted_predictor_norm(v1, v2, alpha, beta)
    )
    lost = torch.cat([scaled[:2], 1e-5 * scaled[2:]])
    assert theory.contrastive_tradeoff.predictor_norm(lost, u).item() == pytest.approx((v1 / alpha) ** 0.5)


def test_the_rademacher_complexity_is_the_supremum_over_the_ball_and_below_its_leading_term():
    features, signs = normal(5, 20, 3), torch.from_numpy(np.random.default_rng(3).choice([-1.0, 1.0], (5, 20)))
    found = theory.contrastive_tradeoff.rademacher_complexity(features, signs, 2.5)
    for draw in range(5):
        mean = sum(signs[draw, i] * features[draw, i] for i in range(20)) / 20
        best = max(2.5 * (normal(3, seed=s) / normal(3, seed=s).norm()) @ mean for s in range(2000))
        assert best <= found[draw] <= best * 1.05
    many = normal(4000, 10, 8) * torch.tensor([0.9] * 4 + [0.3] * 4, dtype=torch.float64).sqrt()
    radius = theory.contrastive_tradeoff.predicted_predictor_norm(0.5, 0.5, 0.9, 0.3)
    mean = theory.contrastive_tradeoff.rademacher_complexity(many, torch.ones(4000, 10), radius).mean().item()
    leading = theory.contrastive_tradeoff.rademacher_leading(0.5, 0.5, 0.9, 0.3, shared=4, private=4, m=10)
    assert 0.9 * leading < mean <= leading


def test_the_regularised_root_ends_at_one():
    roots = [theory.contrastive_tradeoff.regularised_root(4, radius, 9) for radius in (0.0, 0.3, 1.5, 9.0)]
    assert roots == pytest.approx([0.5, 0.6, 1.0, 1.0])


def test_feature_weights_are_read_off_blocks():
    s, q, tasks, d = 2, 3, 2, 10
    G = torch.zeros(d, d, dtype=torch.float64)
    G[range(2), range(2)], G[range(2, 5), range(2, 5)], G[range(5, 8), range(5, 8)] = 0.9, 0.5, 0.3
    G[8, 8], G[9, 9] = 0.02, 0.01
    G[0, 2] = G[2, 0] = -0.04  # shared and private of a task
    G[3, 6] = G[6, 3] = 0.2  # private of two tasks
    F = torch.linalg.cholesky(G + 1e-15 * torch.eye(d))
    found = theory.contrastive_tradeoff.feature_weights(F, s, q, tasks)
    values = [found.shared, *found.private, found.spurious, found.within, found.across, found.spread]
    assert [v.item() for v in values] == pytest.approx([0.9, 0.5, 0.3, 0.02, 0.04, 0.2, 0.0], abs=1e-9)
    with pytest.raises(ValueError, match="do not fit"):
        theory.contrastive_tradeoff.feature_weights(F, 8, 3, 2)


def test_feature_weights_do_not_change_under_a_rotation_of_the_representation():
    F = normal(12, 9)
    rotation = torch.linalg.qr(normal(9, 9, seed=5)).Q
    for a, b in zip(
        theory.contrastive_tradeoff.feature_weights(F, 3, 2, 3),
        theory.contrastive_tradeoff.feature_weights(F @ rotation, 3, 2, 3),
        strict=True,
    ):
        assert torch.allclose(a, b)
