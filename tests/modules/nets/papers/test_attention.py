import math

import numpy as np
import pytest
import torch

from featurelab.modules.nets import attention_net

SIZES = {"width": 6, "heads": 3, "head_dim": 2, "feedforward": 5}


def normed(h):
    h = h - h.mean()
    return h / np.sqrt((h * h).mean() + 1e-5)


def softmax(scores):
    e = np.exp(scores - scores.max())
    return e / e.sum()


def slow(net, row, heads):
    """The logits of one sequence, by loops over layers, positions and heads."""
    weights = {name: value.detach().numpy() for name, value in net.named_parameters()}
    ids = [*row, len(net.tokens) - 1]
    h = [weights["tokens"][t] + weights["positions"][j] for j, t in enumerate(ids)]
    for index in range(len(net.blocks)):
        part = {
            name: weights.get(f"blocks.{index}.{name}.weight")
            for name in ("query", "key", "value", "project", "up", "down")
        }
        seen = [normed(state) for state in h]
        after = []
        for j in range(len(h)):
            mixed = []
            for head in range(heads):
                size = len(part["query"]) // heads
                rows = slice(head * size, (head + 1) * size)
                q = part["query"][rows] @ seen[j]
                scores = np.array([q @ (part["key"][rows] @ other) / math.sqrt(size) for other in seen])
                shares = softmax(scores)
                mixed.append(sum(s * (part["value"][rows] @ other) for s, other in zip(shares, seen, strict=True)))
            state = h[j] + part["project"] @ np.concatenate(mixed)
            if part["up"] is not None:
                u = torch.from_numpy(part["up"] @ normed(state))
                state = state + part["down"] @ torch.nn.functional.gelu(u).numpy()
            after.append(state)
        h = after
    return weights["head.weight"] @ normed(h[-1])


@pytest.mark.parametrize(("layers", "feedforward"), [(1, 5), (2, 5), (2, 0)])
def test_logits_are_those_of_loops_over_positions_and_heads(layers, feedforward):
    net = attention_net(5, 3, **SIZES | {"feedforward": feedforward}, layers=layers, seed=2)
    x = torch.tensor([[0, 1, 4], [3, 3, 2], [4, 0, 0]], dtype=torch.int16)
    expected = np.stack([slow(net, row, 3) for row in x.tolist()])
    np.testing.assert_allclose(net(x).detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_every_weight_moves_the_logits_and_without_feedforward_there_is_none():
    net = attention_net(5, 3, **SIZES, layers=2, seed=2)
    net(torch.tensor([[0, 1, 4], [3, 3, 2]])).square().sum().backward()
    assert all(weight.grad.abs().max() > 0 for weight in net.parameters())
    assert not any(
        "up" in name for name, _ in attention_net(5, 3, **SIZES | {"feedforward": 0}, seed=2).named_parameters()
    )


def test_weights_have_streams_of_their_own_and_the_law_of_nn_linear():
    one = attention_net(11, 2, width=64, heads=2, head_dim=16, feedforward=128, seed=0)
    two = attention_net(11, 2, width=64, heads=2, head_dim=16, feedforward=128, layers=2, seed=0)
    assert torch.equal(one.blocks[0].down.weight, two.blocks[0].down.weight)
    assert not torch.equal(two.blocks[0].key.weight, two.blocks[1].key.weight)
    for name, weight in one.named_parameters():
        embeds = name in ("tokens", "positions")
        assert weight.var().item() * weight.shape[1] == pytest.approx(1 if embeds else 1 / 3, rel=0.25)
        assert embeds or weight.abs().max() <= weight.shape[1] ** -0.5


def test_faulty_sizes_are_refused():
    with pytest.raises(ValueError, match="at least"):
        attention_net(5, 3, **SIZES | {"heads": 0}, seed=0)
