"""The two-layer network of the proportional regime: unit-norm neurons and fixed Gaussian heads.

    F(x) = sigma(W^T x),    f_c(x) = F(x)^T a_c / sqrt(N)

("Emergence of Alignment and Local Elasticity in Two-Layer Neural Networks", anonymous authors, under review, section 2)
"""

from __future__ import annotations

import math
from difflib import get_close_matches

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name
from featurelab.modules.nets.standard.given_weights import linear_from_weights

# what makes the mean of an activation 0 under N(0, 1)
MEAN_TANH_SQUARED = 0.3942944903978411
MEAN_RELU = 1 / math.sqrt(2 * math.pi)


class CentredActivation(nn.Module):
    """An activation by name, with E sigma(z) = 0 for z ~ N(0, 1), elementwise.

    - tanh, erf, sin; sigmoid: 1 / (1 + e^-h) - 1/2. All are odd, bounded and smooth.
    - tanh_squared: tanh h + (tanh^2 h - E tanh^2 z) / 2, bounded, with even terms in its Hermite expansion.
    - relu: max(h, 0) - 1 / sqrt(2 pi), unbounded with a kink: outside the paper's assumptions.

    Raises ValueError for any other name, and says which known one is nearest.
    """

    NAMES = ("erf", "relu", "sigmoid", "sin", "tanh", "tanh_squared")

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in self.NAMES:
            nearest = get_close_matches(str(name), self.NAMES, n=1, cutoff=0.0)[0]
            raise ValueError(f"unknown activation {name!r}; the nearest known one is {nearest!r}")
        self.name = name

    def forward(self, h: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        match self.name:
            case "tanh":
                return torch.tanh(h)
            case "tanh_squared":
                t = torch.tanh(h)
                return t + 0.5 * (t.square() - MEAN_TANH_SQUARED)
            case "erf":
                return torch.erf(h)
            case "sin":
                return torch.sin(h)
            case "sigmoid":
                return torch.sigmoid(h) - 0.5
        return torch.relu(h) - MEAN_RELU

    def slope(self, h: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """sigma'(h), elementwise; that of relu is 0 at 0."""
        match self.name:
            case "tanh":
                return 1 - torch.tanh(h).square()
            case "tanh_squared":
                t = torch.tanh(h)
                return (1 - t.square()) * (1 + t)
            case "erf":
                return 2 / math.sqrt(math.pi) * torch.exp(-h.square())
            case "sin":
                return torch.cos(h)
            case "sigmoid":
                s = torch.sigmoid(h)
                return s * (1 - s)
        return (h > 0).to(h)


class TwoLayer(nn.Module):
    """x -> outputs of C heads. `features(x)` are sigma(x W).

    `hidden.weight` is W^T (N, d), `head.weight` holds the heads' a_c^T (C, N) and is not trained.
    """

    def __init__(self, hidden: nn.Linear, head: nn.Linear, activation: CentredActivation) -> None:
        super().__init__()
        self.hidden, self.head, self.activation = hidden, head, activation
        head.requires_grad_(False)

    def features(self, x: Float[Tensor, "n dim"]) -> Float[Tensor, "n width"]:
        features: Tensor = self.activation(self.hidden(x))
        return features

    def forward(self, x: Float[Tensor, "n dim"]) -> Float[Tensor, "n heads"]:
        outputs: Tensor = self.head(self.features(x)) / math.sqrt(self.hidden.out_features)
        return outputs


def two_layer(
    dim: int, width: int, *, heads: int = 2, activation: str = "tanh", seed: int, dtype: Dtype = "float64"
) -> TwoLayer:
    """A `TwoLayer` with neurons uniform on the unit sphere of R^dim and independent heads a_c ~ N(0, I / width).

    Weights are drawn in float64 on the CPU, neurons and heads from separate streams, and then cast to `dtype`. Raises
    ValueError for a size below 1, an unknown activation or a dtype that is not a floating-point type.
    """
    for name, size in (("dim", dim), ("width", width), ("heads", heads)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    kind = getattr(torch, dtype_name(dtype), None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise ValueError(f"dtype must be a floating-point type such as 'float64', got {dtype!r}")
    neurons, readout = (np.random.default_rng([seed, part]) for part in (0, 1))
    W = neurons.standard_normal((width, dim))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    a = readout.standard_normal((heads, width)) / math.sqrt(width)
    hidden, head = (linear_from_weights(torch.from_numpy(weights), dtype=kind) for weights in (W, a))
    return TwoLayer(hidden, head, CentredActivation(activation))
