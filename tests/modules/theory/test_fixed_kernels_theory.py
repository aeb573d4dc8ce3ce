"""Kernels of fixed features against Monte Carlo and tangent features, and ridge regression with them."""

import pytest
import torch

from featurelab.modules import nets, theory


def points(n, dim, seed):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_arc_cosine_kernel_is_the_mean_of_wide_networks():
    x, z = points(4, 3, 0), points(5, 3, 1)
    W, _ = nets.random_neurons(3, 400_000, seed=2)
    hx, hz = x @ W.T, z @ W.T
    both = ((hx > 0).double() @ (hz > 0).double().T) * (x @ z.T) + hx.relu() @ hz.relu().T
    assert torch.allclose(theory.gradient_features.arc_cosine_ntk(x, z), both / len(W), atol=0.03)
    own = theory.gradient_features.arc_cosine_ntk(x, x)
    assert torch.allclose(own.diagonal(), x.square().sum(1), atol=1e-6)


def test_the_linearised_kernel_is_that_of_its_tangent_features():
    W, a = nets.random_neurons(3, 6, seed=3)
    net = nets.thresholded_net(W, a, torch.linspace(-1, 1, 6))
    x, z = points(4, 3, 4), points(5, 3, 5)

    def tangents(point):
        return torch.cat(
            [g.flatten() for g in torch.autograd.grad(net(point[None]).sum(), [net.hidden.weight, net.head.weight])]
        )

    slow = torch.stack([tangents(p) for p in x]) @ torch.stack([tangents(p) for p in z]).T
    assert torch.allclose(theory.gradient_features.linearised_kernel(net, x, z), slow, atol=1e-13)


def test_ridge_regression_is_that_of_the_normal_equations():
    x, z = points(30, 4, 6), points(50, 4, 7)
    y, t = x[:, :1].sign(), z[:, :1].sign()
    unit = x.square().sum(1).mean()
    found = theory.gradient_features.ridge_accuracies(x @ x.T, y, z @ x.T, t, [0.01, 1.0])
    for ridge, share in zip((0.01, 1.0), found, strict=True):
        beta = torch.linalg.solve(x.T @ x + ridge * unit * torch.eye(4, dtype=torch.float64), x.T @ y)
        assert share == pytest.approx(((z @ beta) * t > 0).double().mean().item())
        assert share > 0.8


def test_the_median_distance_is_the_median_over_pairs():
    x = points(9, 3, 8)
    pairs = sorted((a - b).norm().item() for i, a in enumerate(x) for b in x[i + 1 :])
    assert theory.gradient_features.median_distance(x) == pytest.approx(pairs[(len(pairs) - 1) // 2])


def test_the_quadratic_kernel_is_that_of_all_products_of_two_coordinates():
    x, z = points(4, 3, 9), points(5, 3, 10)
    products = [torch.stack([torch.outer(p, p).flatten() for p in points]) for points in (x, z)]
    assert torch.allclose(theory.gradient_features.quadratic_kernel(x, z), products[0] @ products[1].T)


@pytest.mark.parametrize("start", [[1e-6, 1e-5], [1e4, 1e5]], ids=["from below", "from above"])
def test_the_grid_of_ridges_is_widened_until_its_best_value_is_inside(start):
    x, z = points(60, 40, 11), points(400, 40, 12)
    y, t = (x[:, :1] + 2 * points(60, 1, 13)).sign(), z[:, :1].sign()
    best, ridge = theory.gradient_features.best_ridge(x @ x.T, y, z @ x.T, t, start, most=20)
    beyond = theory.gradient_features.ridge_accuracies(x @ x.T, y, z @ x.T, t, [ridge / 10, ridge, ridge * 10])
    assert beyond[1] == best == max(beyond)
