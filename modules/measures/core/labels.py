"""Class indices from labels in any of the usual formats."""

from __future__ import annotations

import torch
from jaxtyping import Int64, Real, Shaped
from torch import Tensor

Labels = Real[Tensor, " _n"] | Real[Tensor, "_n _columns"]  # what `class_indices` takes


def class_indices(labels: Shaped[Tensor, "..."]) -> Int64[Tensor, " n"]:
    """Class indices (n,) of samples from their labels, which may be:

    - whole numbers of at least 0, (n,), integers or floats;
    - rows (n, K), K > 1, with one value at the class and one smaller value elsewhere, the same two values in all rows
      and compared exactly: one-hot, +-1, centred or smoothed one-hot, at any scale;
    - a column (n, 1) of -1 and 1, or of 0 and 1, where 1 is class 1.

    Raises ValueError for anything else, such as continuous targets, soft labels, and rows with several classes or none.
    """
    if labels.ndim == 2 and labels.shape[1] > 1:
        return _marked(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        column = labels[:, 0]
        others = column[column != 1]
        if not ((others == 0).all() or (others == -1).all()):
            raise ValueError(
                f"a column (n, 1) of labels must hold -1 and 1 or 0 and 1 (indices are (n,)), got {_shown(column)}"
            )
        return (column == 1).long()
    if labels.ndim != 1:
        raise ValueError(f"labels must be (n,) class indices or (n, K) rows, got shape {tuple(labels.shape)}")
    indices = labels.long()
    if labels.is_floating_point() and not torch.equal(indices.to(labels.dtype), labels):
        raise ValueError(f"labels must be class indices, got numbers that are not whole: {_shown(labels)}")
    if len(indices) and indices.min() < 0:
        raise ValueError(f"labels must be class indices of at least 0, got {int(indices.min())}")
    return indices


def _marked(rows: Tensor) -> Tensor:
    """Return the column that holds the larger of the two values in each row."""
    if not len(rows):
        return rows.new_empty(0, dtype=torch.long)
    larger, smaller = rows == rows.max(), rows == rows.min()
    right = (larger.sum(1) == 1) & (smaller.sum(1) == rows.shape[1] - 1)
    if not right.all():
        raise ValueError(
            "rows (n, K) of labels must hold one value at the class and the same smaller one elsewhere, as one-hot rows"
            f" do, got {tuple(rows.shape)} with a row {_shown(rows[~right][0])}"
        )
    return larger.int().argmax(1)


def _shown(values: Tensor) -> str:
    few = ", ".join(f"{value:.4g}" for value in values[:4].tolist())
    return f"[{few}, ...]" if len(values) > 4 else f"[{few}]"
