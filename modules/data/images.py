"""Small images that come with scikit-learn: no download, and the same code path as the large ones."""

from typing import Any, Literal

import numpy as np
import torch
from sklearn.datasets import load_digits

from featurelab.modules.dtypes import Dtype

from .tensors import TensorData, stream


class Digits(TensorData):
    """The 1,797 handwritten digits of scikit-learn (8x8 grey levels 0..16), inputs of shape (n, 64).

    - `task="one_vs_rest"`: all images of `digit` (label +1) against as many drawn from the other digits (label -1),
      pixels divided by 16. For digit 8 that is 348 images. They alternate between the classes, so any even `n_train`
      is balanced; the rest is the test set (`n_train=None`: all are for training and the test set is empty).
    - `task="all"`: ten one-hot labels; pixels standardised to mean 0 and standard deviation 1 on the training set,
      pixels that are constant there divided by 1. `n_train` images are for training (None: 500), the rest for testing.

    `seed` chooses the subset and its order. Raises ValueError for an unknown task or digit, or n_train out of range.
    """

    def __init__(
        self,
        task: Literal["one_vs_rest", "all"] = "one_vs_rest",
        *,
        digit: int = 8,
        n_train: int | None = None,
        seed: int,
        dtype: Dtype = "float64",
        batch_size: int | None = None,
        order_seed: int = 0,
    ) -> None:
        pixels, labels = load_digits(return_X_y=True)
        rng = stream(seed, "subset")
        if task == "one_vs_rest":
            if digit not in range(10):
                raise ValueError(f"digit must be 0..9, got {digit!r}")
            positive = rng.permutation(np.flatnonzero(labels == digit))
            negative = rng.permutation(np.flatnonzero(labels != digit))[: len(positive)]
            chosen = np.stack([positive, negative], axis=1).ravel()
            x = pixels[chosen] / 16.0
            y = np.where(labels[chosen] == digit, 1.0, -1.0)[:, None]
            n_train = len(chosen) if n_train is None else n_train
        elif task == "all":
            chosen = rng.permutation(len(labels))
            x, y = pixels[chosen], np.eye(10)[labels[chosen]]
            n_train = 500 if n_train is None else n_train
        else:
            raise ValueError(f"task must be 'one_vs_rest' or 'all', got {task!r}")
        if not 1 <= n_train <= len(x):
            raise ValueError(f"n_train must lie between 1 and {len(x)} for task {task!r}, got {n_train}")
        if task == "all":
            constant = np.ptp(x[:n_train], axis=0) == 0
            x = (x - x[:n_train].mean(0)) / np.where(constant, 1.0, x[:n_train].std(0))
        x_all, y_all = torch.from_numpy(x), torch.from_numpy(y)
        super().__init__(
            (x_all[:n_train], y_all[:n_train]),
            (x_all[n_train:], y_all[n_train:]),
            batch_size=batch_size,
            order_seed=order_seed,
            dtype=dtype,
            name=f"digits_{task}",
        )
        self.task, self.seed, self.digit = task, seed, digit if task == "one_vs_rest" else None

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"task": self.task, "digit": self.digit, "seed": self.seed}
