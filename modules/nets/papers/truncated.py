"""Two-layer networks of truncated ReLUs (Shi, Wei, Liang 2022, ICLR).

g(x) = sum_i a_i sigma(<w_i, x> + b_i),    sigma(z) = min(1, max(z, 0))
"""

from __future__ import annotations

import math
from collections.abc import Set

import numpy as np
import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype

from ..standard.given_weights import linear_from_weights


def truncated_relu(z: Float[Tensor, "*shape"], noise: float = 0.0) -> Float[Tensor, "*shape"]:
    """E sigma(z + xi), xi ~ N(0, noise^2), elementwise; sigma itself for noise = 0.

    Closed form: R(z) - R(z - 1) with R(u) = u Phi(u/noise) + noise phi(u/noise), phi and Phi the density and
    distribution function of N(0, 1). With t = z / noise the slope is Phi(t) - Phi(t - 1/noise); that of sigma itself is
    1 for 0 < z < 1 and 0 elsewhere.
    """
    return _relu_mean(z, noise) - _relu_mean(z - 1, noise) if noise else z.clamp(0.0, 1.0)


class TruncatedNet(nn.Module):
    """Neurons w_i in the rows of `hidden.weight` (m, d), biases b in `hidden.bias`, heads a in `head.weight` (1, m).

    `features(x)` are sigma(W x + b), or with `noise` their mean over Gaussian noise before the activation.
    """

    def __init__(self, hidden: nn.Linear, head: nn.Linear) -> None:
        super().__init__()
        self.hidden, self.head = hidden, head

    def features(self, x: Float[Tensor, "n dim"], noise: float = 0.0) -> Float[Tensor, "n m"]:
        return truncated_relu(self.hidden(x), noise)

    def forward(self, x: Float[Tensor, "n dim"], noise: float = 0.0) -> Float[Tensor, "n 1"]:
        outputs: Tensor = self.head(self.features(x, noise))
        return outputs


def truncated_net(
    neurons: Real[Tensor, "m dim"], biases: Real[Tensor, " m"], heads: Real[Tensor, " m"], dtype: Dtype = "float64"
) -> TruncatedNet:
    """Network with copies of these neurons, biases and heads."""
    return TruncatedNet(linear_from_weights(neurons, biases, dtype), linear_from_weights(heads[None], dtype=dtype))


def mirrored_truncated(
    dim: int,
    width: int,
    *,
    weight_std: float,
    bias_std: float,
    head_std: float,
    seed: int,
    dtype: Dtype = "float64",
) -> TruncatedNet:
    """2 `width` neurons with g = 0 everywhere: the second half repeats the first with the opposite heads.

    Entries are independent N(0, std^2); neurons, biases and heads have separate streams. Raises ValueError for sizes
    below 1.
    """
    if min(dim, width) < 1:
        raise ValueError(f"dim and width must be at least 1, got {dim} and {width}")
    laws = ((weight_std, (width, dim)), (bias_std, (width,)), (head_std, (width,)))
    W, b, a = (
        torch.from_numpy(std * np.random.default_rng([seed, part]).standard_normal(shape))
        for part, (std, shape) in enumerate(laws)
    )
    return truncated_net(torch.cat([W, W]), torch.cat([b, b]), torch.cat([a, -a]), dtype)


def pattern_solution(
    relevant: Real[Tensor, " dim"], counts: Set[int], size: int, *, scale: float, mean: float, dtype: Dtype = "float64"
) -> TruncatedNet:
    """g*(x) = +1 where the number of ones among k patterns is in `counts` and -1 elsewhere: 3 (k + 1) neurons.

    `relevant` is s* (orthonormal columns), `scale` is sig, and `mean` the sum of what was subtracted from these
    patterns: sig s*.x is their number minus `mean`. Every number has a bump of height 1, positive or negative, with
    slopes 2 and reach 1/2 or, shifted by 1/4, slopes 4, whichever has biases of at least 1/8. Neurons are sig s* /
    (4k), biases are divided by 4k and heads multiplied by it, |a| <= 32 k (lemma 2.5).
    """
    k = size
    places = torch.arange(k + 1, dtype=torch.float64) - mean
    signs = torch.tensor([1.0 if count in counts else -1.0 for count in range(k + 1)], dtype=torch.float64)
    reach = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64)
    biases, height = (reach - places[:, None]).flatten(), 2.0
    if biases.abs().min() < 1 / 8:
        biases, height = biases - 0.25, 4.0
    heads = (signs[:, None] * torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)).flatten()
    neurons = (scale * relevant / (4 * k)).expand(3 * (k + 1), -1)
    return truncated_net(neurons, biases / (4 * k), heads * height * 4 * k, dtype)


def _relu_mean(u: Tensor, noise: float) -> Tensor:
    t = u / noise
    mean: Tensor = u * torch.special.ndtr(t) + noise * torch.exp(-t.square() / 2) / math.sqrt(2 * math.pi)
    return mean
