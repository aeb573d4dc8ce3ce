"""Gaussian mixtures whose clusters are finer than their labels (Yang, Steinhardt, Hu 2023, arXiv:2306.17105).

Means are drawn separately from samples: a stack of mixtures (S, C, d) shares its standard normal draws, so that
mixtures of a stack differ only in the scale of their means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Integer, Real
from torch import Tensor

from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream


def spread_means(
    clusters: int, dim: int, variances: Sequence[float], *, seed: int
) -> Float64[Tensor, "mixtures {clusters} {dim}"]:
    """Means mu_c ~ N(0, s2 I), (S, clusters, dim), for each of the S `variances` s2 (appendix B).

    All S are one standard normal draw times sqrt(s2). Raises ValueError for a size below 1 or a negative variance.
    """
    z = stream(seed, "means").standard_normal((clusters, dim))
    return _scales(variances)[:, None, None] * _positive(z)


def paired_means(
    groups: Sequence[int] | Integer[Tensor, " clusters"],
    dim: int,
    variance: float,
    pair_variances: Sequence[float],
    *,
    seed: int,
) -> Float64[Tensor, "mixtures clusters {dim}"]:
    """Means (S, C, dim) that are similar within half of the labels (appendix B.1).

    `groups` (C,) is the label of each cluster. In the first half of the labels mu_c ~ N(mu, tau2 I) around one
    mu ~ N(0, s2 I) for each label, for each of the S `pair_variances` tau2; in the others mu_c ~ N(0, s2 I). Raises
    ValueError for a negative variance.
    """
    labels = torch.as_tensor(groups)
    z = torch.from_numpy(stream(seed, "means").standard_normal((len(labels), dim)))
    centres = torch.from_numpy(stream(seed, "centres").standard_normal((int(labels.max()) + 1, dim)))
    scale = _scales([variance])
    alike = centres[labels] * scale + z * _scales(pair_variances)[:, None, None]
    return torch.where((labels < similar_groups(labels))[:, None], alike, z * scale)


def similar_groups(groups: Sequence[int] | Integer[Tensor, " clusters"]) -> int:
    """Number of labels (the first ones) whose clusters `paired_means` makes similar: half of them, rounded down."""
    return (int(torch.as_tensor(groups).max()) + 1) // 2


def nested_means(
    families: int, members: int, dim: int, variances: Sequence[float], *, seed: int
) -> Float64[Tensor, "mixtures {families}*{members} {dim}"]:
    """Means (S, C, dim) of classes that come in families.

    The mean of class c is the mean of its family c // members, N(0, I), plus N(0, tau2 I) of its own, for each of the S
    `variances` tau2. Raises ValueError for a size below 1 or a negative variance.
    """
    centres = _positive(stream(seed, "centres").standard_normal((families, dim)))
    z = _positive(stream(seed, "means").standard_normal((families * members, dim)))
    return centres.repeat_interleave(members, 0) + _scales(variances)[:, None, None] * z


def orthogonal_means(clusters: int, dim: int, norm: float, *, seed: int) -> Float64[Tensor, "{clusters} {dim}"]:
    """Pairwise orthogonal means (clusters, dim) of length `norm`, in random directions (section 7).

    Raises ValueError for more clusters than dimensions.
    """
    if clusters > dim:
        raise ValueError(f"{clusters} means cannot be orthogonal in {dim} dimensions")
    q, r = np.linalg.qr(stream(seed, "means").standard_normal((dim, clusters)))
    return torch.from_numpy((q * np.sign(np.diag(r))).T.copy()) * norm


def opposite_pairs(means: Real[Tensor, "pairs dim"]) -> Real[Tensor, "2*pairs dim"]:
    """Means m_1, -m_1, m_2, -m_2, ...; of two means, the clusters of a continuous XOR (arXiv:2310.12408, B.5.3)."""
    return torch.stack([means, -means], 1).flatten(0, 1)


class GaussianClusters(TensorData):
    """x = mu_c + noise xi, xi ~ N(0, I); a learner sees the label of the cluster, not the cluster.

    `means` (C, d) gives inputs (n, d); a stack (S, C, d) gives (n, S, d), S mixtures with the same noise. `labels` (C,)
    is the label of each cluster: integers give class labels, floating-point numbers targets (n, 1). Clusters have equal
    sizes and take turns: sample i belongs to cluster i mod C, and does not depend on the size of its set.

    Attributes: `clusters` and `test_clusters` (n,), the cluster of each sample; `groups` (C,), the labels if they are
    integers, else their ranks; `means`. Raises ValueError for labels that do not match the means, negative noise, and
    sizes that are not multiples of C.
    """

    def __init__(
        self,
        means: Real[Tensor, "clusters dim"] | Real[Tensor, "mixtures clusters dim"],
        labels: Real[Tensor, " _clusters"] | Sequence[int],
        n_train: int,
        n_test: int = 0,
        *,
        noise: float = 1.0,
        seed: int,
        dtype: Dtype = "float64",
        **options: Any,
    ) -> None:
        labels = torch.as_tensor(labels)
        clusters, dim = means.shape[-2:]
        if labels.shape != (clusters,):
            raise ValueError(f"{clusters} means need {clusters} labels, got {tuple(labels.shape)}")
        if not noise >= 0:
            raise ValueError(f"noise must not be negative, got {noise}")
        for name, n in (("n_train", n_train), ("n_test", n_test)):
            if n < 0 or n % clusters:
                raise ValueError(f"{name} must be a multiple of the {clusters} clusters, got {n}")
        self.means = means.double()
        by_cluster = self.means.movedim(-2, 0)  # (C, ..., d)
        targets = labels.double()[:, None] if labels.is_floating_point() else labels.long()

        def drawn(n: int, part: str) -> tuple[Tensor, Tensor, Tensor]:
            which = torch.arange(n) % clusters
            xi = torch.from_numpy(noise * stream(seed, f"{part} noise").standard_normal((n, dim)))
            x = by_cluster[which] + (xi[:, None] if means.ndim == 3 else xi)
            return x, targets[which], which

        x, y, self.clusters = drawn(n_train, "train")
        x_test, y_test, self.test_clusters = drawn(n_test, "test")
        super().__init__((x, y), (x_test, y_test), dtype=dtype, name="gaussian_clusters", **options)
        self.groups = labels.unique(return_inverse=True)[1] if labels.is_floating_point() else labels.long()
        self.noise, self.seed = noise, seed

    def describe(self) -> dict[str, Any]:
        stack = self.means.shape[0] if self.means.ndim == 3 else 1
        own = {"dim": self.means.shape[-1], "clusters": self.means.shape[-2], "mixtures": stack}
        return super().describe() | own | {"noise": self.noise, "seed": self.seed}


def _scales(variances: Sequence[float]) -> Tensor:
    given = torch.tensor(list(variances), dtype=torch.float64)
    if not len(given) or not (given >= 0).all() or not given.isfinite().all():
        raise ValueError(f"variances must be finite numbers of at least 0, got {list(variances)}")
    return given.sqrt()


def _positive(draw: np.ndarray[Any, np.dtype[np.float64]]) -> Tensor:
    if not draw.size:
        raise ValueError(f"sizes must be at least 1, got {draw.shape}")
    return torch.from_numpy(draw)
