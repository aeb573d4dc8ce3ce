"""The one-hidden-layer network of the theory of fine-grained structure (arXiv:2306.17105, section 7)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype
from featurelab.modules.nets.standard.given_weights import linear_from_weights


class CubicNearZero(nn.Module):
    """sigma(z) = z^3/3 for |z| <= 1, z - 2/3 above and z + 2/3 below: odd, with derivative min(z^2, 1)."""

    def forward(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        inner = z.clamp(-1.0, 1.0)
        return inner.pow(3) / 3 + (z - inner)


class CubicNet(nn.Module):
    """f(x) = sum_r sigma(w_r . x): a trained `layer` W without bias, and a `head` fixed to ones.

    `features(x)` is h(x) = (sigma(w_r . x))_r.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.activation = CubicNearZero()
        self.head = linear_from_weights(torch.ones(1, layer.out_features), dtype=layer.weight.dtype)
        self.head.weight.requires_grad_(False)

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n width"]:
        h: Tensor = self.activation(self.layer(x.flatten(1)))
        return h

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n 1"]:
        outputs: Tensor = self.head(self.features(x))
        return outputs


def cubic_net(dim: int, width: int, *, omega: float, seed: int, dtype: Dtype = "float64") -> CubicNet:
    """A `CubicNet` with w_r ~ N(0, omega^2 I), drawn in float64. Raises ValueError for a size < 1 or omega < 0."""
    for name, size in (("dim", dim), ("width", width)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if not 0 <= omega < float("inf"):
        raise ValueError(f"omega must be finite and not negative, got {omega}")
    weights = torch.from_numpy(omega * np.random.default_rng([seed, 0]).standard_normal((width, dim)))
    return CubicNet(linear_from_weights(weights, dtype=dtype))
