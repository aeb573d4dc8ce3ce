"""Linear layers with given weights."""

from __future__ import annotations

import torch
from jaxtyping import Real
from torch import Tensor, nn
from torch.nn.utils import skip_init

from featurelab.modules.dtypes import Dtype, dtype_name


def linear_from_weights(
    weights: Real[Tensor, "out in"], biases: Real[Tensor, " out"] | None = None, dtype: Dtype = "float64"
) -> nn.Linear:
    """A linear layer with copies of these weights and biases. Draws no random numbers."""
    kind = getattr(torch, dtype_name(dtype))
    layer: nn.Linear = skip_init(nn.Linear, weights.shape[1], len(weights), bias=biases is not None, dtype=kind)
    with torch.no_grad():
        layer.weight.copy_(weights)
        if biases is not None:
            layer.bias.copy_(biases)
    return layer
