"""Closed forms of the linearised layers, of the best kernel and of random ReLU features."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import measures, theory

positive = st.floats(0.05, 4.0)


def one_hot(classes, n):
    return torch.eye(classes, dtype=torch.float64).repeat_interleave(n, 0)


def start(classes, n, seed=0):
    X = torch.randn(classes * n, 3 * classes * n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    X = X / X.shape[1] ** 0.5 + 2 * one_hot(classes, n) @ torch.eye(classes, X.shape[1], dtype=torch.float64)
    return X @ X.T


@settings(max_examples=40)
@given(classes=st.integers(2, 4), n=st.integers(2, 6), ridge=positive, lifted=positive)
def test_the_collapsed_gram_matrix_is_a_fixed_point_for_the_exact_scale(classes, n, ridge, lifted):
    Y = one_hot(classes, n)
    A = Y @ Y.T + lifted * torch.eye(len(Y), dtype=torch.float64)
    B = theory.deep_neural_collapse.linearised_layer(A, Y, ridge)
    assert torch.allclose(B @ B.T / theory.deep_neural_collapse.kappa_exact(n, ridge, lifted), Y @ Y.T, atol=1e-12)


@settings(max_examples=20)
@given(classes=st.integers(2, 4), n=st.integers(4, 8), ridge=st.floats(0.1, 1.0), lifted=st.floats(0.5, 2.0))
def test_errors_shrink_at_the_rate_in_closed_form(classes, n, ridge, lifted):
    """A small error of the kind that shrinks most slowly: within the classes, balanced out against their mean."""
    Y = one_hot(classes, n)
    N, kappa = len(Y), theory.deep_neural_collapse.kappa_exact(n, ridge, lifted)
    wobble = torch.zeros(N, classes, dtype=torch.float64)
    wobble[0, 0], wobble[1, 0] = 1e-5, -1e-5
    errors = []
    A = (Y + wobble) @ (Y + wobble).T + lifted * torch.eye(N, dtype=torch.float64)
    for _ in range(3):
        B = theory.deep_neural_collapse.linearised_layer(A, Y, ridge)
        errors.append(theory.deep_neural_collapse.gram_error(B, Y, kappa).item())
        A = B @ B.T / kappa + lifted * torch.eye(N, dtype=torch.float64)
    assert errors[2] / errors[1] == pytest.approx(theory.deep_neural_collapse.collapse_rate(n, ridge, lifted), rel=1e-3)


def test_rate_at_its_ends():
    assert theory.deep_neural_collapse.collapse_rate(20, 0.0, 1.0) == 0
    assert theory.deep_neural_collapse.collapse_rate(20, 0.7, 0.0) == 1
    with pytest.raises(ValueError, match="both be 0"):
        theory.deep_neural_collapse.collapse_rate(20, 0.0, 0.0)


@given(n=st.integers(1, 100), a=positive, b=positive, lifted=positive)
def test_rate_rises_with_the_ridge_and_falls_with_the_feature_ridge(n, a, b, lifted):
    low, high = sorted((a, b))
    assert (
        theory.deep_neural_collapse.collapse_rate(n, low, lifted)
        <= theory.deep_neural_collapse.collapse_rate(n, high, lifted)
        <= 1
    )
    assert (
        theory.deep_neural_collapse.collapse_rate(n, lifted, low)
        >= theory.deep_neural_collapse.collapse_rate(n, lifted, high)
        >= 0
    )


def test_printed_scale_is_that_of_its_formula_and_is_not_a_fixed_point():
    assert theory.deep_neural_collapse.kappa_printed(0.05, 1.0) == pytest.approx(0.8)
    assert theory.deep_neural_collapse.kappa_printed(0.5, 1.0) < 0
    with pytest.raises(ValueError, match="feature_ridge"):
        theory.deep_neural_collapse.kappa_printed(0.5, 0.0)


@settings(max_examples=30)
@given(classes=st.integers(1, 4), n=st.integers(1, 6), kappa=st.floats(-2.0, 2.0).filter(lambda k: abs(k) > 0.05))
def test_gram_error_is_the_spectral_norm_of_the_difference(classes, n, kappa):
    Y = one_hot(classes, n)
    B = Y + torch.randn(len(Y), classes, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    slow = torch.linalg.eigvalsh(B @ B.T / kappa - Y @ Y.T).abs().max()
    assert theory.deep_neural_collapse.gram_error(B, Y, kappa).item() == pytest.approx(slow.item(), rel=1e-10)


def test_lifting_sets_the_least_eigenvalue_and_leaves_greater_ones_alone():
    A = start(3, 5)
    least = torch.linalg.eigvalsh(A)[0].item()
    assert torch.linalg.eigvalsh(theory.deep_neural_collapse.lift_spectrum(A, least + 1))[0].item() == pytest.approx(
        least + 1
    )
    assert torch.equal(theory.deep_neural_collapse.lift_spectrum(A, least - 1), A)


def test_a_linear_layer_is_the_product_of_its_definition():
    A, Y = start(3, 5), one_hot(3, 5)
    slow = A @ torch.linalg.inv(A + 0.3 * torch.eye(15, dtype=torch.float64)) @ Y
    assert torch.allclose(theory.deep_neural_collapse.linearised_layer(A, Y, 0.3), slow, atol=1e-12)


def test_krr_value_is_the_quadratic_form_and_reaches_its_bound_at_the_collapsed_kernel():
    Y, mu = one_hot(3, 4), 0.7
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    K = measures.GaussianKernel(2.0)(x)
    slow = sum(y @ torch.linalg.inv(K + mu * torch.eye(12, dtype=torch.float64)) @ K @ y / y.sum() for y in Y.T) / 3
    assert theory.deep_neural_collapse.krr_explained(K, Y, mu).item() == pytest.approx(slow.item(), rel=1e-12)
    assert theory.deep_neural_collapse.krr_explained(Y @ Y.T, Y, mu).item() == pytest.approx(4 / (4 + mu), rel=1e-12)
    both = theory.deep_neural_collapse.krr_explained(torch.stack([K, Y @ Y.T]), Y, mu)
    assert torch.allclose(both, torch.tensor([slow, 4 / (4 + mu)], dtype=torch.float64))
    with pytest.raises(ValueError, match="ridge"):
        theory.deep_neural_collapse.krr_explained(K, Y, 0.0)


@settings(max_examples=40)
@given(
    bandwidth=st.floats(0.2, 20.0),
    mu=st.floats(1e-2, 10.0),
    seed=st.integers(0, 9),
    share=st.floats(0.0, 1.0),
    name=st.sampled_from(["laplace", "gaussian"]),
)
def test_krr_value_is_below_its_bound_and_concave_along_segments(bandwidth, mu, seed, share, name):
    Y = one_hot(3, 4)
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    K, best = measures.radial_kernel(name, bandwidth)(x), Y @ Y.T
    start, here, end = theory.deep_neural_collapse.krr_explained(torch.stack([K, K + share * (best - K), best]), Y, mu)
    assert start <= end + 1e-12
    assert here <= 4 / (4 + mu) + 1e-12
    assert here >= (1 - share) * start + share * end - 1e-12


def test_relu_feature_kernel_at_its_ends_and_in_the_printed_form():
    r = torch.linspace(-0.999, 0.999, 101, dtype=torch.float64)
    root = (1 - r**2).sqrt()
    printed = root**3 / math.pi + r**2 * root / math.pi + r / 2 + r / math.pi * torch.arctan(r / root)
    h = theory.deep_neural_collapse.relu_feature_kernel(r)
    assert torch.allclose(h, printed, atol=1e-14)
    ends = theory.deep_neural_collapse.relu_feature_kernel(torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64))
    assert torch.allclose(ends, torch.tensor([0.0, 1 / math.pi, 1.0], dtype=torch.float64), atol=1e-15)
    assert (h >= r).all()
    shrinking = (1 - h) / (1 - r)
    assert (shrinking.diff() > 0).all()
    assert 0.5 <= shrinking.min() < shrinking.max() < 1
