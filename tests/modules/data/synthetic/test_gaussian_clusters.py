"""Gaussian clusters: what is drawn from where, and that the draws have the stated moments."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from featurelab.modules import data

GROUPS = torch.arange(8) % 4


def test_means_have_the_stated_variance():
    means = data.spread_means(8, 4000, [0.25, 4.0], seed=0)
    assert means.shape == (2, 8, 4000)
    assert torch.allclose(means.var((1, 2)), torch.tensor([0.25, 4.0], dtype=torch.float64), rtol=0.05)


def test_a_stack_of_mixtures_differs_in_scale_only():
    means = data.spread_means(8, 16, [1.0, 4.0, 0.0], seed=3)
    assert torch.allclose(means[1], 2 * means[0])
    assert not means[2].any()
    x = data.GaussianClusters(means, GROUPS, 80, seed=3).train[0]
    alone = data.GaussianClusters(means[1], GROUPS, 80, seed=3).train[0]
    assert torch.equal(x[:, 1], alone)
    noise = x[:, 2]
    assert torch.allclose(x[:, 0], noise + means[0].repeat(10, 1))


def test_similar_pairs_differ_by_twice_their_own_variance_and_others_by_twice_that_of_all():
    means = data.paired_means(GROUPS, 5000, 4.0, [0.5, 4.0], seed=1)
    apart = (means[:, :4] - means[:, 4:]).square().mean(-1)
    alike = data.similar_groups(GROUPS)
    assert alike == 2
    assert torch.allclose(apart[0, :alike], torch.tensor(1.0).double(), rtol=0.1)
    assert torch.allclose(apart[1, :alike], torch.tensor(8.0).double(), rtol=0.1)
    assert torch.allclose(apart[:, alike:], torch.tensor(8.0).double(), rtol=0.1)
    assert torch.equal(means[0, 2], means[1, 2])  # what is not alike knows nothing of tau2
    centre = (means[0, 0] * means[0, 4]).mean()
    assert centre.item() == pytest.approx(4.0, rel=0.15)


def test_families_share_the_mean_of_the_family():
    means = data.nested_means(4, 3, 5000, [0.1], seed=2)[0]
    gram = means @ means.T / 5000
    family = torch.arange(12) // 3
    together = family[:, None] == family[None, :]
    expected = together.double() + 0.1 * torch.eye(12)
    assert torch.allclose(gram, expected, atol=0.08)
    assert torch.equal(data.nested_means(4, 3, 8, [0.0], seed=2)[0, 0], data.nested_means(4, 3, 8, [0.0], seed=2)[0, 2])


@given(st.integers(1, 6), st.integers(0, 20), st.floats(0.1, 50))
def test_orthogonal_means_are_orthogonal_and_of_the_stated_length(clusters, more, norm):
    means = data.orthogonal_means(clusters, clusters + more, norm, seed=5)
    gram = means @ means.T
    assert torch.allclose(gram, norm**2 * torch.eye(clusters).double(), atol=1e-10 * norm**2)


def test_samples_do_not_depend_on_the_sizes_of_the_sets_and_clusters_take_turns():
    means = data.spread_means(8, 6, [1.0], seed=0)[0]
    small = data.GaussianClusters(means, GROUPS, 16, 8, seed=4)
    large = data.GaussianClusters(means, GROUPS, 80, 40, seed=4)
    assert torch.equal(small.train[0], large.train[0][:16])
    assert torch.equal(small.test[0], large.test[0][:8])
    assert small.clusters.tolist() == [*range(8), *range(8)]
    assert small.train[1].tolist() == [c % 4 for c in small.clusters]
    assert not torch.equal(small.train[0][:8], small.test[0])


def test_the_learner_is_given_labels_and_no_clusters():
    task = data.GaussianClusters(data.spread_means(8, 6, [1.0], seed=0), GROUPS, 16, seed=4)
    ((x, y),) = list(task.train_dataloader())
    assert x.shape == (16, 1, 6)
    assert y.unique().tolist() == [0, 1, 2, 3]
    assert task.describe()["clusters"] == 8


def test_signs_stay_signs_in_a_column():
    signs = torch.tensor([1.0, 1.0, -1.0, -1.0])
    task = data.GaussianClusters(data.orthogonal_means(4, 8, 3.0, seed=0), signs, 8, noise=0.0, seed=0)
    assert task.train[1].shape == (8, 1)
    assert task.train[1].flatten().tolist() == [1, 1, -1, -1] * 2
    assert task.groups[0] == task.groups[1] != task.groups[2] == task.groups[3]
    assert torch.equal(task.train[0], task.means.repeat(2, 1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: data.spread_means(8, 4, [-1.0], seed=0), "variances"),
        (lambda: data.spread_means(0, 4, [1.0], seed=0), "at least 1"),
        (lambda: data.orthogonal_means(5, 4, 1.0, seed=0), "orthogonal in 4"),
        (lambda: data.GaussianClusters(torch.zeros(8, 4), GROUPS, 12, seed=0), "multiple of the 8"),
        (lambda: data.GaussianClusters(torch.zeros(8, 4), GROUPS[:3], 16, seed=0), "8 labels"),
        (lambda: data.GaussianClusters(torch.zeros(8, 4), GROUPS, 16, noise=-1.0, seed=0), "noise"),
    ],
)
def test_impossible_mixtures_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
