"""Perceptrons with biases and PyTorch's default initialisation, for experiments that do not name one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype
from featurelab.modules.nets.standard.given_weights import linear_from_weights


class Perceptron(nn.Module):
    """Linear layers with biases and ReLU between them; `features(x)` is the input of the last layer, `head`.

    Inputs with more than two dimensions are flattened to (n, dim).
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers[:-1])
        self.head = layers[-1]

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n width"]:
        x = x.flatten(1)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n outputs"]:
        outputs: Tensor = self.head(self.features(x))
        return outputs


def perceptron(sizes: Sequence[int], *, init_scale: float = 1.0, seed: int, dtype: Dtype = "float64") -> Perceptron:
    """A perceptron of layer sizes (inputs, hidden..., outputs), e.g. (64, 256, 128, 10).

    Weights and biases are uniform in +-init_scale / sqrt(fan_in), as `nn.Linear` draws them for init_scale = 1.
    `init_scale` multiplies the parameters themselves, not their variance. Each layer has its own stream of `seed` and
    is drawn in float64. Raises ValueError for fewer than two sizes, a size below 1 or a negative scale.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"sizes must name at least inputs and outputs, each at least 1, got {tuple(sizes)}")
    if not 0 <= init_scale < float("inf"):
        raise ValueError(f"init_scale must be finite and not negative, got {init_scale}")
    layers = []
    for index, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        chance = np.random.default_rng([seed, index])
        bound = init_scale / fan_in**0.5
        weights = torch.from_numpy(chance.uniform(-bound, bound, (fan_out, fan_in)))
        layers.append(linear_from_weights(weights, torch.from_numpy(chance.uniform(-bound, bound, fan_out)), dtype))
    return Perceptron(layers)
