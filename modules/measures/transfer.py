"""How well one representation serves several tasks, and how far apart classes lie in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Integer, Real
from sklearn.metrics import silhouette_score
from torch import Tensor


def weighted_accuracy(accuracies: Mapping[str, float], classes: Mapping[str, int]) -> float:
    """sum_k C_k a_k / sum_k C_k over tasks k with accuracy a_k and C_k classes.

    Z. Shi et al., ICLR 2023, section 4.1. Raises ValueError without tasks, or where one has no number of classes.
    """
    if not accuracies or set(accuracies) - set(classes):
        raise ValueError(f"need tasks, each with a number of classes: {sorted(accuracies)}, {sorted(classes)}")
    total = sum(classes[name] for name in accuracies)
    return sum(classes[name] * value for name, value in accuracies.items()) / total


def silhouette(features: Real[Tensor, "n ..."], labels: Integer[Tensor, " n"]) -> float:
    """The mean over samples of (b - a) / max(a, b), in [-1, 1], features scaled to length 1.

    a is the mean distance to the others of one's own class, b the least mean distance to another class. P. Rousseeuw
    (1987). Raises ValueError unless there are at least two classes and more samples than classes.
    """
    rows = features.detach().flatten(1).double().cpu().numpy()
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    return float(silhouette_score(rows, labels.cpu().numpy()))
