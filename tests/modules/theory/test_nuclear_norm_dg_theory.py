"""Closed forms of domain generalisation against sampling, finite differences and the text's own tables."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from featurelab.modules import data, measures, theory

DIRECTIONS = [(1.0, 0.4), (1.0, -0.4), (0.3, 1.0), (-0.3, 1.0), (-1.0, -0.2), (1.0, 0.0), (0.0, 1.0)]


@pytest.mark.parametrize("w", DIRECTIONS)
def test_the_accuracy_of_a_direction_is_what_samples_say(w):
    x, y = data.environment_samples(200_000, 0.7, data.stream(0, "samples"))
    share = (y[:, 0] * (x @ torch.tensor(w, dtype=torch.float64)) > 0).double().mean().item()
    assert theory.nuclear_norm_dg.direction_accuracy(w, 0.7) == pytest.approx(share, abs=0.005)


@given(st.floats(0, 1), st.floats(0.1, 10), st.floats(0, 1))
def test_the_accuracy_of_a_slope_up_to_one_is_linear_in_it(t, scale, agreement):
    assert theory.nuclear_norm_dg.direction_accuracy((scale, scale * t), agreement) == pytest.approx(
        1 - (1 - agreement) * t / 2
    )


def test_the_second_moment_is_that_of_samples():
    x, _ = data.environment_samples(200_000, 0.7, data.stream(0, "samples"))
    assert torch.allclose(x.T @ x / len(x), theory.nuclear_norm_dg.second_moment(0.7), atol=0.005)


@pytest.mark.parametrize(("penalty", "strength"), itertools.product(["l2", "nuclear"], [0.3, 0.01]))
def test_no_neighbour_of_a_population_optimum_is_better_on_many_samples(penalty, strength):
    x, y = data.environment_samples(400_000, 0.7, data.stream(1, "samples"))
    M = theory.nuclear_norm_dg.second_moment(0.7)

    def objective(w):
        size = strength / 2 * w @ w if penalty == "l2" else strength * (w @ M @ w).sqrt()
        return (torch.nn.functional.softplus(-y[:, 0] * (x @ w)).mean() + size).item()

    w = theory.nuclear_norm_dg.population_optimum(penalty, strength)
    around = [w + step for step in 0.15 * w.norm() * torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1.0]]).double()]
    assert objective(w) < min(map(objective, around))


@pytest.mark.parametrize(("penalty", "strength", "slope"), [("l2", 0.1, 0.2890), ("nuclear", 0.01, 0.0633)])
def test_slopes_of_population_optima_are_those_of_a_finer_quadrature(penalty, strength, slope):
    found = theory.nuclear_norm_dg.population_optimum(penalty, strength, nodes=60)
    assert (found[1] / found[0]).item() == pytest.approx(slope, abs=1e-4)


def test_a_strong_nuclear_norm_leaves_nothing():
    assert theory.nuclear_norm_dg.population_optimum("nuclear", 1.0).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="strength"):
        theory.nuclear_norm_dg.population_optimum("l2", 0.0)


def test_weights_found_on_sums_are_those_found_on_all_features_where_these_are_alike():
    z = data.environmental_features(30_000, 12, 4, 0.3, 0)
    w = theory.nuclear_norm_dg.ridge_weights(z, 0.1)
    sums = torch.stack([z[:, :4].sum(1), z[:, 4:].sum(1)], 1)
    shared = theory.nuclear_norm_dg.ridge_weights(sums, 0.1, torch.tensor([4.0, 8.0], dtype=torch.float64))
    assert shared.tolist() == pytest.approx([w[:4].mean().item(), w[4:].mean().item()], rel=0.01)


def test_ridge_weights_have_no_gradient_left():
    z = data.environmental_features(500, 6, 3, 0.3, 0)
    w = theory.nuclear_norm_dg.ridge_weights(z, 0.05)
    steps = 1e-4 * torch.eye(6, dtype=torch.float64)
    slopes = [
        (
            theory.nuclear_norm_dg.ridge_objective(z, w + s, 0.05)
            - theory.nuclear_norm_dg.ridge_objective(z, w - s, 0.05)
        )
        / 2e-4
        for s in steps
    ]
    assert np.abs(slopes).max() < 1e-7


def test_the_logarithm_of_accuracy_out_of_domain_is_that_of_samples_where_samples_can_tell():
    z = data.environmental_features(100_000, 60, 16, -0.3, 0)
    alpha, beta = 0.34, 0.18
    share = ((alpha * z[:, :16].sum(1) + beta * z[:, 16:].sum(1)) > 0).double().mean().item()
    assert theory.nuclear_norm_dg.log_accuracy_out_of_domain(alpha, beta, 16, 60, 0.3) == pytest.approx(
        math.log(share), abs=0.02
    )


def test_the_best_support_is_the_first_of_all_of_them():
    z = data.environmental_features(2000, 5, 2, 0.2, 0)
    found = theory.nuclear_norm_dg.best_supports(z, 2, 0.01)
    assert len(found) == 10
    assert found[0][1] == (0, 1)
    assert [value for value, _ in found] == sorted(value for value, _ in found)
    with pytest.raises(ValueError, match="between 1 and 5"):
        theory.nuclear_norm_dg.best_supports(z, 6, 0.01)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**31))
def test_the_nuclear_norm_lies_between_frobenius_norms_and_ignores_rotations(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    F = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    size, rank = torch.linalg.matrix_norm(F), min(rows, columns)
    norm = measures.nuclear_norm(F)
    assert size * (1 - 1e-9) <= norm <= rank**0.5 * size * (1 + 1e-9)
    Q, R = (measures.haar_orthogonal(k, generator) for k in (rows, columns))
    assert measures.nuclear_norm(3 * Q @ F @ R).item() == pytest.approx(3 * norm.item())
    assert norm.item() == pytest.approx(torch.linalg.svdvals(F).sum().item(), rel=1e-6)


@pytest.mark.parametrize("shape", [(7, 2), (2, 5), (6, 4)])
def test_the_gradient_of_the_nuclear_norm_is_u_v(shape):
    F = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(measures.nuclear_norm(F), F)
    U, _, Vh = torch.linalg.svd(F.detach(), full_matrices=False)
    assert torch.allclose(gradient, U @ Vh, atol=1e-8)


def test_the_nuclear_norm_of_a_batch_is_that_of_each():
    F = torch.randn(3, 9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(measures.nuclear_norm(F), torch.stack([torch.linalg.svdvals(one).sum() for one in F]))


def test_the_printed_stable_rank_is_the_usual_one_times_the_spectral_norm():
    F = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    usual, printed = measures.stable_rank(F), measures.stable_rank(F, squared=False)
    assert printed.item() == pytest.approx((usual * torch.linalg.matrix_norm(F, 2)).item())
    assert measures.stable_rank(2 * F, squared=False).item() == pytest.approx(2 * printed.item())
