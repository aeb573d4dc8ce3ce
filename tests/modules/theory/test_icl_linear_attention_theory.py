"""Closed forms of in-context regression against sampled prompts, finite differences and each other."""

import numpy as np
import pytest
import torch

from featurelab.modules import data, learners, nets, theory

LAM = torch.tensor([2.0, 1.0, 0.5, 0.2], dtype=torch.float64)


@pytest.fixture
def covariance():
    return data.token_covariance(LAM, seed=5)[0]


def any_product(seed=0):
    return 0.4 * torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def sampled(product, covariance, length, noise, n=200_000, w=None):
    """Mean and standard error of squared errors on whole prompts, query by query."""
    chance = np.random.default_rng(0)
    root = np.linalg.cholesky(covariance.numpy())
    x = chance.standard_normal((n, length, 4)) @ root.T
    q = chance.standard_normal((n, 4)) @ root.T
    tasks = chance.standard_normal((n, 4)) if w is None else np.tile(w, (n, 1))
    y = (x @ tasks[:, :, None])[..., 0] + noise**0.5 * chance.standard_normal((n, length))
    z = (x * y[:, :, None]).mean(1)
    off = ((z @ product.numpy()) * q).sum(1) - (tasks * q).sum(1)
    return (off**2).mean(), (off**2).std() / n**0.5


@pytest.mark.parametrize("w", [None, [1.0, -0.5, 0.3, 2.0]])
@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_the_error_of_any_product_is_that_of_sampled_prompts(covariance, noise, w):
    mean, error = sampled(any_product(), covariance, 6, noise, w=w)
    known = theory.icl_scale.prompt_error(
        any_product(), covariance, 6, None if w is None else torch.tensor(w).double(), noise
    )
    assert abs(mean - known.item()) < 4 * error


def test_pretraining_loss_is_half_the_error_and_that_of_the_zero_model_half_the_trace(covariance):
    P = any_product()
    half = theory.icl_scale.prompt_error(P, covariance, 7) / 2
    assert theory.icl_scale.pretraining_loss(P, covariance, 7).item() == pytest.approx(half.item())
    zero = theory.icl_scale.pretraining_loss(torch.zeros(4, 4).double(), covariance, 7)
    assert zero.item() == pytest.approx(LAM.sum().item() / 2)


def test_excess_loss_is_the_loss_above_the_best(covariance):
    P, best = any_product(), theory.icl_scale.optimal_product(covariance, 7)
    above = theory.icl_scale.pretraining_loss(P, covariance, 7) - theory.icl_scale.pretraining_loss(best, covariance, 7)
    assert theory.icl_scale.excess_loss(P, covariance, 7).item() == pytest.approx(above.item())
    assert theory.icl_scale.excess_loss(P, covariance, 7, half=False).item() == pytest.approx(2 * above.item())
    assert torch.allclose(torch.linalg.inv(theory.icl_scale.token_factor(covariance, 7)), best)


@pytest.mark.parametrize("rank", [0, 1, 3, 4])
def test_no_product_of_that_rank_is_better_than_the_optimum(covariance, rank):
    best = theory.icl_scale.optimal_product(covariance, 7, rank)
    least = theory.icl_scale.pretraining_loss(best, covariance, 7).item()
    assert least == pytest.approx(LAM.sum().item() / 2 + theory.icl_scale.least_loss(LAM, 7, rank))
    assert torch.linalg.matrix_rank(best) == rank
    for seed in range(20):
        net = nets.attention_of_product(best + 0.1 * any_product(seed), rank) if rank else None
        other = net.product() if net else torch.zeros(4, 4).double()
        assert theory.icl_scale.pretraining_loss(other, covariance, 7) >= least - 1e-12


def test_the_optimum_without_a_limit_has_no_slope(covariance):
    best, step = theory.icl_scale.optimal_product(covariance, 7), 1e-5
    for i, j in np.ndindex(4, 4):
        moved = torch.zeros(4, 4).double()
        moved[i, j] = step
        up, down = (theory.icl_scale.pretraining_loss(best + sign * moved, covariance, 7) for sign in (1, -1))
        assert abs((up - down) / (2 * step)) < 1e-8


@pytest.mark.parametrize("rank", [0, 2, 4])
@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_the_theorem_s_error_is_that_of_any_product(covariance, rank, noise):
    values, Q = theory.icl_scale.descending_eigen(covariance)
    v = theory.icl_scale.inverse_factors(values, 9, rank)
    w = torch.tensor([1.0, -2.0, 0.5, 0.7], dtype=torch.float64)
    slow = theory.icl_scale.prompt_error(
        theory.icl_scale.optimal_product(covariance, 9, rank), covariance, 5, Q @ w, noise
    )
    assert theory.icl_scale.direction_errors(values, v, w**2, 5, noise) == pytest.approx(slow.item())
    averaged = theory.icl_scale.prompt_error(
        theory.icl_scale.optimal_product(covariance, 9, rank), covariance, 5, None, noise
    )
    assert theory.icl_scale.direction_errors(values, v, torch.ones(4).double(), 5, noise) == pytest.approx(
        averaged.item()
    )


def test_gap_and_slope_are_differences_of_errors():
    w = torch.tensor([1.0, 2.0, 0.0, 0.0], dtype=torch.float64) ** 2
    small, large = (theory.icl_scale.inverse_factors(LAM, 9, rank) for rank in (2, 4))

    def error(v, noise):
        return theory.icl_scale.direction_errors(LAM, v, w, 5, noise)

    gap = theory.icl_scale.rank_gap(LAM, (w * LAM).sum().item(), (2, 4), (9, 5), 1.5)
    assert gap == pytest.approx(error(large, 1.5) - error(small, 1.5))
    assert theory.icl_scale.noise_slope(large, LAM, 5) == pytest.approx(error(large, 2.0) - error(large, 1.0))
    with pytest.raises(ValueError, match="smaller, larger"):
        theory.icl_scale.rank_gap(LAM, 1.0, (3, 2), (9, 5), 0.0)


@pytest.mark.parametrize("rank", [0, 2, 4])
def test_the_error_tends_to_that_of_endless_pretraining(rank):
    w = torch.tensor([1.0, 2.0, 0.3, 0.1], dtype=torch.float64) ** 2
    v = theory.icl_scale.inverse_factors(LAM, 10**9, rank)
    assert theory.icl_scale.direction_errors(LAM, v, w, 5, 0.4) == pytest.approx(
        theory.icl_scale.long_prompt_error(LAM, w, rank, 5, 0.4), rel=1e-6
    )


def test_errors_by_rank_are_those_of_each_optimum(covariance):
    values, Q = theory.icl_scale.descending_eigen(covariance)
    w = data.task_vectors(30, 4, np.random.default_rng(0))
    z = data.prompt_means(w, covariance, 5, np.random.default_rng(1))
    quick = theory.icl_scale.errors_by_rank(z @ Q, w @ Q, values, 9)
    for rank in range(5):
        product = theory.icl_scale.optimal_product(covariance, 9, rank)
        slow = theory.icl_scale.query_averaged_errors(product, z, w, covariance)
        assert torch.allclose(quick[:, rank], slow)
    gaussian = torch.from_numpy(np.random.default_rng(2).standard_normal((200_000, 4)))
    queries = gaussian @ torch.linalg.cholesky(covariance).T
    off = (queries * (product.T @ z[0] - w[0])).sum(1) ** 2
    assert abs(off.mean() - slow[0]) < 4 * off.std() / 200_000**0.5


def test_a_loss_is_minimised_to_many_digits(covariance):
    net = nets.reduced_attention(4, 2, init_scale=0.3, seed=0)
    left = learners.minimise_lbfgs(
        lambda: theory.icl_scale.pretraining_loss(net.product(), covariance, 9), net.parameters(), steps=500
    )
    assert left == pytest.approx(LAM.sum().item() / 2 + theory.icl_scale.least_loss(LAM, 9, 2), abs=1e-10)
    assert torch.allclose(net.product(), theory.icl_scale.optimal_product(covariance, 9, 2), atol=1e-5)
    before = net.product().detach().clone()
    with learners.withheld_updates():
        learners.minimise_lbfgs(lambda: net.product().sum(), net.parameters(), steps=3)
    assert torch.equal(net.product(), before)
    with pytest.raises(ValueError, match="steps"):
        learners.minimise_lbfgs(lambda: net.product().sum(), net.parameters(), steps=0)
