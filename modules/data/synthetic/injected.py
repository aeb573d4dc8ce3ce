"""Gaussian inputs: to mix into a data set, or in place of its own, with the moments of the set or of its classes."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..core.tensors import Pair, TensorData, stream

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


def same_moments(task: TensorData, *, seed: int) -> TensorData:
    """Replace all inputs of `task` by Gaussian ones with the mean and covariance of their class; labels stay.

    What still holds is no more than the first two moments of the classes give. A class is a value of the targets,
    before `permuted_labels`; its moments are those of its training inputs, for test inputs too. Each class has random
    streams of its own. Returns `task`, whose inputs are changed. Raises ValueError for a test label without training
    inputs.
    """
    fitted, part_of = task.labelled, {"train": task.labelled, "test": task.test}
    train, test = (_redrawn(fitted, part, seed=seed, name=name) for name, part in part_of.items())
    task.labelled, task.train, task.test = (train, fitted[1]), (train, task.train[1]), (test, task.test[1])
    return task


def _redrawn(fitted: Pair, part: Pair, *, seed: int, name: str) -> Tensor:
    """Gaussian inputs for the labels of `part`, with the class moments of `fitted`."""
    x, y = fitted
    drawn = torch.empty_like(part[0])
    for label in torch.unique(part[1], dim=0):
        known, wanted = ((labels == label).reshape(len(labels), -1).all(1) for labels in (y, part[1]))
        if not known.any():
            raise ValueError(f"label {label.tolist()} has no training inputs, whose moments it could have")
        # the stream is named by the label, not by its place: it does not depend on which other classes there are
        own = f"same moments {name} {label.tolist()}"
        drawn[wanted] = gaussians_like(x[known], int(wanted.sum()), "covariance", seed=seed, name=own)
    return drawn
