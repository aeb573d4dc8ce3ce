"""A bag of words against a loop: order and padding do not count, dropout tells two passes apart."""

import pytest
import torch

from featurelab.modules.nets import WordBag

IDS = torch.tensor([[1, 4, 2, 0], [3, 3, 0, 0]])


def test_features_are_those_of_the_mean_of_the_words_vectors():
    net = WordBag(6, 5, hidden=7, dropout=0.3, seed=0).eval()
    first, _, last = net.above
    for row, ids in zip(net(IDS), ([1, 4, 2], [3, 3]), strict=True):
        mean = sum(net.words.weight[i] for i in ids) / len(ids)
        hidden = torch.relu(first.weight @ mean + first.bias)
        torch.testing.assert_close(row, last.weight @ hidden + last.bias)
    torch.testing.assert_close(net(IDS[:, [2, 0, 1, 3]])[0], net(IDS)[0])
    assert torch.isfinite(net(torch.zeros(1, 4, dtype=torch.int64))).all()
    assert torch.equal(net(IDS), WordBag(6, 5, hidden=7, dropout=0.3, seed=0).eval()(IDS))
    assert not torch.equal(net(IDS), WordBag(6, 5, hidden=7, dropout=0.3, seed=1).eval()(IDS))


def test_dropout_drops_entries_of_word_vectors_while_training():
    net = WordBag(6, 50, hidden=7, dropout=0.5, seed=0)
    assert not torch.equal(net(IDS), net(IDS))
    net.above = torch.nn.Identity()
    torch.manual_seed(0)
    ratio = (net(IDS[1:]) / net.words.weight[3]).detach()[0]  # (0, 1 or 2) of two words, each twice as long
    assert set(ratio.round(decimals=4).tolist()) == {0.0, 1.0, 2.0}
    with pytest.raises(ValueError, match="dropout"):
        WordBag(6, 5, hidden=7, dropout=1.0, seed=0)
