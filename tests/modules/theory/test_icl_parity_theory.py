"""Margins and losses of parity heads by enumeration, and what finite prompts let in."""

import itertools

import numpy as np
import pytest
import torch

from featurelab.modules import data, nets, theory

CASES = [(1, 2), (1, 3), (2, 4)]


@pytest.mark.parametrize(("few", "many"), CASES)
@pytest.mark.parametrize("which", ["few", "many"])
def test_margins_are_hamming_distances(few, many, which):
    bits = few if which == "few" else many
    known = data.endless_parity_prompts(2**many, 0.2)
    with torch.no_grad():
        margins = known.y * nets.binary_heads(2**many, bits, 0.2)(known.x)
    slow = [bin((i ^ j) & (2**bits - 1)).count("1") for i, j in known.tasks.tolist()]
    assert torch.allclose(margins[:, 0], torch.tensor(slow).double(), atol=1e-12)
    assert theory.icl_scale.hamming_distances(known.tasks, bits).tolist() == slow


def test_queries_off_the_pair_change_nothing():
    known = data.endless_parity_prompts(4, 0.2, whole=True)
    with torch.no_grad():
        margins = (known.y * nets.binary_heads(4, 2, 0.2)(known.x))[:, 0]
    assert torch.allclose(margins, theory.icl_scale.hamming_distances(known.tasks, 2).double(), atol=1e-12)


@pytest.mark.parametrize(("few", "many"), CASES)
def test_the_small_model_s_hinge_is_the_closed_form_and_a_loop(few, many):
    d, k = 2**many, 2**few
    known = data.endless_parity_prompts(d, 0.1)
    with torch.no_grad():
        margins = known.y * nets.binary_heads(d, few, 0.1)(known.x)
    within = theory.icl_scale.both_important(known.tasks, k)
    assert theory.icl_scale.mean_hinge(margins, known.weights, within).item() == pytest.approx(0, abs=1e-12)
    outside = theory.icl_scale.mean_hinge(margins, known.weights, ~within).item()
    assert outside == pytest.approx(theory.icl_scale.small_model_hinge(d, k))
    pairs = [(i, j) for i, j in itertools.permutations(range(d), 2) if max(i, j) >= k]
    assert outside == pytest.approx(np.mean([i % k == j % k for i, j in pairs]))
    with pytest.raises(ValueError, match="below the number of features"):
        theory.icl_scale.small_model_hinge(4, 4)


@pytest.mark.parametrize(("dim", "gamma"), [(4, 0.1), (8, 0.2), (16, 0.2)])
def test_the_antichain_is_right_on_every_task_with_less(dim, gamma):
    bits = int(np.log2(dim))
    known = data.endless_parity_prompts(dim, gamma)
    net, theorem = nets.antichain_heads(dim, gamma), nets.binary_heads(dim, bits, gamma)
    with torch.no_grad():
        assert (known.y * net(known.x)).min() >= 1 - 1e-12
        assert (known.y * theorem(known.x)).min() >= 1 - 1e-12
        assert theorem.squared_norms().item() == pytest.approx(theory.icl_scale.binary_heads_norm(dim, bits, gamma))
        assert net.squared_norms() <= theorem.squared_norms() + 1e-9
    assert net.signs.shape[1] <= theorem.signs.shape[1]


def test_the_output_is_even_in_the_labels():
    prompts = data.parity_prompts([(0, 1)], 40, 8, 0.2, 16, np.random.default_rng(0))
    other = prompts.x.clone()
    other[:, 0] *= -1
    for net in (nets.binary_heads(8, 1, 0.2), nets.binary_heads(8, 3, 0.2)):
        assert torch.allclose(net(other), net(prompts.x), atol=1e-12)


@pytest.mark.parametrize("bits", [1, 3])
def test_projected_noise_has_the_dimension_of_the_heads(bits):
    heads = nets.binary_heads(8, bits, 0.2).heads[0].detach()
    chance = np.random.default_rng(0)
    noise = torch.from_numpy((2.0 * chance.binomial(5, 0.5, (40_000, 8)) - 5) / 5)
    power, rank = theory.icl_scale.projected_power(heads, noise)
    assert rank == bits + 1
    assert power.mean().item() == pytest.approx((bits + 1) / 5, rel=0.02)
    basis = torch.linalg.svd(heads).Vh[:rank]
    assert torch.allclose(power, (noise @ basis.T).square().sum(1))


def test_a_tie_is_a_guess():
    margins = torch.tensor([1.0, -2.0, 0.0, 1e-12])
    assert theory.icl_scale.tied_accuracy(margins) == 0.5


def test_the_share_of_rare_tasks_is_where_the_display_has_it():
    assert theory.icl_scale.rare_share_bound(4, 0.2) == pytest.approx(0.05 / (6 * 0.45 + 0.05))
