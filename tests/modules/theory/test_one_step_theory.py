"""The split of the gradient, closed forms of Alignment and Elasticity, and the scores of many classes at once."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import data, learners, measures, nets, theory


def problem(heads=2, activation="tanh", n=12, dim=6, width=10, seed=0):
    net = nets.two_layer(dim, width, heads=heads, activation=activation, seed=seed)
    kind = data.SubGaussianClasses if heads == 2 else data.SubGaussianRegression
    return net, *kind(n, dim, "ball", length=1.0, seed=seed).train


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("activation", ["tanh", "tanh_squared", "relu"])
def test_gradient_is_the_sum_of_its_parts_and_the_first_has_rank_one(heads, activation):
    net, x, y = problem(heads, activation)
    parts = theory.alignment_elasticity.gradient_split(net, x, y)
    assert torch.allclose(sum(parts), learners.negative_gradient(net, x, y), rtol=1e-12, atol=1e-15)
    c1 = theory.alignment_elasticity.mean_slope(net.activation.slope)
    beta, alpha = theory.alignment_elasticity.train_direction(x, y, 10), theory.alignment_elasticity.head_direction(net)
    assert torch.allclose(parts.A, c1 * torch.outer(beta, alpha))
    assert torch.linalg.matrix_rank(parts.A) == 1


def test_parts_by_slow_sums():
    net, x, y = problem(n=3, dim=2, width=4)
    a, W = net.head.weight, net.hidden.weight.detach().T
    c1 = theory.alignment_elasticity.mean_slope(net.activation.slope)
    B, C = torch.zeros(2, 4, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64)
    for i in range(3):
        for r in range(4):
            h = x[i] @ W[:, r]
            slope = 1 - torch.tanh(h) ** 2
            for c in range(2):
                B[:, r] += x[i] * y[i, c] * a[c, r] * (slope - c1) / (3 * math.sqrt(4))
                C[:, r] -= x[i] * (torch.tanh(x[i] @ W) @ a[c]) * a[c, r] * slope / (3 * 4)
    parts = theory.alignment_elasticity.gradient_split(net, x, y)
    assert torch.allclose(parts.B, B)
    assert torch.allclose(parts.C, C)


def test_rank_one_errors_vanish_for_a_rank_one_gradient_and_know_a_multiple():
    A = torch.outer(torch.arange(1.0, 4), torch.arange(1.0, 6)).double()
    exact = theory.alignment_elasticity.rank_one_errors(theory.alignment_elasticity.GradientParts(A, 0 * A, 0 * A))
    assert exact == pytest.approx({"relative": 0, "cosine": 1, "top_energy": 1, "fitted_slope": 1}, abs=1e-12)
    double = theory.alignment_elasticity.rank_one_errors(theory.alignment_elasticity.GradientParts(A, 0.5 * A, 0.5 * A))
    assert double == pytest.approx({"relative": 0.5, "cosine": 1, "top_energy": 1, "fitted_slope": 2})


def test_power_errors_are_zero_where_the_gradient_is_its_rank_one_part():
    beta, alpha = torch.randn(5, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    x = torch.randn(6, 5, dtype=torch.float64)
    found = theory.alignment_elasticity.power_errors(x, 0.6 * torch.outer(beta, alpha), beta, alpha, 0.6, (1, 2, 3))
    assert all(error < 1e-9 and share < 1e-12 for error, share in found.values())
    off = theory.alignment_elasticity.power_errors(x, 1.2 * torch.outer(beta, alpha), beta, alpha, 0.6, (1, 2))
    assert [off[k][1] for k in (1, 2)] == pytest.approx([1.0, 3.0])


def test_windows_of_the_learning_rate():
    found = [theory.alignment_elasticity.expansion_degree(a) for a in (-1, 0.0, 0.2, 0.25, 0.3, 1 / 3, 0.36)]
    assert found == [(1, False), (1, False), (1, False), (1, True), (2, False), (2, True), (3, False)]
    for a in (0.26, 0.31, 0.34, 0.37, 0.45):
        l, border = theory.alignment_elasticity.expansion_degree(a)  # noqa: E741
        assert border or (l - 1) / (2 * l) < a < l / (2 * l + 2)
    with pytest.raises(ValueError, match=r"0\.5"):
        theory.alignment_elasticity.expansion_degree(0.5)


def test_effective_rates():
    assert theory.alignment_elasticity.effective_rate(2.0, 9) == 6.0
    assert theory.alignment_elasticity.effective_rate(2.0, 9, "literal") == 2.0
    with pytest.raises(ValueError, match="scale"):
        theory.alignment_elasticity.effective_rate(2.0, 9, "printed")


@settings(max_examples=20)
@given(mean=st.floats(-1.5, 1.5), variance=st.floats(0.05, 1.5), degree=st.integers(1, 3), seed=st.integers(0, 99))
def test_closed_forms_are_expectations_of_the_expansion(mean, variance, degree, seed):
    """With alpha and Z drawn from their laws: F_l - F_0 has entries sum_k t_k Z^k alpha_r^k."""
    width, rate = 6, 1.3
    c = [0.0, 0.7, 0.2, -0.1]
    z, w = theory.alignment_elasticity.gauss_hermite(30)
    x, a = mean + variance**0.5 * z, math.sqrt(2 / width) * z
    term = sum(c[k] * (c[1] * rate * x[:, None] * a[None, :]) ** k for k in range(1, degree + 1))
    average = (w[:, None] * term).sum(0)
    predicted = {"coefficients": c, "rate": rate, "width": width, "degree": degree}
    assert theory.alignment_elasticity.predicted_elasticity(mean, variance, **predicted) == pytest.approx(
        width * (w[:, None] * w[None, :] * term**2).sum().item()
    )
    assert theory.alignment_elasticity.predicted_alignment_gain(mean, variance, **predicted) == pytest.approx(
        width * (w * average**2).sum().item()
    )
    crossed = theory.alignment_elasticity.predicted_alignment_gain(mean, variance, **predicted, initial_sum=2.5)
    cross = 2 * 2.5 * (w * average).sum().item()
    assert crossed == pytest.approx(width * (w * average**2).sum().item() + cross)


def test_with_one_term_elasticity_is_the_simple_formula():
    found = theory.alignment_elasticity.predicted_elasticity(
        0.4, 0.3, coefficients=[0, 0.6], rate=3.0, width=50, degree=1
    )
    assert found == pytest.approx(2 * 0.6**4 * 9 * (0.4**2 + 0.3))


def test_first_order_elasticity_is_that_of_a_small_step():
    n = 160
    task = data.SubGaussianClasses(n, n, "sphere", length=1.0, seed=3)
    lr, share, measured = 0.5, 0.6, []
    means = measures.UnseenMeans(task.axis[None], torch.tensor([share]).double(), torch.ones(1).double())
    for seed in range(6):
        net = nets.two_layer(n, n, seed=seed)
        start = net.hidden.weight.detach().T
        end = learners.one_step_weights(net, *task.train, lr=lr)
        scores = measures.unseen_scores(data.gaussian_samples(300, n, 3), means, start, end, net.activation)
        measured.append(scores["elasticity/unseen"])
    beta = theory.alignment_elasticity.train_direction(*task.train, n)
    predicted = theory.alignment_elasticity.first_order_elasticity(
        means.similarity(beta), means.spread(beta), slope=net.activation.slope, lr=lr, width=n
    )
    assert torch.stack(measured).mean().item() == pytest.approx(predicted.item(), rel=0.15)


@pytest.mark.parametrize("projection", ["orthogonal", "literal"])
def test_scores_by_rank_one_corrections_are_those_of_the_samples_themselves(projection):
    net, x, y = problem(width=9)
    W0, W1 = net.hidden.weight.detach().T, learners.one_step_weights(net, x, y, lr=2.0)
    axes = torch.nn.functional.normalize(torch.randn(4, 6, dtype=torch.float64), dim=1)
    lengths = torch.tensor([1.5, -0.7, 2.0, 0.4], dtype=torch.float64)
    means = measures.UnseenMeans(axes, lengths, data.mean_shrinkage(lengths, projection))
    z, other = data.gaussian_samples(30, 6, 0), data.gaussian_samples(25, 6, 1)
    found = measures.unseen_scores(z, means, W0, W1, net.activation, opposite=other)
    labels = torch.tensor([0] * 30 + [1] * 25)
    beta = theory.alignment_elasticity.train_direction(x, y, 9)
    for k in range(4):
        rows = data.unseen_class(z, axes[k], lengths[k], projection)
        mirrored = -data.unseen_class(other, axes[k], lengths[k], projection)
        F0, F1 = (torch.tanh(rows @ W) for W in (W0, W1))
        pairs = (F1 @ F1.T).sum() - F1.square().sum()
        assert found["alignment/trained"][k].item() == pytest.approx((pairs / (30 * 29)).item())
        assert found["alignment/initial"][k].item() == pytest.approx(measures.alignment(F0).item())
        assert found["elasticity/unseen"][k].item() == pytest.approx((F1 - F0).square().sum(1).mean().item())
        both = torch.cat([F1, torch.tanh(mirrored @ W1)])
        for kind in ("cosine", "inner"):
            unit = both / both.norm(dim=1, keepdim=True) if kind == "cosine" else both
            nearest = (unit @ unit.T).fill_diagonal_(-torch.inf).argmax(1)
            expected = (labels[nearest] == labels).double().mean().item()
            assert found[f"recall/{kind}_trained"][k].item() == pytest.approx(expected)
        covariance = torch.eye(6, dtype=torch.float64) - torch.outer(axes[k], axes[k]) * means.shrink[k]
        covariance = covariance @ covariance.T
        assert means.spread(beta)[k].item() == pytest.approx((beta @ covariance @ beta).item())
        assert means.similarity(beta)[k].item() == pytest.approx((beta @ (lengths[k] * axes[k])).item())


def test_expansion_terms_add_up_to_the_features_for_a_small_step():
    net, x, y = problem(n=200, dim=100, width=100)
    W0, rate = net.hidden.weight.detach().T, 0.05
    beta, alpha = (
        theory.alignment_elasticity.train_direction(x, y, 100),
        theory.alignment_elasticity.head_direction(net),
    )
    c = theory.alignment_elasticity.activation_coefficients(net, 3)
    terms = theory.alignment_elasticity.expansion_terms(x, beta, alpha, c, rate, 3)
    assert torch.allclose(terms[0], c[1] ** 2 * rate * torch.outer(x @ beta, alpha))
    assert torch.allclose(terms[2], c[3] * c[1] ** 3 * rate**3 * torch.outer((x @ beta) ** 3, alpha**3))
    # on average over neurons the step along A moves features by the first term
    moved = torch.tanh(x @ (W0 + rate * c[1] * torch.outer(beta, alpha))) - torch.tanh(x @ W0)
    assert ((moved * terms[0]).sum() / terms[0].square().sum()).item() == pytest.approx(1.0, abs=0.1)


def test_means_of_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="axes must be"):
        measures.UnseenMeans(torch.ones(3, 2), torch.ones(2), torch.ones(3))
