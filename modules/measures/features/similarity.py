"""Similarity of two representations of the same samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Real
from torch import Tensor

from .collapse import CHUNK


@dataclass(eq=False)
class CrossMoments:
    """Sums over samples of products of centred features, gathered from batches.

    Batches are merged by their means, so that a large common offset costs no accuracy. Memory does not grow with n.
    """

    count: int = 0
    mean_x: Float64[Tensor, " d1"] | None = None
    mean_y: Float64[Tensor, " d2"] | None = None
    xx: Float64[Tensor, "d1 d1"] | None = None
    xy: Float64[Tensor, "d1 d2"] | None = None
    yy: Float64[Tensor, "d2 d2"] | None = None

    def update(self, X: Real[Tensor, "_n ..."], Y: Real[Tensor, "_n ..."]) -> CrossMoments:
        """Add samples X and Y, flattened; returns this object. Raises ValueError for unequal lengths."""
        if len(X) != len(Y):
            raise ValueError(f"X and Y must have one row for each sample, got {len(X)} and {len(Y)} rows")
        if len(X) == 0:
            return self
        X, Y = X.detach().flatten(1), Y.detach().flatten(1)
        rows = max(1, CHUNK // max(X.shape[1], Y.shape[1]))
        for x, y in zip(X.split(rows), Y.split(rows), strict=True):
            self._add(x.double(), y.double())
        return self

    def cka(self) -> Float64[Tensor, ""]:
        """`linear_cka` of the samples so far. Raises ValueError if there are none."""
        if self.xx is None or self.xy is None or self.yy is None:
            raise ValueError("there are no samples: call update() first")
        return _cosine(self.xy.square().sum(), self.xx, self.yy)

    def _add(self, x: Tensor, y: Tensor) -> None:
        n, mean_x, mean_y = len(x), x.mean(0), y.mean(0)
        x, y = x - mean_x, y - mean_y
        if self.mean_x is None or self.mean_y is None or self.xx is None or self.xy is None or self.yy is None:
            self.count, self.mean_x, self.mean_y = n, mean_x, mean_y
            self.xx, self.xy, self.yy = x.T @ x, x.T @ y, y.T @ y
            return
        total = self.count + n
        dx, dy, weight = mean_x - self.mean_x, mean_y - self.mean_y, self.count * n / total
        self.xx.addmm_(x.T, x).addr_(dx, dx, alpha=weight)
        self.xy.addmm_(x.T, y).addr_(dx, dy, alpha=weight)
        self.yy.addmm_(y.T, y).addr_(dy, dy, alpha=weight)
        self.mean_x, self.mean_y = self.mean_x + dx * (n / total), self.mean_y + dy * (n / total)
        self.count = total


def linear_cka(X: Real[Tensor, "_n ..."], Y: Real[Tensor, "_n ..."]) -> Float64[Tensor, ""]:
    """|X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F) for X and Y, flattened, with centred columns: in [0, 1].

    Centred kernel alignment with linear kernels (Kornblith et al. 2019, arXiv:1905.00414, equation 5). Rotation,
    scaling and translation of X or Y do not change it. Computed from d x d moments or n x n Gram matrices, whichever
    are smaller. nan where a representation is constant. Raises ValueError for unequal lengths or no samples.
    """
    if len(X) != len(Y) or not len(X):
        raise ValueError(f"X and Y must have one row for each sample, got {len(X)} and {len(Y)} rows")
    X, Y = X.detach().flatten(1), Y.detach().flatten(1)
    if len(X) > max(X.shape[1], Y.shape[1]):
        return CrossMoments().update(X, Y).cka()
    K, L = (_gram(Z.double()) for Z in (X, Y))
    return _cosine((K * L).sum(), K, L)


def _gram(Z: Tensor) -> Tensor:
    Z = Z - Z.mean(0)
    return Z @ Z.T


def _cosine(product: Tensor, A: Tensor, B: Tensor) -> Tensor:
    cosine: Tensor = product / torch.linalg.vector_norm(A) / torch.linalg.vector_norm(B)
    return cosine.clamp(0, 1)
