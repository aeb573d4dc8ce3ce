"""Two-layer ReLU networks whose thresholds are subtracted and never trained (Shi, Wei, Liang 2023, arXiv:2310.12408).

f(x) = sum_i a_i max(<w_i, x> - b_i, 0)
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype

from ..standard.given_weights import linear_from_weights


class ThresholdedReLU(nn.Module):
    """Neurons w_i in the rows of `hidden.weight` (m, d), heads a in `head.weight` (1, m), thresholds b.

    `hidden.bias` is -b and is not trained. `features(x)` are max(W x - b, 0).
    """

    def __init__(self, hidden: nn.Linear, head: nn.Linear) -> None:
        super().__init__()
        self.hidden, self.head = hidden, head
        hidden.bias.requires_grad_(False)

    @property
    def thresholds(self) -> Float[Tensor, " m"]:
        return -self.hidden.bias

    def features(self, x: Float[Tensor, "n dim"]) -> Float[Tensor, "n m"]:
        return torch.relu(self.hidden(x))

    def forward(self, x: Float[Tensor, "n dim"]) -> Float[Tensor, "n 1"]:
        outputs: Tensor = self.head(self.features(x))
        return outputs


def thresholded_net(
    neurons: Real[Tensor, "m dim"], heads: Real[Tensor, " m"], thresholds: Real[Tensor, " m"], dtype: Dtype = "float64"
) -> ThresholdedReLU:
    """Network with copies of these neurons, heads and thresholds."""
    return ThresholdedReLU(
        linear_from_weights(neurons, -thresholds, dtype), linear_from_weights(heads[None], dtype=dtype)
    )


def symmetric_thresholded(
    neurons: Real[Tensor, "m dim"], heads: Real[Tensor, " m"], thresholds: Real[Tensor, " m"], dtype: Dtype = "float64"
) -> ThresholdedReLU:
    """4m neurons with f = 0 everywhere (equation 3.9), from m neurons.

    (a, w, b), then (-a, -w, -b), then both again with opposite heads. The ranges in the paper give 2m of these 4m.
    """
    a, w, b = torch.cat([heads, -heads]), torch.cat([neurons, -neurons]), torch.cat([thresholds, -thresholds])
    return thresholded_net(torch.cat([w, w]), torch.cat([a, -a]), torch.cat([b, b]), dtype)


def random_neurons(
    dim: int, count: int, *, weights: str = "gaussian", heads: str = "gaussian", seed: int
) -> tuple[Float[Tensor, "{count} {dim}"], Float[Tensor, " {count}"]]:
    """Neurons (count, dim) and heads (count,) with entries N(0, 1) ("gaussian") or +-1 ("signs"), in float64.

    Neurons and heads have separate streams, and more neurons do not change the first ones. Raises ValueError for sizes
    below 1 or an unknown law.
    """
    if min(dim, count) < 1:
        raise ValueError(f"dim and count must be at least 1, got {dim} and {count}")
    return _entries((count, dim), weights, seed, 0), _entries((count,), heads, seed, 1)


def parity_solution(
    directions: Real[Tensor, "r dim"], size: int, *, printed: bool = False, dtype: Dtype = "float64"
) -> ThresholdedReLU:
    """g*(x) = sum_j sum_(i=0..k) (-1)^(k-i) sqrt(k) bump(<D_j, x> - (2i - k)/sqrt(k)): 3 r (k + 1) neurons.

    The bump at 0 is max(z + 1/sqrt k, 0) - 2 max(z, 0) + max(z - 1/sqrt k, 0), of height 1/sqrt(k). Where <D_j, x> is
    the sum of k signs over sqrt(k), a group contributes the product of its signs. The hinge loss is 0 on
    `StructuredParity` (lemmas B.51 and B.64). `printed` uses the sign (-1)^(i+1) of lemma 3.21, which is the same only
    for odd k.
    """
    k, root = size, math.sqrt(size)
    i = torch.arange(k + 1, dtype=torch.float64)
    signs = (-1.0) ** (i + 1 if printed else k - i)
    heads = (root * signs[:, None] * torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)).flatten()
    places = ((2 * i - k)[:, None] + torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)).flatten() / root
    r = len(directions)
    return thresholded_net(directions.repeat_interleave(len(heads), 0), heads.repeat(r), places.repeat(r), dtype)


def mixture_solution(
    directions: Real[Tensor, "r dim"], labels: Real[Tensor, " r"], scale: float, dtype: Dtype = "float64"
) -> ThresholdedReLU:
    """g*(x) = sum_j (y_j / scale) max(<D_j, x> - 2 scale, 0), scale = sqrt(tau log d) std (lemmas B.34 and B.41)."""
    return thresholded_net(directions, labels / scale, torch.full((len(labels),), 2.0 * scale), dtype)


def _entries(shape: tuple[int, ...], law: str, seed: int, part: int) -> Tensor:
    chance = np.random.default_rng([seed, part])
    if law == "gaussian":
        return torch.from_numpy(chance.standard_normal(shape))
    if law == "signs":
        return torch.from_numpy(chance.integers(0, 2, shape) * 2.0 - 1.0)
    raise ValueError(f"weights and heads must be 'gaussian' or 'signs', got {law!r}")
