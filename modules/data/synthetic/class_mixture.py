"""Class mixtures: Gaussian clouds around random class means."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream


class ClassMixture(TensorData):
    """x = mu_c + N(0, I/dim) with mu_c = separation * (a random unit vector), `per_class` samples of each class.

    Training samples are sorted by class. `n_test` further samples, equally many of each class, are the test set.
    Targets are rows (n, classes) with 1 at the class and 0 (`targets="one_hot"`) or -1 (`"signs"`) elsewhere. `seed`
    has separate streams for means, training noise and test noise of each class, so that more samples or classes do not
    change the rest.

    Raises ValueError for sizes below 1, an n_test that is not a multiple of the classes, or unknown targets.
    """

    def __init__(
        self,
        classes: int,
        per_class: int,
        dim: int,
        separation: float,
        *,
        n_test: int = 0,
        targets: Literal["one_hot", "signs"] = "one_hot",
        seed: int,
        dtype: Dtype = "float64",
        batch_size: int | None = None,
        order_seed: int = 0,
    ) -> None:
        for name, size in (("classes", classes), ("per_class", per_class), ("dim", dim)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if n_test % classes:
            raise ValueError(f"n_test must be a multiple of the {classes} classes, got {n_test}")
        self.means = torch.from_numpy(
            np.stack([_unit(stream(seed, f"mean {c}").standard_normal(dim)) for c in range(classes)])
        ).mul_(separation)
        parts = []
        for part, count in (("train", per_class), ("test", n_test // classes)):
            noise = [stream(seed, f"{part} {c}").standard_normal((count, dim)) for c in range(classes)]
            x = self.means.repeat_interleave(count, 0) + torch.from_numpy(np.concatenate(noise)) / dim**0.5
            parts.append((x, class_rows(torch.arange(classes).repeat_interleave(count), classes, targets)))
        super().__init__(*parts, batch_size=batch_size, order_seed=order_seed, dtype=dtype, name="class_mixture")
        self.classes, self.separation, self.seed = classes, separation, seed

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"classes": self.classes, "separation": self.separation, "seed": self.seed}


def class_rows(labels: Int64[Tensor, " n"], classes: int, targets: str = "one_hot") -> Float64[Tensor, "n {classes}"]:
    """Rows (n, classes) from integer labels: 1 at the label, elsewhere 0 ("one_hot") or -1 ("signs")."""
    if targets not in ("one_hot", "signs"):
        raise ValueError(f"targets must be 'one_hot' or 'signs', got {targets!r}")
    rows = torch.nn.functional.one_hot(labels, classes).double()
    return 2 * rows - 1 if targets == "signs" else rows


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = vector / np.linalg.norm(vector)
    return unit
