"""Gaussian inputs to mix into a data set: without structure, or with the covariance of the data set."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..core.tensors import stream

Law = Literal["gaussian", "covariance"]


def gaussians_like(x: Float[Tensor, "n ..."], count: int, law: Law, *, seed: int, name: str) -> Float[Tensor, "m ..."]:
    """`count` Gaussian inputs of the same shape as those in x.

    "gaussian": independent standard normal numbers. "covariance": with the mean and covariance (divided by n) of x, and
    no other structure. Drawn from the stream `name` of `seed`; both laws share the draws. Raises ValueError for an
    unknown law or count < 1.
    """
    if law not in ("gaussian", "covariance"):
        raise ValueError(f"law must be 'gaussian' or 'covariance', got {law!r}")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    rows = x.flatten(1).double()
    drawn = torch.from_numpy(stream(seed, name).standard_normal((count, rows.shape[1])))
    if law == "covariance":
        values, vectors = torch.linalg.eigh(torch.cov(rows.T, correction=0).reshape(rows.shape[1], rows.shape[1]))
        # the symmetric root: unlike a factor, it does not depend on the basis in which eigenvectors are found
        drawn = rows.mean(0) + drawn @ ((vectors * values.clamp(min=0).sqrt()) @ vectors.T)
    return drawn.reshape(count, *x.shape[1:]).to(x)
