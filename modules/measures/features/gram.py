"""Gram matrices of centred, normalised features, compared with the matrix of complete collapse."""

from __future__ import annotations

import torch
from jaxtyping import Float64, Real
from torch import Tensor

from ..core.labels import Labels, class_indices
from .collapse import CHUNK, checked


def centred_cosines(features: Real[Tensor, "n ..."]) -> Float64[Tensor, "n n"]:
    """Cosines (n, n) of all pairs of features after subtracting their mean; diagonal 1, entries in [-1, 1].

    arXiv:2402.13728, figures 1, 5, 6, shows it for samples sorted by class. A sample equal to the mean has a row of 0.
    """
    Z = _unit_rows(features.detach().flatten(1))
    return Z @ Z.T


def gram_summary(features: Real[Tensor, "_n ..."], labels: Labels) -> dict[str, float]:
    """How near the matrix G of `centred_cosines` is to collapse, without forming G.

    - `within`: mean entry over pairs i != j of one class, 1 at collapse; nan if no class has two samples;
    - `between`: mean entry over pairs of different classes, -1/(K - 1) at collapse of balanced classes;
    - `relative_error`: |G - T|_F / |T|_F >= 0 with T = 1 within classes (and on the diagonal), -1/(K - 1) between.

    The means come from the sums of normalised rows by class; the error from a QR factorisation of n x (d + K) blocks,
    or from G in blocks of rows if n < d, so that nothing cancels near collapse. K is the number of classes that occur.

    Raises ValueError for fewer than two classes, or unequal lengths.
    """
    x, y = checked(features, labels)
    _, y = y.unique(return_inverse=True)
    K = int(y.max()) + 1 if len(y) else 0
    if K < 2:
        raise ValueError(f"at least two classes are needed, got {K}")
    Z = _unit_rows(x)
    counts = torch.bincount(y, minlength=K).double()
    sums = Z.new_zeros(K, Z.shape[1]).index_add_(0, y, Z)
    inner = sums.square().sum()
    pairs, n = (counts * (counts - 1)).sum(), len(y)
    within = (inner - Z.square().sum()) / pairs
    between = (sums.sum(0).square().sum() - inner) / (n**2 - counts.square().sum())
    simplex = (K * torch.eye(K).to(Z) - 1) / (K - 1)
    size = (counts @ simplex.square() @ counts).sqrt()
    error = _blockwise(Z, simplex, y) if n <= Z.shape[1] + K else _factored(Z, simplex, y)
    return {"within": within.item(), "between": between.item(), "relative_error": (error / size).item()}


def scatter_traces_from_gram(
    G: Real[Tensor, "_n _n"], labels: Labels
) -> tuple[Float64[Tensor, ""], Float64[Tensor, ""]]:
    """tr Sigma_W and tr Sigma_B, as in `scatter_traces`, of features known only by their Gram matrix G = X X^T (n, n).

    With A (n, K) the class indicators over n_c and H = A^T G A: tr Sigma_W = (tr G - sum_c n_c H_cc) / n and
    tr Sigma_B = (tr H - sum H / K) / K. These differences cancel near collapse, with an error of about 1e-15 tr G.

    Raises ValueError if G and labels do not match, or for an empty class.
    """
    y = class_indices(labels.detach()).to(G.device)
    n = len(y)
    if G.shape != (n, n) or not n:
        raise ValueError(f"a Gram matrix of {n} samples is ({n}, {n}) with n > 0, got {tuple(G.shape)}")
    K = int(y.max()) + 1
    counts = torch.bincount(y, minlength=K).double()
    if not counts.all():
        raise ValueError(f"no samples of class {int(counts.argmin())} (of {K} classes)")
    G = G.detach().double()
    A = torch.nn.functional.one_hot(y, K).double() / counts
    H = A.T @ G @ A
    within = (G.trace() - (counts * H.diagonal()).sum()) / n
    return within, (H.trace() - H.sum() / K) / K


def _unit_rows(x: Tensor) -> Tensor:
    Z = x.double()
    Z = Z - Z.mean(0)
    return torch.nn.functional.normalize(Z, dim=1, eps=1e-300)


def _blockwise(Z: Tensor, simplex: Tensor, y: Tensor) -> Tensor:
    """|Z Z^T - Y S Y^T|_F, Y the class indicators."""
    total = Z.new_zeros(())
    for rows in torch.arange(len(Z), device=Z.device).split(max(1, CHUNK // len(Z))):
        total += (Z[rows] @ Z.T - simplex[y[rows]][:, y]).square().sum()
    return total.sqrt()


def _factored(Z: Tensor, simplex: Tensor, y: Tensor) -> Tensor:
    """The same from [Z Y] = Q R: |R diag(I, -S) R^T|_F."""
    d, K = Z.shape[1], len(simplex)
    R = Z.new_zeros(0, d + K)
    for rows in torch.arange(len(Z), device=Z.device).split(max(d + K, CHUNK // (d + K))):
        block = torch.cat([Z[rows], torch.nn.functional.one_hot(y[rows], K).to(Z)], 1)
        R = torch.linalg.qr(torch.cat([R, block]), mode="r").R
    error: Tensor = torch.linalg.vector_norm(R[:, :d] @ R[:, :d].T - R[:, d:] @ simplex @ R[:, d:].T)
    return error
