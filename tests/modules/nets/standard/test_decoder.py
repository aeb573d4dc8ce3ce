"""The decoder against loops, and what padding and later tokens must not change."""

import math

import numpy as np
import pytest
import torch

from featurelab.modules.learners import answer_loss
from featurelab.modules.nets import decoder

SIZES = {"width": 6, "heads": 3, "layers": 2, "embedding_std": 0.5}


@pytest.fixture
def net():
    return decoder(9, 12, **SIZES, seed=1, dtype="float64")


def normed(h):
    return (h - h.mean()) / np.sqrt(((h - h.mean()) ** 2).mean() + 1e-5)


def slow(net, row):
    """Logits at each position and the last row of the last attention, by loops over positions and heads."""
    w = {name: value.detach().numpy() for name, value in net.named_parameters()}

    def linear(name, h):
        return w[f"{name}.weight"] @ h + w[f"{name}.bias"]

    h = [w["tokens"][t] + w["positions"][j] for j, t in enumerate(row)]
    for block in range(SIZES["layers"]):
        name, size = f"blocks.{block}", SIZES["width"] // SIZES["heads"]
        q, k, v = zip(*(np.split(linear(f"{name}.read", normed(state)), 3) for state in h), strict=True)
        after, last = [], []
        for j in range(len(row)):
            mixed, last = [], []
            for head in range(SIZES["heads"]):
                part = slice(head * size, (head + 1) * size)
                scores = np.array([q[j][part] @ k[i][part] / math.sqrt(size) for i in range(j + 1)])
                share = np.exp(scores) / np.exp(scores).sum()
                last.append(share)
                mixed.append(sum(s * v[i][part] for i, s in enumerate(share)))
            state = h[j] + linear(f"{name}.project", np.concatenate(mixed))
            up = linear(f"{name}.up", normed(state))
            gelu = np.array([u * 0.5 * (1 + math.erf(u / math.sqrt(2))) for u in up])
            after.append(state + linear(f"{name}.down", gelu))
        h = after
    return np.stack([linear("head", normed(state)) for state in h]), np.stack(last)


def test_logits_and_attention_are_those_of_loops(net):
    row = [3, 1, 8, 2, 2, 7]
    logits, attention = slow(net, row)
    ids = torch.tensor([row])
    np.testing.assert_allclose(net(ids)[0].detach(), logits, atol=1e-12)
    np.testing.assert_allclose(net.last_row(ids)[0].detach(), attention, atol=1e-12)


def test_padding_on_the_left_changes_nothing(net):
    short, long = [3, 1, 8], [5, 5, 6, 2, 1]
    ids = torch.tensor([[0, 0, 0, *short], [0, *long]])
    np.testing.assert_allclose(net(ids)[0, 3:].detach(), slow(net, short)[0], atol=1e-12)
    np.testing.assert_allclose(net(ids)[1, 1:].detach(), slow(net, long)[0], atol=1e-12)
    rows = net.last_row(ids)
    np.testing.assert_allclose(rows[0, :, 3:].detach(), slow(net, short)[1], atol=1e-12)
    assert rows[0, :, :3].abs().max() == 0
    assert not net(ids)[:, 0].any(), "a column of padding alone is not computed"


def test_later_tokens_change_nothing_before_them(net):
    ids = torch.tensor([[1, 2, 3, 4]])
    torch.testing.assert_close(net(ids)[:, :2], net(torch.tensor([[1, 2, 7, 8]]))[:, :2])


def test_draws_are_of_the_seed_and_sizes_are_checked(net):
    again, other = decoder(9, 12, **SIZES, seed=1, dtype="float64"), decoder(9, 12, **SIZES, seed=2, dtype="float64")
    ids = torch.tensor([[1, 2]])
    assert torch.equal(net(ids), again(ids))
    assert not torch.equal(net(ids), other(ids))
    assert decoder(500, 400, **SIZES | {"embedding_std": 0.1}, seed=0).tokens.std().item() == pytest.approx(
        0.1, rel=0.05
    )
    with pytest.raises(ValueError, match="divide width"):
        decoder(9, 12, **SIZES | {"heads": 4}, seed=0)
    with pytest.raises(ValueError, match="at most 12 tokens, got 13"):
        net(torch.ones(1, 13, dtype=torch.int64))


def test_the_loss_is_that_of_the_answers_alone(net):
    x, y = torch.tensor([[1, 2, 5, 2], [3, 2, 4, 2]]), torch.tensor([[5, 6], [4, 8]])
    logits = net(x).log_softmax(-1)
    slow_loss = -sum(logits[i, j, y[i, j // 2]] for i in range(2) for j in (1, 3)) / 4
    torch.testing.assert_close(answer_loss(2)(net, (x, y)), slow_loss)
    with pytest.raises(ValueError, match="tokens after 1, but y holds"):
        answer_loss(1)(net, (torch.ones(2, 1, dtype=torch.int64), y))
