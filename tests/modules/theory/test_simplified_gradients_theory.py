"""Simplified gradients and gradient features against loops, autograd, enumeration and closed forms."""

import itertools
import math

import pytest
import torch

from featurelab.modules import data, learners, measures, nets, theory


def problem(n=60, dim=7, m=9, seed=0):
    chance = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=chance, dtype=torch.float64)

    return draw(n, dim), draw(n).sign(), draw(m, dim), draw(m)


def by_loop(x, y, W, b):
    rows = []
    for w, threshold in zip(W, b, strict=True):
        total = torch.zeros(x.shape[1], dtype=x.dtype)
        for point, label in zip(x, y, strict=True):
            if w @ point > threshold:
                total += label * point
        rows.append(total / len(x))
    return torch.stack(rows)


@pytest.mark.parametrize("block_bytes", [1, 1000, 10**8])
def test_the_simplified_gradient_is_its_sum_over_samples_in_blocks_of_any_size(block_bytes):
    x, y, W, b = problem()
    G = theory.gradient_features.simplified_gradient(x, y, W, b, block_bytes=block_bytes)
    assert torch.allclose(G, by_loop(x, y, W, b), atol=1e-14)
    assert torch.equal(G, theory.gradient_features.simplified_gradient(x, y[:, None], W, b, block_bytes=block_bytes))


def test_opposite_neurons_sum_to_the_mean_product_and_scale_does_not_matter():
    x, y, W, b = problem(seed=1)
    G = theory.gradient_features.simplified_gradient(x, y, W, b)
    other = theory.gradient_features.simplified_gradient(x, y, -W, -b)
    mean = (y[:, None] * x).mean(0)
    assert torch.allclose(G + other, mean.expand_as(G), atol=1e-14)
    assert torch.allclose(theory.gradient_features.simplified_gradient(x, y, 3 * W, 3 * b), G, atol=1e-14)
    assert torch.allclose(theory.gradient_features.simplified_gradient(x, y, W, b - 1e6), mean.expand_as(G), atol=1e-14)
    assert not theory.gradient_features.simplified_gradient(x, y, W, b + 1e6).any()


@pytest.mark.parametrize(("loss", "slope"), [("hinge", -1.0), ("logistic", -0.5)])
def test_gradients_at_a_symmetric_initialisation_are_simplified_ones(loss, slope):
    x, y, W, b = problem(m=5, seed=2)
    net = nets.symmetric_thresholded(W, b.flip(0), b)
    value = learners.loss(loss)(net, (x, y[:, None]))
    (gradient,) = torch.autograd.grad(value, net.hidden.weight)
    G = theory.gradient_features.simplified_gradient(x, y, net.hidden.weight.detach(), net.thresholds)
    assert torch.allclose(gradient, slope * net.head.weight.detach().T * G, atol=1e-14)


@pytest.mark.parametrize("weights", [None, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)])
def test_the_gradient_of_a_mixture_is_the_mean_of_many_samples(weights):
    _, _, W, b = problem(dim=3, seed=3)
    means = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    labels = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    exact = theory.gradient_features.mixture_gradient(W, b, means, labels, std=0.7, weights=weights)
    p = torch.full((4,), 0.25, dtype=torch.float64) if weights is None else weights
    chance = torch.Generator().manual_seed(5)
    which = torch.multinomial(p, 400_000, replacement=True, generator=chance)
    x = means[which] + 0.7 * torch.randn(400_000, 3, dtype=torch.float64, generator=chance)
    assert torch.allclose(theory.gradient_features.simplified_gradient(x, labels[which], W, b), exact, atol=0.01)


def test_the_gradient_of_a_mixture_is_that_of_its_potential():
    """G = E[y x 1(w.x > b)] is the gradient in w of E[y max(w.x - b, 0)], by finite differences of its closed form."""
    means = torch.tensor([[1.0, -0.5], [0.3, 0.8]], dtype=torch.float64)
    labels, std, b = torch.tensor([1.0, -1.0], dtype=torch.float64), 0.6, torch.tensor(0.2, dtype=torch.float64)

    def potential(w):
        s = std * w.norm()
        t = (means @ w - b) / s
        density = torch.exp(-t.square() / 2) / math.sqrt(2 * math.pi)
        return (labels / 2 * s * (t * torch.special.ndtr(t) + density)).sum()

    w = torch.tensor([0.7, 0.4], dtype=torch.float64)
    slopes = [(potential(w + e) - potential(w - e)) / 2e-5 for e in 1e-5 * torch.eye(2, dtype=torch.float64)]
    exact = theory.gradient_features.mixture_gradient(w[None], b[None], means, labels, std=std)
    assert torch.allclose(exact[0], torch.stack(slopes), atol=1e-9)


def test_cones_do_not_know_length_and_hold_both_signs():
    _, _, vectors, heads = problem(seed=6)
    directions = torch.eye(7, dtype=torch.float64)[:2] * 3.0
    cosines = measures.direction_cosines(vectors, directions)
    for i, j in itertools.product(range(9), range(2)):
        assert cosines[i, j].item() == pytest.approx((vectors[i, j] / vectors[i].norm()).item())
    assert torch.allclose(measures.direction_cosines(-2 * vectors, directions), -cosines)
    assert not measures.direction_cosines(torch.zeros(1, 7), directions).any()
    p = theory.gradient_features.hit_probability(vectors, directions, gamma=0.7)
    assert torch.equal(p, theory.gradient_features.hit_probability(vectors, -directions, gamma=0.7))
    assert p.tolist() == [sum(abs(c) > 0.3 for c in column) / 9 for column in cosines.T.tolist()]
    assert (theory.gradient_features.hit_probability(vectors, directions, gamma=0.8) >= p).all()
    assert (theory.gradient_features.hit_probability(vectors, directions, gamma=0.7, least=2.5) <= p).all()
    assert not theory.gradient_features.hit_probability(vectors, directions, gamma=0.7, least=1e9).any()
    nice = [theory.gradient_features.nice_neurons(vectors, heads, s * directions[0], gamma=0.7) for s in (1, -1)]
    assert not (nice[0] & nice[1]).any()
    assert ((nice[0] | nice[1]).double().mean() - p[0]).abs() < 1e-12
    with pytest.raises(ValueError, match="gamma"):
        theory.gradient_features.hit_probability(vectors, directions, gamma=1.0)


@pytest.mark.parametrize("both_signs", [False, True])
def test_sure_neurons_are_those_that_meet_each_condition(both_signs):
    _, _, W, _ = problem(m=400, seed=7)
    b = torch.full((400,), 0.4, dtype=torch.float64)
    features = torch.eye(7, dtype=torch.float64)[:3]
    found = theory.gradient_features.sure_neurons(W, b, features, own=1.5, other=0.5, both_signs=both_signs)
    for w, row in zip(W.tolist(), found.tolist(), strict=True):
        for j in range(3):
            others = [abs(w[i]) if both_signs else w[i] for i in range(3) if i != j]
            assert row[j] == (w[j] >= 0.6 and all(value <= 0.2 for value in others))
    assert found.any()


def test_energy_of_a_subspace_is_one_inside_and_shares_outside():
    basis = torch.eye(5, dtype=torch.float64)[:2]
    vectors = torch.tensor([[3.0, 4.0, 0, 0, 0], [1.0, 0, 1.0, 0, 0], [0, 0, 0, 0, 2.0]], dtype=torch.float64)
    assert measures.subspace_energy(vectors, basis).tolist() == pytest.approx([1.0, 0.5, 0.0])


def test_the_gradient_of_a_quadratic_is_the_mean_of_many_samples():
    _, _, W, _ = problem(dim=3, m=4, seed=8)
    H = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0.0, 0.0, -0.2]], dtype=torch.float64)
    x = torch.randn(600_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    y = ((x @ H * x).sum(1) - H.trace()) / 2
    found = theory.gradient_features.simplified_gradient(x, y, W, torch.zeros(4, dtype=torch.float64))
    assert torch.allclose(found, theory.gradient_features.quadratic_gradient(W, H), atol=0.01)


@pytest.mark.parametrize(("dim", "size"), [(7, 2), (9, 4), (11, 4)])
@pytest.mark.parametrize("threshold", [-0.75, 0.0, 0.75])
def test_the_gradient_of_the_uniform_parity_by_enumeration(dim, size, threshold):
    x = theory.gradient_features.sign_vectors(dim)
    W = x[:: 2 ** (dim - 4) + 1]
    found = theory.gradient_features.simplified_gradient(
        x, x[:, :size].prod(1), W, torch.full((len(W),), threshold, dtype=torch.float64)
    )
    assert torch.allclose(found, theory.gradient_features.uniform_parity_gradient(W, size), atol=1e-15)
    assert not torch.allclose(found, theory.gradient_features.uniform_parity_gradient(W, size, printed=True), atol=1e-3)


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_majority_coefficients_by_enumeration(size):
    x = theory.gradient_features.sign_vectors(9)
    assert len(x.unique(dim=0)) == 2**9
    found = (x.sum(1).sign() * x[:, :size].prod(1)).mean().item()
    assert theory.gradient_features.majority_coefficient(9, size) == pytest.approx(found, abs=1e-15)


@pytest.mark.parametrize(("dim", "size"), [(8, 3), (9, 4), (5, 7)])
def test_majority_has_coefficients_on_odd_sets_only(dim, size):
    with pytest.raises(ValueError, match="odd"):
        theory.gradient_features.majority_coefficient(dim, size)


def test_points_of_a_cube_that_is_too_large_and_odd_parities_are_refused():
    with pytest.raises(ValueError, match="20"):
        theory.gradient_features.sign_vectors(21)
    with pytest.raises(ValueError, match="even"):
        theory.gradient_features.uniform_parity_gradient(theory.gradient_features.sign_vectors(5), 3)


def test_a_stranger_s_gradients_can_be_measured():
    """Any layer's gradients have cosines, energies and hit probabilities: a linear map's are all along its labels."""
    x, y, _, _ = problem(seed=10)
    linear = torch.nn.Linear(7, 4, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((linear(x).sum(1) * y).mean(), linear.weight)
    D = data.group_directions(1, 7, 7)
    assert measures.direction_cosines(gradient, D).unique().numel() == 1
