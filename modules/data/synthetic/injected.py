"""Gaussian inputs: to mix into a data set, or in place of its own, with the moments of the set or of its classes."""

from __future__ import annotations

from typing import Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..core.tensors import TensorData, stream

Law = Literal["gaussian", "covariance"]
Data = TypeVar("Data", bound=TensorData)


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
        drawn = rows.mean(0) + _spread(drawn, *_directions(rows))
    return drawn.reshape(count, *x.shape[1:]).to(x)


def same_moments(task: Data, *, seed: int, classes: tuple[Tensor, Tensor] | None = None) -> Data:
    """Replace all inputs of `task` by Gaussian ones with the mean and covariance of their class; labels stay.

    What still holds is no more than the first two moments of the classes give. `classes` names the class of each
    training and each test input, as (n,) or (n, k); by default it is the target, before `permuted_labels`. Moments are
    those of the training inputs, for test inputs too. Each class has random streams of its own. Returns `task`, whose
    inputs are changed. Raises ValueError for a test class without training inputs.
    """
    (x, y), (z, t) = task.labelled, task.test
    known, asked = (y, t) if classes is None else classes
    train, test = torch.empty_like(x), torch.empty_like(z)
    for label in torch.unique(torch.cat([known, asked]), dim=0):
        own, wanted = ((part == label).reshape(len(part), label.numel()).all(1) for part in (known, asked))
        if not own.any():
            raise ValueError(f"class {label.tolist()} has no training inputs, whose moments it could have")
        rows = x[own].flatten(1).double()
        mean, directions = rows.mean(0), _directions(rows)
        for name, part, chosen in (("train", train, own), ("test", test, wanted)):
            # the stream is named by the class, not by its place: it does not depend on which other classes there are
            chance = stream(seed, f"same moments {name} {label.tolist()}")
            normal = torch.from_numpy(chance.standard_normal((int(chosen.sum()), rows.shape[1])))
            drawn = mean + _spread(normal, *directions)
            part[chosen] = drawn.reshape(len(drawn), *x.shape[1:]).to(x)
    task.labelled, task.train, task.test = (train, y), (train, task.train[1]), (test, t)
    return task


def _directions(rows: Float[Tensor, "n dim"]) -> tuple[Float[Tensor, " k"], Float[Tensor, "dim k"]]:
    """Standard deviations of the rows along the eigenvectors of their covariance (columns); of few rows, few."""
    n, dim = rows.shape
    if n < dim:
        _, values, vectors = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
        return values / n**0.5, vectors.T
    variances, vectors = torch.linalg.eigh(torch.cov(rows.T, correction=0).reshape(dim, dim))
    return variances.clamp(min=0).sqrt(), vectors


def _spread(
    normal: Float[Tensor, "m dim"], deviations: Float[Tensor, " k"], vectors: Float[Tensor, "dim k"]
) -> Float[Tensor, "m dim"]:
    """Standard normal rows times the root of the covariance; being symmetric, it does not depend on the basis."""
    return (normal @ vectors * deviations) @ vectors.T
