import cmath
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import measures, nets


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_dft(u, j):
    return sum(value * cmath.exp(-2j * math.pi * j * a / len(u)) for a, value in enumerate(u))


def cosine(p, frequency, phase):
    return torch.cos(phase + 2 * math.pi * frequency * torch.arange(p, dtype=torch.float64) / p)


@given(st.integers(2, 12), st.integers(0, 99))
@settings(max_examples=40)
def test_folded_power_is_that_of_the_sum_over_residues_and_keeps_the_norm(p, seed):
    u = draw(p, seed=seed)
    power = measures.folded_power(u)
    for j in range(p // 2 + 1):
        slow = sum(abs(slow_dft(u.tolist(), i)) ** 2 for i in {j, (p - j) % p})
        assert power[j].item() == pytest.approx(slow, abs=1e-9)
    assert power.sum().item() == pytest.approx(p * u.square().sum().item())


def test_a_cosine_has_all_of_its_power_at_one_frequency_but_for_its_mean():
    u = cosine(11, 3, 0.7)
    assert measures.max_normalised_power(measures.folded_power(u)).item() == pytest.approx(1)
    raised = measures.folded_power(u + 0.5)
    assert measures.max_normalised_power(raised, include_dc=False).item() == pytest.approx(1)
    assert measures.max_normalised_power(raised).item() == pytest.approx(0.5 / (0.5 + 0.25))
    assert measures.max_normalised_power(measures.folded_power(torch.zeros(5))).isnan()


@pytest.mark.parametrize("modulus", [3, 7, 23, 47])
def test_the_mean_peak_of_gaussian_vectors_is_that_of_a_broken_stick(modulus):
    peaks = measures.max_normalised_power(measures.folded_power(draw(20_000, modulus)), include_dc=False)
    error = peaks.std().item() / len(peaks) ** 0.5
    assert abs(peaks.mean().item() - measures.gaussian_peak(modulus)) <= 4 * error + 1e-12
    with pytest.raises(ValueError, match="odd"):
        measures.gaussian_peak(modulus + 1)


def slow_spectra(neuron):
    """Peak, frequency, agreement, phase and spread of one neuron, from sums over residues."""
    k, p = len(neuron) - 1, len(neuron[0])
    n = p // 2
    powers = [[abs(slow_dft(u, j)) ** 2 * (2 if 0 < j < p / 2 else 1) for j in range(n + 1)] for u in neuron]
    total = [sum(power[j] for power in powers[:k]) for j in range(n + 1)]
    frequency = 1 + int(np.argmax(total[1:]))
    angles = [cmath.phase(slow_dft(u, frequency)) for u in neuron]
    lengths = [math.sqrt(sum(v * v for v in u)) for u in neuron]
    return (
        max(total[1:]) / sum(total),
        frequency,
        all(1 + int(np.argmax(power[1:])) == frequency for power in powers),
        math.cos(sum(angles[:k]) - angles[k]),
        max(lengths) / min(lengths),
        sum(length**2 for length in lengths) ** ((k + 1) / 2),
    )


@pytest.mark.parametrize(("k", "p"), [(2, 5), (3, 7), (4, 3), (2, 4)])
def test_spectra_of_neurons_are_those_of_sums_over_residues(k, p):
    neurons = draw(9, k + 1, p, seed=k)
    neurons[0] = torch.stack([cosine(p, 1, 0.3 * j) for j in range(k + 1)])
    found = measures.neuron_spectra(neurons)
    slow = [slow_spectra(neuron) for neuron in neurons.tolist()]
    for index, name in enumerate(("peak", "frequency", "agrees", "phase", "spread")):
        np.testing.assert_allclose(getattr(found, name).double(), [row[index] for row in slow], atol=1e-9)
    weights = np.array([row[5] for row in slow])
    np.testing.assert_allclose(found.weight, weights / weights.sum())
    assert found.mean(found.peak) == pytest.approx(
        sum(w * r[0] for w, r in zip(weights, slow, strict=True)) / weights.sum()
    )
    shares = np.zeros(p // 2)
    for weight, row in zip(found.weight, slow, strict=True):
        shares[row[1] - 1] += weight * (row[0] >= 0.6)
    np.testing.assert_allclose(found.shares(0.6), shares)
    assert found.shares().sum().item() == pytest.approx(1)


def test_phases_add_up_for_a_cosine_neuron_and_dead_neurons_do_not_count():
    phases = [0.4, 1.1, -0.2]
    neuron = torch.stack([cosine(7, 2, t) for t in (*phases, sum(phases))])
    found = measures.neuron_spectra(torch.stack([neuron, torch.zeros(4, 7)]))
    assert found.phase[0].item() == pytest.approx(1)
    assert found.mean(found.peak) == pytest.approx(1)
    assert found.mean(found.phase) == pytest.approx(1)
    assert found.shares(0.9).tolist() == pytest.approx([0, 1, 0])


def test_uniformity_is_one_for_equal_shares_and_zero_for_one():
    assert measures.normalised_entropy(torch.full((5,), 3.0)) == pytest.approx(1)
    assert measures.normalised_entropy(torch.tensor([0.0, 2.0, 0.0])) == 0
    expected = (math.log(2) / 2 + 2 * math.log(4) / 4) / math.log(3)
    assert measures.normalised_entropy(torch.tensor([2.0, 1.0, 1.0])) == pytest.approx(expected)
    assert math.isnan(measures.normalised_entropy(torch.zeros(3)))


def test_attention_matrices_are_those_of_single_pairs_of_tokens():
    net = nets.attention_net(5, 2, width=6, heads=3, head_dim=4, feedforward=0, seed=0)
    key, query = net.blocks[0].key.weight.detach(), net.blocks[0].query.weight.detach()
    E = net.tokens.detach()[:-1]
    S = measures.attention_matrices(E, key, query, 3)
    for head in range(3):
        rows = slice(4 * head, 4 * head + 4)
        for a in range(5):
            for b in range(5):
                slow = (E[a] @ key[rows].T) @ (query[rows] @ E[b])
                assert S[head, a, b].item() == pytest.approx(slow.item())


def test_planar_power_is_that_of_sums_over_pairs():
    p, S = 5, draw(2, 5, 5)
    power = measures.planar_power(S)
    bins = [(j, i) for j in range(1, (p + 1) // 2) for i in range(1, p)]
    for matrix, found in zip(S, power, strict=True):
        for (j, i), value in zip(bins, found, strict=True):
            transform = sum(
                matrix[a, b].item() * cmath.exp(-2j * math.pi * (j * a + i * b) / p) for a in range(p) for b in range(p)
            )
            assert value.item() == pytest.approx(2 * abs(transform) ** 2)
    changed = S + draw(5, 1, seed=3) + draw(5, seed=4)
    torch.testing.assert_close(measures.planar_power(changed), power)
    with pytest.raises(ValueError, match="odd"):
        measures.planar_power(draw(4, 4))


def test_a_plane_wave_has_one_bin_and_a_product_of_cosines_two():
    a, b = torch.meshgrid(torch.arange(7.0), torch.arange(7.0), indexing="ij")
    wave = torch.cos(2 * math.pi * (2 * a + 3 * b) / 7 + 0.4).double()
    product = (torch.cos(2 * math.pi * 2 * a / 7) * torch.cos(2 * math.pi * b / 7 + 1)).double()
    shares = [measures.top_power_share(measures.planar_power(m), t).item() for m in (wave, product) for t in (1, 2)]
    assert shares == pytest.approx([1, 1, 0.5, 1], abs=1e-6)
