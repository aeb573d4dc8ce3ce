"""Losses as pure functions of (forward, batch); `forward` may be a module, a functional call or a vmapped one."""

import difflib
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor

Forward = Callable[[Tensor], Tensor]
Batch = tuple[Tensor, Tensor]
Loss = Callable[[Forward, Batch], Tensor]


class Diverged(Exception):
    """The training loss stopped being finite. `step` is the number of optimiser steps taken before it was computed."""

    def __init__(self, step: int) -> None:
        super().__init__(f"the training loss is not finite after {step} steps")
        self.step = step

    def __reduce__(self) -> tuple[type["Diverged"], tuple[int]]:
        return type(self), (self.step,)  # so that it survives the way home from a worker process


def mse(forward: Forward, batch: Batch, *, factor: float = 1.0) -> Float[Tensor, ""]:
    """factor * (1/n) sum_a sum_c (f_c(x_a) - y_ac)^2: mean over samples, sum over outputs; no 1/2 unless factor=0.5.

    `forward` maps (n, ...) to (n, c); y is (n, c), or (n,) if c = 1. >= 0. Raises ValueError for other shapes, which
    would broadcast silently.
    """
    x, y = batch
    f = forward(x)
    y = y.unsqueeze(-1) if y.ndim < f.ndim else y
    if f.shape != y.shape:
        raise ValueError(f"outputs have shape {tuple(f.shape)} but targets {tuple(batch[1].shape)}")
    return factor * (f - y).square().sum() / len(f)


def cross_entropy(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
    """-(1/n) sum_a log softmax(f(x_a))[y_a] for integer labels y (n,); y (n, c) holds class probabilities."""
    x, y = batch
    return torch.nn.functional.cross_entropy(forward(x), y)


def hinge(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
    """(1/n) sum_a max(0, 1 - y_a f(x_a)) for labels y = +-1 of the shape of f(x), (n, 1); its slope at f = 0 is -1."""
    return (1 - _margins(forward, batch)).clamp(min=0.0).mean()


def balanced_hinge(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
    """Mean of the hinge losses of both classes: `hinge` with weights 1 / (2 P(y)), P the shares in the batch.

    Raises ValueError for a batch without one of the classes.
    """
    margins, y = _margins(forward, batch), batch[1]
    shares = torch.stack([(y == label).to(margins).mean() for label in (-1, 1)])
    if not shares.all():
        raise ValueError("balanced_hinge() needs samples of both classes in every batch")
    return ((1 - margins).clamp(min=0.0) / (2 * torch.where(y > 0, shares[1], shares[0]))).mean()


def logistic(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
    """(1/n) sum_a log(1 + exp(-y_a f(x_a))) for labels y = +-1 with the shape of f(x); its slope at f = 0 is -1/2."""
    return torch.nn.functional.softplus(-_margins(forward, batch)).mean()


def _margins(forward: Forward, batch: Batch) -> Tensor:
    x, y = batch
    f = forward(x)
    if f.shape != y.shape:
        raise ValueError(f"outputs have shape {tuple(f.shape)} but labels {tuple(y.shape)}")
    return f * y


LOSSES: dict[str, Loss] = {
    "mse": mse,
    "half_mse": partial(mse, factor=0.5),
    "cross_entropy": cross_entropy,
    "hinge": hinge,
    "logistic": logistic,
}


def loss(name: str) -> Loss:
    """The loss called `name`: mse, half_mse (with the factor 1/2), cross_entropy, hinge, logistic; else ValueError."""
    if name not in LOSSES:
        nearest = difflib.get_close_matches(name, LOSSES, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown loss {name!r}; did you mean {nearest!r}? Known: {', '.join(sorted(LOSSES))}")
    return LOSSES[name]


def accuracy(outputs: Real[Tensor, "n ..."], targets: Real[Tensor, "n ..."]) -> Float64[Tensor, ""] | None:
    """Share of samples classified correctly, in [0, 1]; None if the targets are not class labels.

    Class labels are integers (n,) or one-hot rows (n, c > 1), compared with the largest output; or signs -1, +1 (n,) or
    (n, 1), compared with the sign of the single output.
    """
    if not targets.is_floating_point():
        return (outputs.argmax(-1) == targets).double().mean() if targets.ndim == 1 else None
    if targets.ndim == 2 and targets.shape[1] > 1:
        one_hot = ((targets == 0) | (targets == 1)).all() & (targets.sum(1) == 1).all()
        return (outputs.argmax(1) == targets.argmax(1)).double().mean() if one_hot else None
    signs, values = targets.flatten(), outputs.flatten()
    return (values * signs > 0).double().mean() if (signs.abs() == 1).all() else None


def balanced_accuracy(outputs: Real[Tensor, "n ..."], signs: Real[Tensor, "n ..."]) -> Float64[Tensor, ""]:
    """Mean over the classes y = +-1 of the share whose outputs have the sign of y: 1/2 for every constant output.

    An output of 0 counts as -1; nan if a class is absent.
    """
    right = (outputs.flatten() > 0) == (signs.flatten() > 0)
    positive = signs.flatten() > 0
    return (right[positive].double().mean() + right[~positive].double().mean()) / 2
