"""Closed forms of the theory of fine-grained structure against simulation and integration."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from featurelab.modules import data, measures, theory


def slow_ratio(h, clusters, groups):
    means, worsts = [], []
    for g in groups.unique():
        inter, intra = [], []
        for i in range(len(h)):
            for j in range(len(h)):
                if groups[clusters[i]] == groups[clusters[j]] == g and i != j:
                    (intra if clusters[i] == clusters[j] else inter).append((h[i] - h[j]).norm().item())
        means.append((sum(inter) / len(inter)) / (sum(intra) / len(intra)))
        worsts.append(min(inter) / max(intra))
    return sum(means) / len(means), min(worsts)


def test_separation_ratio_is_that_of_a_loop_over_pairs():
    h = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    clusters, groups = torch.arange(20) % 4, torch.tensor([0, 0, 1, 1])
    found = theory.fine_grained_structure.separation_ratio(h, clusters, groups)
    mean, worst = slow_ratio(h, clusters, groups)
    assert found["mean"] == pytest.approx(mean)
    assert found["worst"] == pytest.approx(worst)
    scaled = theory.fine_grained_structure.separation_ratio(7 * h + 3, clusters, groups)
    assert scaled["mean"] == pytest.approx(mean)


def test_separation_ratio_needs_two_clusters_in_a_group():
    with pytest.raises(ValueError, match="two clusters"):
        theory.fine_grained_structure.separation_ratio(
            torch.randn(4, 2), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1])
        )


@given(st.floats(-0.9, 0.9).filter(lambda z: abs(z) > 1e-3), st.floats(0.0, 0.9))
def test_signal_solves_its_equation(initial, share):
    lr, tau = 1e-3, 2.0
    blow_up = 8 / (lr * tau**2 * abs(initial))
    steps = torch.tensor(share * blow_up, dtype=torch.float64, requires_grad=True)
    zeta = theory.fine_grained_structure.cubic_signal(torch.tensor(initial, dtype=torch.float64), steps, lr=lr, tau=tau)
    (slope,) = torch.autograd.grad(zeta, steps)
    assert slope.item() == pytest.approx(lr * tau**2 * zeta.item() ** 2 / 8, rel=1e-9)
    if share == 0:
        assert zeta.item() == pytest.approx(initial)


def test_a_positive_signal_blows_up_and_a_negative_one_rises_towards_zero():
    initial = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64)
    found = theory.fine_grained_structure.cubic_signal(initial, 10**9, lr=0.1, tau=1.0)
    assert found[0] == math.inf
    assert found[1] == 0
    assert -1e-6 < found[2] < 0


def test_until_the_horizon_the_fastest_signal_of_the_bound_stays_below_one_half():
    # |zeta(0)| <= 2 omega tau L, growing with 1/8 + c: the bound of theorem A.15
    c, lr, tau, omega, width = 0.1, 1e-4, 5.0, 0.01, 32
    t0 = theory.fine_grained_structure.separation_time(c=c, lr=lr, tau=tau, omega=omega, width=width)
    start = torch.tensor([2 * omega * tau * math.sqrt(math.log(4 * width))], dtype=torch.float64)
    end = theory.fine_grained_structure.cubic_signal(start, t0, lr=lr, tau=tau, factor=1 / 8 + c)
    assert end.item() == pytest.approx(0.5)
    with pytest.raises(ValueError, match="below 1/4"):
        theory.fine_grained_structure.separation_time(c=c, lr=lr, tau=tau, omega=1.0, width=width)


def test_the_example_that_the_paper_prints_has_no_horizon():
    d = 10**6
    with pytest.raises(ValueError, match="below 1/4"):
        theory.fine_grained_structure.separation_time(
            c=0.1, lr=1e-4, tau=d**0.52, omega=d**-0.53, width=round(math.log(d))
        )


def test_separation_bound_has_the_two_printed_orders():
    def order(c, factor=1 / 1.01, **sizes):
        a, b = (theory.fine_grained_structure.separation_bound(c=v, **sizes) for v in (c, c * factor))
        return math.log(b / a) / math.log(1 / factor)

    assert order(1e-4, dim=100, n=1000) == pytest.approx(3, abs=0.01)
    assert order(10.0, dim=10**8, n=10) == pytest.approx(9, abs=0.01)
    few, many = (theory.fine_grained_structure.separation_bound(c=10.0, dim=10**8, n=n) for n in (10, 20))
    assert math.log2(many / few) == pytest.approx(4.5, abs=0.01)


@pytest.mark.parametrize("variance", [0.0, 0.5, 3.0])
def test_ratio_of_inputs_and_of_random_features_at_finite_n(variance):
    n, dim, width = 6, 1500, 3000
    groups = torch.arange(32) % 16
    means = data.spread_means(32, dim, [variance], seed=1)[0]
    task = data.GaussianClusters(means, groups, 32 * n, seed=2)
    W = torch.randn(dim, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for features, form in (
        (task.train[0], theory.fine_grained_structure.mixture_msdr),
        (torch.relu(task.train[0] @ W), theory.fine_grained_structure.relu_msdr),
    ):
        D = measures.class_distances(measures.class_moments(features, task.clusters))
        assert measures.msdr(D, groups) == pytest.approx(form(variance, n), rel=0.03)
        assert form(variance, 10**9) == pytest.approx(form(variance), rel=1e-6)


def test_printed_values_of_the_random_relu_layer():
    values = {0.25: 1.185, 1.0: 1.743, 2.0: 2.483, 4.0: 3.943, 8.0: 6.821}
    for variance, expected in values.items():
        assert theory.fine_grained_structure.relu_msdr(variance) == pytest.approx(expected, abs=1e-3)
    assert theory.fine_grained_structure.mixture_msdr(0.0, 20) == pytest.approx(1 + 1 / 19)
    for form in (theory.fine_grained_structure.mixture_msdr, theory.fine_grained_structure.relu_msdr):
        with pytest.raises(ValueError, match="at least 2 samples"):
            form(1.0, 1)
