"""Pairs of public pictures, whose label is the XOR of two classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from ..core.tensors import TensorData
from .images import PublicImages


class PicturePairs(TensorData):
    """Two pictures side by side, each of one of two `classes`: y = +1 for pictures of one class, -1 for two classes.

    Inputs are (n, 2 p) for pictures of p numbers. Both halves are centred midway between the mean pictures of the two
    classes, m and -m. So the clusters have the means (m, m), (-m, -m) with y = +1 and (m, -m), (-m, m) with y = -1, the
    XOR of orthogonal directions. One scale for all pixels makes the variance within clusters 1 on average over pixels.
    Clusters have equal sizes and take turns, as in `GaussianClusters`; no picture is used twice. Mean and scale are
    those of the training set.

    Attributes: `means` (4, 2 p), and `clusters` and `test_clusters` (n,). Raises DatasetMissing; ValueError for sizes
    that are not multiples of four, other than two classes, or a split with too few pictures of a class.
    """

    def __init__(
        self,
        name: str,
        n_train: int,
        n_test: int,
        *,
        classes: Sequence[int] = (0, 1),
        seed: int,
        root: str | Path | None = None,
        **options: Any,
    ) -> None:
        if len(classes) != 2 or n_train % 4 or n_test % 4:
            raise ValueError(f"need two classes and multiples of 4 pairs, got {tuple(classes)}, {n_train}, {n_test}")
        shown = PublicImages(
            name,
            2 * n_train,
            2 * n_test,
            seed=seed,
            classes=classes,
            balanced=True,
            targets="labels",
            pixels="unit",
            root=root,
        )
        x, y = shown.labelled[0], shown.labels.train
        first, second = (x[y == label] for label in (0, 1))
        middle, m = (first.mean(0) + second.mean(0)) / 2, (first.mean(0) - second.mean(0)) / 2
        scale = (first.var(0, correction=0) + second.var(0, correction=0)).mean().div(2).sqrt()
        self.means = torch.stack([torch.cat([a * m, b * m]) for a, b in ((1, 1), (-1, -1), (1, -1), (-1, 1))]) / scale
        train = _paired((x - middle) / scale, y)
        test = _paired((shown.test[0] - middle) / scale, shown.labels.test)
        self.clusters, self.test_clusters = (torch.arange(n) % 4 for n in (n_train, n_test))
        self.seed, self.classes = seed, tuple(classes)
        super().__init__(train, test, name=f"pairs_of_{name}", **options)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"classes": self.classes, "seed": self.seed}


def _paired(x: Float64[Tensor, "pictures p"], y: Int64[Tensor, " pictures"]) -> tuple[Tensor, Tensor]:
    """Pairs (n, 2 p) of each cluster in turn, and their targets (n, 1)."""
    n = len(x) // 2
    # columns: which of the clusters' two pictures is of the second class
    bits = torch.tensor([[0, 0], [1, 1], [0, 1], [1, 0]]).repeat(n // 4, 1)
    rows = torch.empty(2 * n, dtype=torch.int64)
    for label in (0, 1):
        rows[(bits.flatten() == label).nonzero()[:, 0]] = (y == label).nonzero()[:, 0]
    signs = 1.0 - 2.0 * (bits[:, :1] != bits[:, 1:]).double()
    return x[rows].reshape(n, -1), signs
