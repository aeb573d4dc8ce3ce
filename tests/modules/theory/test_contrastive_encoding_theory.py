"""What a representation keeps of hidden factors, against loops over all of their values."""

import itertools

import pytest
import torch
from scipy import optimize

from featurelab.modules import theory


def table(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def law(*sizes, seed=0):
    generator = torch.Generator().manual_seed(seed + 100)
    return [torch.rand(n, dtype=torch.float64, generator=generator).softmax(0) for n in sizes]


@pytest.mark.parametrize("kind", ["logistic", "exp", "linear"])
def test_the_enumerated_loss_is_the_sum_over_all_triples(kind):
    H, (p, q) = table(3, 2, 4), law(3, 2)
    expected = 0.0
    for r, u, v, s, w in itertools.product(range(3), range(2), range(2), range(3), range(2)):
        t = H[r, u] @ (H[r, v] - H[s, w])
        value = {"logistic": (1 + (-t).exp()).log(), "exp": (-t).exp(), "linear": -t}[kind]
        expected += p[r] * q[u] * q[v] * p[s] * q[w] * value
    assert theory.contrastive_tradeoff.contrastive_by_enumeration(H, p, q, kind).item() == pytest.approx(
        expected.item(), rel=1e-12
    )
    both = theory.contrastive_tradeoff.contrastive_by_enumeration(torch.stack([H, 2 * H]), p, q, kind)
    assert both[0].item() == pytest.approx(expected.item(), rel=1e-12)


def test_the_pca_objective_is_the_variance_of_conditional_means_and_the_linear_loss():
    H, (p, q) = table(4, 3, 2), law(4, 3)
    means = [sum(q[u] * H[r, u] for u in range(3)) for r in range(4)]
    centre = sum(p[r] * means[r] for r in range(4))
    expected = -sum(p[r] * (means[r] - centre).square().sum() for r in range(4)).item()
    assert theory.contrastive_tradeoff.pca_objective(H, p, q).item() == pytest.approx(expected, rel=1e-12)
    assert theory.contrastive_tradeoff.contrastive_by_enumeration(H, p, q, "linear").item() == pytest.approx(
        expected, rel=1e-12
    )


def test_without_shared_factors_a_constant_is_best():
    H, (q,) = table(1, 4, 3), law(4)
    one = torch.ones(1, dtype=torch.float64)
    constant = torch.ones(1, 4, 3, dtype=torch.float64)
    least = theory.contrastive_tradeoff.contrastive_by_enumeration(constant, one, q)
    assert least < theory.contrastive_tradeoff.contrastive_by_enumeration(H, one, q)
    assert least.item() == pytest.approx(torch.tensor(2.0).log().item())


def test_energies_are_those_of_all_pairs_of_values():
    H = table(2, 2, 3, 4)
    H = 1.7 * H / H.norm(dim=-1, keepdim=True)
    a, b, c = law(2, 2, 3)
    p = a[:, None, None] * b[:, None] * c
    flipped = redrawn = 0.0
    for i, j, k in itertools.product(range(2), range(2), range(3)):
        flipped += p[i, j, k] * (H[i, j, k] - H[i, 1 - j, k]).square().sum() / (4 * 1.7**2)
        redrawn += sum(p[i, j, k] * c[m] * (H[i, j, k] - H[i, j, m]).square().sum() for m in range(3)) / (4 * 1.7**2)
    assert theory.contrastive_tradeoff.redrawn_energy(H, p, 2).item() == pytest.approx(redrawn.item(), rel=1e-12)
    both = (p + p.flip(1)) / 2  # a flip goes both ways
    assert theory.contrastive_tradeoff.flipped_energy(H, both, 1).item() == pytest.approx(
        theory.contrastive_tradeoff.pair_energy(H, H.flip(1), p).item(), rel=0.2
    )
    assert theory.contrastive_tradeoff.flipped_energy(H, p, 1).item() == pytest.approx(flipped.item(), rel=1e-12)
    with pytest.raises(ValueError, match="2 values"):
        theory.contrastive_tradeoff.flipped_energy(H, p, 2)


def test_energies_lie_between_what_is_the_same_and_what_is_opposite():
    phi = table(50, 6)
    assert theory.contrastive_tradeoff.pair_energy(phi, phi).item() == 0
    assert theory.contrastive_tradeoff.pair_energy(phi, -phi).item() == pytest.approx(1)
    other = table(50, 6, seed=1)
    assert theory.contrastive_tradeoff.pair_energy(phi, other).item() == pytest.approx(
        theory.contrastive_tradeoff.pair_energy(3 * phi, 3 * other).item()
    )
    assert theory.contrastive_tradeoff.pair_energy(phi.flip(0), other.flip(0)).item() == pytest.approx(
        theory.contrastive_tradeoff.pair_energy(phi, other).item()
    )


def test_the_best_line_is_found_by_optimisation_too():
    points, labels = table(7, 2), torch.tensor([1, -1, 1, 1, -1, -1, 1.0])
    for bias in (False, True):

        def wrong(w, bias=bias):
            direction = torch.tensor([w[0], w[1]], dtype=torch.float64)
            return -((points @ direction + (w[2] if bias else 0.0)) * labels > 0).double().mean().item()

        best = -optimize.differential_evolution(wrong, [(-1, 1), (-1, 1), (-3, 3)], seed=0, maxiter=200).fun
        assert theory.contrastive_tradeoff.best_planar_accuracy(points, labels, bias=bias) == pytest.approx(best)


def test_the_corners_of_a_square_are_not_told_apart_across():
    corners, labels = torch.tensor([[-1, 0], [1, 0], [0, -1], [0, 1.0]]), torch.tensor([-1, -1, 1, 1.0])
    assert theory.contrastive_tradeoff.best_planar_accuracy(corners, labels) == 0.5
    assert theory.contrastive_tradeoff.best_planar_accuracy(corners, labels, bias=True) == 0.75
