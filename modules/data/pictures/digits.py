"""The handwritten digits of scikit-learn: small, and already on the machine."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from featurelab.modules.data.core import installed
from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream
from ..synthetic.class_mixture import class_rows

Split = Literal["random", "stratified", "balanced"]
Targets = Literal["one_hot", "signs", "labels"]
Pixels = Literal["per_pixel", "overall", "unit"]
RAREST = 174  # images of the digit that has the fewest

Rows = NDArray[np.intp]


class Digits(TensorData):
    """The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels: `n_train` for training, all others for testing.

    - `split` says which images are for training. "random" shuffles all images. "stratified" gives every class its share
      of the training set, up to one image, and a smaller training set is part of a larger one. "balanced" takes
      n_train // 10 images of every class, sorted by class.
    - `digit` makes the task binary: all images of this digit against as many of the others, chosen at random and
      alternating, so that every even `n_train` is balanced. For digit 8 these are 348 images. Targets are +1 for the
      digit and -1 for the others, (n, 1).
    - `targets`: "one_hot" and "signs" are rows (n, 10) with 1 at the class and 0 or -1 elsewhere; "labels" are the
      integers (n,).
    - `pixels`: "per_pixel" standardises each pixel by its mean and standard deviation over the training set (divided by
      1 where it is constant there); "overall" uses one mean and one standard deviation for all pixels; "unit" divides
      the grey levels 0..16 by 16.
    - `flatten`: inputs (n, 64), or pictures (n, 1, 8, 8).

    `n_train=None` takes 500 images, or all of them for a binary task. `seed` chooses the images and their order;
    `batches` are options of `TensorData` (batch_size, order_seed, dtype, augment).

    Raises ValueError for an unknown option, a digit outside 0..9, or an n_train that the split does not allow.
    """

    def __init__(
        self,
        n_train: int | None = None,
        *,
        split: Split = "random",
        digit: int | None = None,
        targets: Targets = "one_hot",
        pixels: Pixels = "per_pixel",
        flatten: bool = True,
        seed: int,
        dtype: Dtype = "float64",
        **batches: Any,
    ) -> None:
        for name, given, known in (
            ("split", split, get_args(Split)),
            ("targets", targets, get_args(Targets)),
            ("pixels", pixels, get_args(Pixels)),
        ):
            if given not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {given!r}")
        if digit is not None and digit not in range(10):
            raise ValueError(f"digit must be 0..9, got {digit!r}")
        if digit is not None and (split, targets) != ("random", "one_hot"):
            raise ValueError(f"digit={digit} fixes split and targets: leave them out, got {split!r} and {targets!r}")
        images, labels = installed.digits()
        order = _one_against_others(labels, digit, seed) if digit is not None else ORDERS[split](labels, seed)
        n = (len(order) if digit is not None else 500) if n_train is None else n_train
        if not 1 <= n <= len(order):
            raise ValueError(f"n_train must lie between 1 and {len(order)}, got {n}")
        if split == "balanced":
            if not 1 <= n // 10 <= RAREST:
                raise ValueError(f"a balanced n_train must lie between 10 and {10 * RAREST}, got {n}")
            order, n = _by_class(labels, order, n // 10), n // 10 * 10
        x = _scaled(images[order], n, pixels)
        x = x if flatten else x.reshape(-1, 1, 8, 8)
        if digit is not None:
            y = torch.from_numpy(np.where(labels[order] == digit, 1.0, -1.0)[:, None])
        else:
            y = torch.from_numpy(labels[order]).long()
            y = y if targets == "labels" else class_rows(y, 10, targets)
        name = "digits_one_vs_rest" if digit is not None else NAMES[split]
        super().__init__((x[:n], y[:n]), (x[n:], y[n:]), dtype=dtype, name=name, **batches)
        self.seed, self.split, self.digit = seed, split, digit

    def describe(self) -> dict[str, Any]:
        own: dict[str, Any] = {"seed": self.seed}
        if self.split == "balanced":
            own["per_class"] = len(self.train[0]) // 10
        elif self.split == "random":
            own |= {"task": "all" if self.digit is None else "one_vs_rest", "digit": self.digit}
        return super().describe() | own


NAMES = {"random": "digits_all", "stratified": "digits", "balanced": "digits_balanced"}  # in stored runs


def _shuffled(labels: Rows, seed: int) -> Rows:
    return stream(seed, "subset").permutation(len(labels))


def _stratified(labels: Rows, seed: int) -> Rows:
    """All images, ordered so that every first n hold each class in its share of all, up to one image."""
    share = np.empty(len(labels))  # the place of an image within its class, in (0, 1)
    for digit in range(10):
        rows = stream(seed, f"digit {digit}").permutation(np.flatnonzero(labels == digit))
        share[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.argsort(share, kind="stable")


ORDERS = {"random": _shuffled, "stratified": _stratified, "balanced": _shuffled}


def _by_class(labels: Rows, order: Rows, per_class: int) -> Rows:
    """The first `per_class` images of every class, class by class, and then the others, class by class."""
    classes = [order[labels[order] == digit] for digit in range(10)]
    return np.concatenate([rows[:per_class] for rows in classes] + [rows[per_class:] for rows in classes])


def _one_against_others(labels: Rows, digit: int, seed: int) -> Rows:
    """All images of the digit and as many others, alternating."""
    chance = stream(seed, "subset")
    own = chance.permutation(np.flatnonzero(labels == digit))
    others = chance.permutation(np.flatnonzero(labels != digit))[: len(own)]
    return np.stack([own, others], axis=1).ravel()


def _scaled(images: NDArray[np.float64], n: int, pixels: Pixels) -> Tensor:
    """Images (m, 64) with pixels as `Digits` says, the first n being the training set."""
    if pixels == "unit":
        return torch.from_numpy(images / 16.0)
    if pixels == "overall":
        x = torch.from_numpy(images)
        std, mean = torch.std_mean(x[:n], correction=0)
        return (x - mean) / std
    train = images[:n]
    constant = np.ptp(train, axis=0) == 0
    return torch.from_numpy((images - train.mean(0)) / np.where(constant, 1.0, train.std(0)))
