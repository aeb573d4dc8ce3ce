"""As many digits of each class, in the order of the classes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from sklearn.datasets import load_digits

from featurelab.modules.dtypes import Dtype

from .mixtures import class_rows
from .tensors import TensorData, stream


class BalancedDigits(TensorData):
    """`per_class` of scikit-learn's 8x8 digits of each of the ten classes for training, sorted by class; the rest test.

    Inputs (n, 64), each pixel standardised by mean and standard deviation over the training set (divided by 1 where it
    is constant there). Targets (n, 10): 1 at the class and 0 (`targets="one_hot"`) or -1 (`"signs"`) elsewhere, or
    integer labels (n,) (`"labels"`). `seed` chooses the images; a larger per_class keeps those of a smaller one.
    Raises ValueError for per_class outside 1..174 (the rarest digit has 174 images) or other targets.
    """

    def __init__(
        self,
        per_class: int,
        *,
        targets: Literal["one_hot", "signs", "labels"] = "one_hot",
        seed: int,
        dtype: Dtype = "float64",
        batch_size: int | None = None,
        order_seed: int = 0,
    ) -> None:
        pixels, labels = load_digits(return_X_y=True)
        rarest = int(np.bincount(labels).min())
        if not 1 <= per_class <= rarest:
            raise ValueError(f"per_class must lie between 1 and {rarest}, got {per_class}")
        order = stream(seed, "subset").permutation(len(labels))
        ranked = [order[labels[order] == digit] for digit in range(10)]
        chosen = np.concatenate([rows[:per_class] for rows in ranked])
        others = np.concatenate([rows[per_class:] for rows in ranked])
        mean, spread = pixels[chosen].mean(0), pixels[chosen].std(0)
        x = (pixels - mean) / np.where(np.ptp(pixels[chosen], axis=0) == 0, 1.0, spread)
        parts = []
        for rows in (chosen, others):
            y = torch.from_numpy(labels[rows]).long()
            parts.append((torch.from_numpy(x[rows]), y if targets == "labels" else class_rows(y, 10, targets)))
        super().__init__(*parts, batch_size=batch_size, order_seed=order_seed, dtype=dtype, name="digits_balanced")
        self.per_class, self.seed = per_class, seed

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"per_class": self.per_class, "seed": self.seed}
