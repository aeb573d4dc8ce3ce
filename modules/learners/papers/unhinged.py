"""The unhinged loss, and its gradient descent on a cubic-near-zero network, followed through inner products alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Real
from torch import Tensor

from ..standard.losses import Batch, Forward
from ..standard.withheld import updates_withheld


def unhinged_loss(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
    """-(1/2n) sum_a y_a f(x_a): the logistic loss to first order around f = 0, minus log 2; unbounded below.

    van Rooyen, Menon, Williamson 2015, as used in arXiv:2306.17105, section 7. f(x) and y, +-1, are (n, 1). Raises
    ValueError for other shapes, which would broadcast silently.
    """
    x, y = batch
    f = forward(x)
    if f.shape != y.shape:
        raise ValueError(f"outputs have shape {tuple(f.shape)} but targets {tuple(y.shape)}")
    return -(f * y).sum() / (2 * len(f))


def stacked_cross_entropy(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
    """Sum over S networks of -(1/n) sum_a log softmax(f_s(x_a))[y_a]: f(x) (n, S, K), labels y (n,) shared by all.

    Because it is a sum, the gradient of each network is that of its own loss.
    """
    x, y = batch
    f = forward(x)
    copies = f.shape[1]
    return copies * torch.nn.functional.cross_entropy(f.flatten(0, 1), y.repeat_interleave(copies))


def cubic_descent(
    gram: Float[Tensor, "..."],
    projections: Float[Tensor, "_k _m"],
    targets: Real[Tensor, " n"] | Real[Tensor, "n 1"],
    *,
    lr: float,
    weight_decay: float = 0.0,
    steps: int,
) -> Iterator[tuple[int, Float[Tensor, "_k _m"]]]:
    """Yield the projections Z = P W (k, m) after 0, 1, ..., `steps` steps of gradient descent on the unhinged loss.

    A step w_r <- w_r + (lr/2n) sum_i y_i sigma'(w_r . x_i) x_i of a cubic-near-zero network moves the projections on
    any k vectors P by

        Z <- (1 - lr weight_decay) Z + (lr/2n) (P X^T) (y * sigma'(X W)),        sigma'(z) = min(z^2, 1).

    With the n inputs as the first rows of P, `gram` = P X^T (k, n) is therefore sufficient: a step costs O(k n m) in
    any dimension. `targets` are the y. Each Z is a new tensor. Raises ValueError for shapes that do not match.
    """
    if updates_withheld():
        lr = 0.0
    n = len(targets)
    if gram.ndim != 2 or gram.shape[1] != n or len(gram) < n or len(projections) != len(gram):
        raise ValueError(
            f"gram {tuple(gram.shape)} must be (k, n) with k >= n = {n}, and projections {tuple(projections.shape)}"
            " (k, m)"
        )
    moved = gram * (lr / (2 * n) * targets.flatten())
    Z = projections.clone()
    yield 0, Z
    for step in range(1, steps + 1):
        Z = torch.addmm(Z, moved, Z[:n].square().clamp(max=1.0), beta=1 - lr * weight_decay)
        yield step, Z
