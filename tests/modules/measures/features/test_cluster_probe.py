import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules.measures import (
    best_renaming,
    cluster_and_probe,
    cluster_scores,
    clusters_within_groups,
    linear_probe,
)

GROUPS = torch.arange(6) % 3  # pairs (0, 3) (1, 4) (2, 5)


def blobs(n=30, apart=12.0, seed=0):
    """Six classes of n samples in 7 dimensions: groups far apart, the two classes of a group `apart`."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(6).repeat(n)
    x = torch.randn(6 * n, 7, generator=rng)
    x[torch.arange(len(y)), GROUPS[y]] += 30.0
    x[:, 3] += apart * (y >= 3)
    return x, y


def slow_renaming_score(found, true, groups):
    """Over all products of permutations within groups."""
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    best = 0
    for choice in itertools.product(*(itertools.permutations(m) for m in members)):
        renaming = np.arange(len(groups))
        for own, other in zip(members, choice, strict=True):
            renaming[own] = other
        best = max(best, int((renaming[found] == true).sum()))
    return best


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(0, 1, 2, 0, 1, 2), (0, 0, 0, 1, 1), (0, 1, 2), (0, 0, 0, 0)]))
def test_the_best_renaming_is_the_best_of_all_products_of_permutations(seed, groups):
    rng = np.random.default_rng(seed)
    groups = np.array(groups)
    found, true = (rng.integers(0, len(groups), 50) for _ in range(2))
    renaming = best_renaming(found, true, groups)
    assert sorted(renaming) == list(range(len(groups)))
    assert np.array_equal(groups[renaming], groups)
    assert (renaming[found] == true).sum() == slow_renaming_score(found, true, groups)


def test_clusters_are_not_renamed_across_groups():
    found, true = np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])
    assert list(best_renaming(found, true, np.array([0, 1]))) == [0, 1]
    assert list(best_renaming(found, true, np.array([0, 0]))) == [1, 0]


@pytest.mark.parametrize("reduce", ["tsne", "none"])
def test_classes_far_apart_inside_a_label_are_recovered(reduce):
    (x, y), (x_test, y_test) = blobs(), blobs(seed=1)
    clusters = clusters_within_groups(x, GROUPS[y], GROUPS, seed=0, reduce=reduce)
    assert torch.equal(GROUPS[torch.from_numpy(clusters.labels)], GROUPS[y])
    assert clusters.plane.shape == ((len(x), 2) if reduce == "tsne" else (0, 2))
    found = cluster_and_probe(clusters, (x, y), (x_test, y_test), GROUPS)
    assert min(found[score] for score in ("lpo", "clp", "clp_train_mapped")) > 0.9
    least = 0.999 if reduce == "none" else 0.7  # the plane of a few dozen samples may tear a class
    assert min(found[score] for score in ("cluster_accuracy", "cluster_nmi", "cluster_ari")) > least


def test_without_structure_inside_labels_clusters_score_as_chance():
    (x, y), (x_test, y_test) = blobs(apart=0.0, n=100), blobs(apart=0.0, n=100, seed=1)
    clusters = clusters_within_groups(x, GROUPS[y], GROUPS, seed=0, reduce="none")
    found = cluster_and_probe(clusters, (x, y), (x_test, y_test), GROUPS)
    assert 0.5 <= found["clp"] < 0.6
    assert 0.5 <= found["cluster_accuracy"] < 0.6
    assert abs(found["cluster_ari"]) < 0.1
    assert found["clp_train_mapped"] <= found["clp"]


def test_clusters_do_not_depend_on_how_classes_are_divided_among_samples():
    x, y = blobs()
    swapped = (y + 3) % 6
    one, other = (clusters_within_groups(x, GROUPS[labels], GROUPS, seed=0, reduce="none") for labels in (y, swapped))
    assert np.array_equal(one.labels, other.labels)
    assert cluster_scores(one, y, GROUPS) == pytest.approx(cluster_scores(one, swapped, GROUPS))


def test_test_samples_put_into_a_wrong_group_are_errors():
    (x, y), (x_test, y_test) = blobs(), blobs(seed=1)
    clusters = clusters_within_groups(x, GROUPS[y], GROUPS, seed=0, reduce="none")
    elsewhere = torch.where(torch.arange(len(y_test)) < 45, (y_test + 1) % 6, y_test)  # a quarter in another group
    found = cluster_and_probe(clusters, (x, y), (x_test, elsewhere), GROUPS)
    assert 0.7 < found["clp"] <= 0.75


def test_the_probe_does_not_care_for_the_scale_of_a_column():
    (x, y), (x_test, _) = blobs(apart=2.0), blobs(apart=2.0, seed=1)
    scale = torch.tensor([1e-3, 1, 1e3, 1e-2, 1, 1, 10.0]).double()
    plain = linear_probe(x.double(), y, x_test.double())
    assert np.array_equal(plain, linear_probe(x.double() * scale + 5, y, x_test.double() * scale + 5))


def test_few_samples_still_have_a_plane():
    x, y = blobs(n=2)
    clusters = clusters_within_groups(x, GROUPS[y], GROUPS, seed=0)
    assert np.isfinite(clusters.plane).all()
    x, y = x[:6], y[:6]
    assert set(clusters_within_groups(x, GROUPS[y], GROUPS, seed=0).labels) == set(range(6))


def test_many_dimensions_are_reduced_first():
    x, y = blobs()
    wide = torch.cat([x, 1e-3 * torch.randn(len(x), 80, generator=torch.Generator().manual_seed(3))], 1)
    clusters = clusters_within_groups(wide, GROUPS[y], GROUPS, seed=0)
    assert cluster_scores(clusters, y, GROUPS)["cluster_accuracy"] > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reduce": "umap"}, "reduce must be"),
        ({"coarse": torch.zeros(4).long()}, "180 rows of features but 4 labels"),
        ({"coarse": torch.cat([torch.zeros(179), torch.ones(1)]).long()}, "coarse label 1 has 1 samples for 2 classes"),
        ({"coarse": torch.arange(180) % 4}, "coarse label 3 belongs to no class"),
    ],
)
def test_what_cannot_be_clustered_is_refused(change, message):
    x, y = blobs()
    with pytest.raises(ValueError, match=message):
        clusters_within_groups(x, **({"coarse": GROUPS[y], "groups": GROUPS, "seed": 0, "reduce": "none"} | change))
