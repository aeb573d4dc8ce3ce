"""Cluster-and-linear-probe: can clusters recover the classes inside a coarse label without their labels?

Yang, Steinhardt, Hu 2023 (ICML, PMLR 202), section 5. t-SNE embeds the samples of each coarse label in the plane and
k-means clusters them. A linear classifier is trained on the clusters, and its test predictions are compared with the
original classes under the best renaming of clusters within each coarse label.

Throughout, `groups` (C,) is the coarse label of each of the C classes, and a cluster bears the name of a class of its
coarse label: a renaming is then a permutation of the classes that keeps every class in its group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64, Integer, Real
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import Normalizer, StandardScaler
from torch import Tensor

Integers = np.ndarray
Floats = np.ndarray


@dataclass(frozen=True)
class Clusters:
    """`labels` (n,): the cluster of each sample, named by a class of its group; `plane` (n, 2): its t-SNE.

    Without t-SNE `plane` has no rows.
    """

    labels: Int64[Integers, " n"]
    plane: Float64[Floats, "rows 2"]


def clusters_within_groups(
    features: Real[Tensor, "_n ..."],
    coarse: Integer[Tensor, " _n"],
    groups: Integer[Tensor, " classes"],
    *,
    seed: int,
    reduce: Literal["tsne", "none"] = "tsne",
    perplexity: float = 30.0,
    components: int = 50,
    restarts: int = 10,
) -> Clusters:
    """Cluster the samples of each coarse label into as many clusters as it has classes.

    `coarse` (n,) lies in [0, max(groups)]. `reduce="tsne"` first embeds the samples of a coarse label in the plane,
    after principal components where d > `components`; "none" runs k-means on the features. A coarse label with few
    samples gets the perplexity (rows - 1) / 3. The same seed gives the same clusters on one machine; t-SNE may differ
    between versions of scikit-learn and numbers of threads.

    Raises ValueError for a coarse label with fewer samples than classes, or an unknown `reduce`.
    """
    if reduce not in ("tsne", "none"):
        raise ValueError(f"reduce must be 'tsne' or 'none', got {reduce!r}")
    H, labels, owner = _floats(features), _integers(coarse), _integers(groups)
    if len(H) != len(labels):
        raise ValueError(f"there are {len(H)} rows of features but {len(labels)} labels")
    clusters = np.full(len(H), -1, dtype=np.int64)
    plane = np.zeros((len(H) if reduce == "tsne" else 0, 2))
    for group in np.unique(owner):
        rows, members = np.flatnonzero(labels == group), np.flatnonzero(owner == group)
        if len(rows) < len(members):
            raise ValueError(f"coarse label {group} has {len(rows)} samples for {len(members)} classes")
        points = H[rows]
        if reduce == "tsne":
            points = plane[rows] = _plane(points, seed % 2**32, perplexity, components)
        means = KMeans(len(members), n_init=restarts, random_state=seed % 2**32)
        clusters[rows] = members[means.fit_predict(points)]
    if (clusters < 0).any():
        raise ValueError(f"coarse label {labels[clusters < 0][0]} belongs to no class")
    return Clusters(clusters, plane)


def linear_probe(
    features: Real[Tensor, "n ..."],
    labels: Integer[Tensor, " n"] | Int64[Integers, " n"],
    test: Real[Tensor, "m ..."],
    *,
    ridge: float = 1.0,
    max_iter: int = 2000,
    scale: Literal["columns", "rows"] = "columns",
) -> Int64[Integers, " m"]:
    """Predictions for `test` of a multinomial logistic regression on features (n, d) with labels (n,).

    By default columns are standardised by the training features: what separates the classes inside a coarse label is
    small beside what separates coarse labels, and a penalty on raw features would hide it. `scale="rows"` instead
    scales the features of every sample to length 1. The objective is sum_a loss_a + ridge / 2 |W|^2.
    """
    H, T = _floats(features), _floats(test)
    scaler = StandardScaler().fit(H) if scale == "columns" else Normalizer().fit(H)
    model = LogisticRegression(C=1.0 / ridge, max_iter=max_iter)
    predicted: Integers = model.fit(scaler.transform(H), np.asarray(labels)).predict(scaler.transform(T))
    return predicted


def best_renaming(
    found: Int64[Integers, " n"], true: Int64[Integers, " n"], groups: Int64[Integers, " classes"]
) -> Int64[Integers, " classes"]:
    """The renaming r (C,) of clusters within groups for which r[found] == true most often.

    Solves one assignment problem for each group, which gives the maximum over all products of permutations within
    groups (5!^20 for CIFAR-100). Permutations across groups are not allowed.
    """
    count = len(groups)
    table = np.bincount(found * count + true, minlength=count * count).reshape(count, count)
    renaming = np.arange(count)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        rows, columns = linear_sum_assignment(table[np.ix_(members, members)], maximize=True)
        renaming[members[rows]] = members[columns]
    return renaming


def cluster_scores(
    clusters: Clusters, classes: Integer[Tensor, " n"], groups: Integer[Tensor, " classes"]
) -> dict[str, float]:
    """How well clusters agree with the classes, which they were not told.

    `cluster_accuracy`: share of samples in the right cluster under the best renaming within groups, at least about
    1 / (classes of a group). `cluster_nmi` in [0, 1] and `cluster_ari` <= 1: normalised mutual information and adjusted
    Rand index, averaged over groups.
    """
    true, owner = _integers(classes), _integers(groups)
    right = best_renaming(clusters.labels, true, owner)[clusters.labels] == true
    inside = [owner[true] == group for group in np.unique(owner)]
    pairs = [(true[rows], clusters.labels[rows]) for rows in inside]
    return {
        "cluster_accuracy": float(right.mean()),
        "cluster_nmi": float(np.mean([normalized_mutual_info_score(a, b) for a, b in pairs])),
        "cluster_ari": float(np.mean([adjusted_rand_score(a, b) for a, b in pairs])),
    }


def cluster_and_probe(
    clusters: Clusters,
    train: tuple[Real[Tensor, "n ..."], Integer[Tensor, " n"]],
    test: tuple[Real[Tensor, "m ..."], Integer[Tensor, " m"]],
    groups: Integer[Tensor, " classes"],
    *,
    ridge: float = 1.0,
    max_iter: int = 2000,
) -> dict[str, float]:
    """Test accuracies on the original classes, in [0, 1]; `train` and `test` are (features, original classes).

    `clp`: a linear probe trained on the clusters, renamed within groups so that it does best on the test set, as in the
    paper; samples in a wrong group count as errors. `clp_train_mapped`, at most `clp`: renamed by the training set.
    `lpo`: the same probe trained on the original classes. Random clusters score about 1 / (classes of a group). The
    result also holds the `cluster_scores`.
    """
    owner, y_train, y_test = _integers(groups), _integers(train[1]), _integers(test[1])
    options = {"ridge": ridge, "max_iter": max_iter}
    predicted = linear_probe(train[0], clusters.labels, test[0], **options)  # type: ignore[arg-type]
    own = best_renaming(predicted, y_test, owner)
    other = best_renaming(clusters.labels, y_train, owner)
    known = linear_probe(train[0], y_train, test[0], **options)  # type: ignore[arg-type]
    return {
        "clp": float((own[predicted] == y_test).mean()),
        "clp_train_mapped": float((other[predicted] == y_test).mean()),
        "lpo": float((known == y_test).mean()),
        **cluster_scores(clusters, train[1], groups),
    }


def _plane(points: Floats, seed: int, perplexity: float, components: int) -> Floats:
    """t-SNE (n, 2) of points (n, d), from their first principal components where d is large."""
    if len(points) < 3:
        return np.pad(points, ((0, 0), (0, 2)))[:, :2]
    if points.shape[1] > components:
        points = PCA(min(components, len(points)), random_state=seed).fit_transform(points)
    fit = TSNE(2, perplexity=min(perplexity, (len(points) - 1) / 3), init="pca", random_state=seed, n_jobs=1)
    placed: Floats = fit.fit_transform(points).astype(np.float64)
    return placed


def _floats(values: Tensor) -> Floats:
    rows: Floats = values.detach().flatten(1).double().cpu().numpy()
    return rows


def _integers(values: Tensor | Integers) -> Integers:
    return (values.cpu().numpy() if isinstance(values, Tensor) else values).astype(np.int64)
