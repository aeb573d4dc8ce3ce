"""Linear attention against its definition, entry by entry, and heads against loops over features."""

import itertools

import pytest
import torch

from featurelab.modules import data, nets


def test_whole_attention_is_its_definition():
    net = nets.linear_attention(3, init_scale=0.7, seed=1)
    E = torch.randn(5, 4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    E[:, 3, 6] = torch.arange(5)
    P, K = net.value.weight, net.key_query.weight
    for prompt, output in zip(E, net(E), strict=True):
        whole = prompt + P @ prompt @ (prompt.T @ K @ prompt) / 6
        assert output.item() == pytest.approx(whole[3, 6].item())


def test_blocks_are_all_that_the_output_sees():
    net = nets.linear_attention(3, init_scale=0.7, seed=1)
    E = data.RegressionPrompts(6, 0, torch.eye(3, dtype=torch.float64), 4, whole=True, seed=0).train[0]
    b = net.blocks()
    read = torch.cat([b["w21"], b["u"][None]]) @ (E @ E.mT / 4) @ torch.cat([b["U"], b["k"][None]])
    assert torch.allclose((read * E[:, :3, 4]).sum(1), net(E)[:, 0])


def test_a_product_makes_the_same_predictor_whole_and_reduced():
    P = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    E = data.RegressionPrompts(6, 0, torch.eye(3, dtype=torch.float64), 4, whole=True, seed=0).train[0]
    z = (E[:, :3, :4] @ E[:, 3, :4, None])[..., 0] / 4
    x = torch.stack([z, E[:, :3, 4]], 1)
    reduced = nets.attention_of_product(P)
    assert torch.allclose(reduced.product(), P)
    assert torch.allclose(reduced(x)[:, 0], torch.einsum("ni,ij,nj->n", z, P, x[:, 1]))
    # the query's own token, without a label, adds nothing
    assert torch.allclose(nets.whole_attention_of_product(P)(E), reduced(x))
    assert torch.linalg.matrix_rank(nets.attention_of_product(P, 2).product()) == 2


@pytest.mark.parametrize("diagonal", [False, True])
def test_parity_heads_are_loops_over_heads_and_features(diagonal):
    net = nets.parity_heads(4, 3, copies=2, diagonal=diagonal, init_scale=1.0, seed=0)
    x = torch.randn(5, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    net.requires_grad_(False)
    for n, s in itertools.product(range(5), range(2)):
        total = 0.0
        for h in range(3):
            V = net.heads[s, h] if not diagonal else torch.diag(net.heads[s, h])
            total += net.signs[s, h] * max(0.0, (x[n, 0] @ V @ x[n, 1]).item())
        assert net(x)[n, s].item() == pytest.approx(float(total))
    assert torch.allclose(net.squared_norms(), net.heads.square().flatten(1).sum(1))


def test_the_small_model_is_in_the_large_one():
    large = nets.binary_heads(8, 3, 0.2)
    small = nets.small_of_large(large, 2)
    assert torch.allclose(small.heads, nets.binary_heads(8, 2, 0.2).heads)
    assert torch.equal(small.signs, nets.binary_heads(8, 2, 0.2).signs)


@pytest.mark.parametrize(("dim", "width"), [(4, 6), (8, 7), (16, 8), (32, 9)])
def test_sets_of_an_antichain_do_not_hold_one_another(dim, width):
    net = nets.antichain_heads(dim, 0.2)
    assert net.signs.shape == (1, width)
    sets = [set(torch.nonzero(column > 0).flatten().tolist()) for column in net.heads[0, : width - 2].T]
    assert not any(a <= b for a, b in itertools.permutations(sets, 2))


def test_bad_sizes_are_refused():
    for wrong in (
        lambda: nets.linear_attention(0, init_scale=1, seed=0),
        lambda: nets.reduced_attention(3, 0, init_scale=1, seed=0),
        lambda: nets.parity_heads(2, 0, init_scale=1, seed=0),
        lambda: nets.binary_heads(4, 0, 0.2),
        lambda: nets.antichain_heads(1, 0.2),
    ):
        with pytest.raises(ValueError, match=r"at least|two"):
            wrong()
