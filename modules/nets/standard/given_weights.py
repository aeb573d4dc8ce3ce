"""Linear layers with given weights."""

from __future__ import annotations

import torch
from jaxtyping import Real
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name


def linear_from_weights(
    weights: Real[Tensor, "out in"], biases: Real[Tensor, " out"] | None = None, dtype: Dtype = "float64"
) -> nn.Linear:
    """A linear layer with copies of these weights and biases. Draws no random numbers."""
    kind = getattr(torch, dtype_name(dtype))
    # on the device "meta", the default initialisation draws nothing
    layer = nn.Linear(weights.shape[1], len(weights), bias=biases is not None, dtype=kind, device="meta")
    layer.weight = nn.Parameter(torch.empty(weights.shape, dtype=kind).copy_(weights.detach()))
    if biases is not None:
        layer.bias = nn.Parameter(torch.empty(biases.shape, dtype=kind).copy_(biases.detach()))
    return layer
