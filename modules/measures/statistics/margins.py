"""Margins of classifiers, and the group norm that normalises them.

Li, Liang, Shi, Song, Zhou 2024, arXiv:2402.09469, Definitions 4.2 to 4.6.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxtyping import Float, Int64
from torch import Tensor


def group_norm(groups: Float[Tensor, "groups ..."], power: float) -> Float[Tensor, ""]:
    """L_(2, q) norm (sum_i |theta_i|_2^q)^(1/q) of groups of weights, one group a row; >= 0, q >= 1.

    In a network of homogeneous neurons a group is a neuron, and q is its degree k + 1. Powers are taken of squared
    norms, so that for q >= 2 a dead neuron has the gradient 0 rather than nan. Raises ValueError for q < 1.
    """
    if power < 1:
        raise ValueError(f"the power of a norm must be at least 1, got {power}")
    total: Tensor = groups.flatten(1).square().sum(1).pow(power / 2).sum()
    return total.pow(1 / power)


class Margins(NamedTuple):
    """Margins (n,) of samples: `worst` g = f_y - max_(c != y) f_c and `mean` g' = f_y - mean_(c != y) f_c >= g."""

    worst: Float[Tensor, " n"]
    mean: Float[Tensor, " n"]


def class_margins(outputs: Float[Tensor, "n classes"], targets: Int64[Tensor, " n"]) -> Margins:
    """Margin g of every sample, and its class-weighted form g' with uniform weights (Definitions 4.2 and 4.6).

    `outputs` are (n, classes), `targets` integer classes (n,). Raises ValueError for fewer than two classes.
    """
    classes = outputs.shape[1]
    if classes < 2:
        raise ValueError(f"a margin needs at least two classes, got {classes}")
    right = outputs.gather(1, targets[:, None])
    others = outputs.scatter(1, targets[:, None], -math.inf).amax(1)
    mean = (outputs.sum(1) - right[:, 0]) / (classes - 1)
    return Margins(right[:, 0] - others, right[:, 0] - mean)
