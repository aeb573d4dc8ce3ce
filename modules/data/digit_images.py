"""scikit-learn's digits as pictures with integer labels, in a split that keeps the classes' shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from featurelab.modules.dtypes import Dtype

from .tensors import TensorData, stream


class DigitImages(TensorData):
    """The 1,797 digits as (n, 1, 8, 8), labels 0..9 as integers; `n_train` for training, all others for testing.

    Pixels are shifted and scaled by one mean and one standard deviation, those of all training pixels. The split is
    stratified: a class has its share of the training set up to one picture. A smaller training set is contained in a
    larger one of the same seed. Raises ValueError unless 1 <= n_train <= 1797.
    """

    def __init__(self, n_train: int = 1257, *, seed: int, dtype: Dtype = "float64", **options: Any) -> None:
        pixels, labels = load_digits(return_X_y=True)
        if not 1 <= n_train <= len(labels):
            raise ValueError(f"n_train must lie between 1 and {len(labels)}, got {n_train}")
        place = np.empty(len(labels))  # of a picture in its class, as a share of the class
        for label in range(10):
            rows = stream(seed, f"digit {label}").permutation(np.flatnonzero(labels == label))
            place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
        order = np.argsort(place, kind="stable")
        x = torch.from_numpy(pixels[order]).reshape(-1, 1, 8, 8)
        y = torch.from_numpy(labels[order]).long()
        spread, mean = torch.std_mean(x[:n_train], correction=0)
        x = (x - mean) / spread
        super().__init__((x[:n_train], y[:n_train]), (x[n_train:], y[n_train:]), dtype=dtype, name="digits", **options)
        self.seed = seed

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"seed": self.seed}
