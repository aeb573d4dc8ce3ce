"""Prompts of linear regression: their parts, laws and streams, and what permuted labels permute."""

import pytest
import torch

from featurelab.modules import data


def test_a_prompt_holds_its_examples_labels_query_and_alpha():
    made = data.LinearPrompts(200, 12, 3, n_test=7, seed=1)
    Z, theta = made.train
    assert Z.shape == (200, 13, 4)
    assert made.test[0].shape == (7, 13, 4)
    assert torch.allclose(theta.norm(dim=1), torch.ones(200, dtype=torch.float64))
    assert torch.allclose(Z[:, :-1, -1], (Z[:, :-1, :-1] @ theta[..., None])[..., 0])
    assert Z[:, -1].unique(dim=0).tolist() == [[0.0, 0.0, 0.0, 1.0]]
    assert Z[:, :-1, :-1].var().item() == pytest.approx(1, abs=0.05)
    assert made.describe()["examples"] == 12


def test_variances_noise_queries_and_alphas_have_their_laws():
    Z, theta = data.LinearPrompts(4000, 6, 2, variances=(4.0, 0.25), noise=0.5, query=2.0, alpha=None, seed=0).train
    X = Z[:, :-1, :-1]
    assert X.var(dim=(0, 1)).tolist() == pytest.approx([4.0, 0.25], rel=0.05)
    off = Z[:, :-1, -1] - (X @ theta[..., None])[..., 0]
    assert off.std().item() == pytest.approx(0.5, rel=0.05)
    assert Z[:, -1, :-1].std().item() == pytest.approx(2.0, rel=0.05)
    alpha = Z[:, -1, -1]
    assert alpha.abs().min() >= 0.5
    assert alpha.abs().max() <= 2.0
    assert 0.4 < (alpha > 0).double().mean() < 0.6


def test_noise_and_queries_leave_examples_and_rules_as_they_are():
    plain, other = (data.LinearPrompts(5, 4, 3, seed=2, **more).train for more in ({}, {"noise": 1.0, "query": 1.0}))
    assert torch.equal(plain[0][:, :-1, :-1], other[0][:, :-1, :-1])
    assert torch.equal(plain[1], other[1])


def test_permuted_labels_are_those_of_the_examples_in_training_prompts():
    plain = data.LinearPrompts(6, 5, 3, n_test=4, seed=3)
    with data.permuted_labels(0):
        permuted = data.LinearPrompts(6, 5, 3, n_test=4, seed=3)
    Z, there = plain.train[0], permuted.train[0]
    assert not torch.equal(there, Z)
    assert torch.equal(there[..., :-1], Z[..., :-1])
    assert torch.equal(there[:, :-1, -1].flatten().sort().values, Z[:, :-1, -1].flatten().sort().values)
    assert torch.equal(permuted.train[1], plain.train[1])
    assert torch.equal(permuted.labelled[0], Z)
    assert torch.equal(permuted.test[0], plain.test[0])


@pytest.mark.parametrize(
    ("sizes", "options", "said"),
    [
        ((0, 4, 3), {}, "at least 1"),
        ((2, 4, 3), {"variances": (1.0, 2.0)}, "3 positive"),
        ((2, 4, 3), {"condition": 0.5}, "at least 1"),
        ((2, 2, 3), {"condition": 2.0}, "n >= dim"),
        ((2, 4, 3), {"alpha": 0}, "alpha"),
    ],
)
def test_what_cannot_be_drawn_is_refused(sizes, options, said):
    with pytest.raises(ValueError, match=said):
        data.LinearPrompts(*sizes, seed=0, **options)
