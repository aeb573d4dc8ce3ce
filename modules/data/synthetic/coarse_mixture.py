"""A Gaussian mixture with hidden classes: few coordinates separate them, and many loud coordinates do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream


class NuisanceMixture(TensorData):
    """x = (mu_y + e, v), with v ~ N(0, nuisance_variance I) in `nuisance_dim` coordinates that do not depend on y.

    mu_c ~ N(0, mean_variance I) and e ~ N(0, I) in `dim` coordinates; y is balanced over `classes` and kept as integer
    labels. Distances between raw inputs are mostly those of v. The i-th sample of a class and of the nuisance is the
    same for every n_train, and the means do not depend on the sizes of the sets.

    Raises ValueError for sizes below 1, negative variances or sets that are not balanced.
    """

    def __init__(
        self,
        n_train: int,
        n_test: int,
        *,
        classes: int = 10,
        dim: int = 16,
        mean_variance: float = 9.0,
        nuisance_dim: int = 64,
        nuisance_variance: float = 49.0,
        seed: int,
        dtype: Dtype = "float64",
        **options: Any,
    ) -> None:
        for name, size, least in (("classes", classes, 2), ("dim", dim, 1), ("nuisance_dim", nuisance_dim, 0)):
            if size < least:
                raise ValueError(f"{name} must be at least {least}, got {size}")
        for name, value in (("mean_variance", mean_variance), ("nuisance_variance", nuisance_variance)):
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value}")
        for name, n in (("n_train", n_train), ("n_test", n_test)):
            if n < 0 or n % classes:
                raise ValueError(f"{name} must be a multiple of the {classes} classes, got {n}")
        means = mean_variance**0.5 * stream(seed, "means").standard_normal((classes, dim))

        def drawn(n: int, part: str) -> tuple[torch.Tensor, torch.Tensor]:
            shape = n // classes, classes  # sample by sample through the classes
            x: NDArray[np.float64] = means + stream(seed, f"{part} noise").standard_normal((*shape, dim))
            v = nuisance_variance**0.5 * stream(seed, f"{part} nuisance").standard_normal((*shape, nuisance_dim))
            whole = np.concatenate([x, v], axis=2).reshape(n, dim + nuisance_dim)
            return torch.from_numpy(whole), torch.arange(classes).repeat(n // classes)

        super().__init__(
            drawn(n_train, "train"), drawn(n_test, "test"), dtype=dtype, name="nuisance_mixture", **options
        )
        self.means = torch.from_numpy(means)
        self.seed = seed

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"signal_dim": self.means.shape[1], "seed": self.seed}
