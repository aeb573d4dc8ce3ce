"""Untrained feature maps with random weights."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name

from .mlps import DTYPES, _named

KINDS = ("relu", "cos", "linear", "identity")


class RandomFeatures(nn.Module):
    """Features by fixed random weights, drawn from `seed` in float64 and then cast.

    - relu: max(W x, 0), W_ij ~ N(0, 2/width). Inner products of unit vectors average
      `theory.deep_neural_collapse.relu_feature_kernel`.
    - cos: sqrt(2/width) cos(W x + b), W_ij Cauchy with scale `gamma`, b ~ U(0, 2 pi): random Fourier features (Rahimi,
      Recht 2007), whose inner products average exp(-gamma |x - z|_1).
    - linear: W x, W_ij ~ N(0, 1/width).
    - identity: x itself, of any width.

    More features add rows to W and do not change the first ones, up to the scale. The weights are neither parameters
    nor part of the state: `seed` determines them. Raises ValueError for an unknown kind or dtype, sizes below 1 or
    gamma <= 0.
    """

    weight: Tensor
    phase: Tensor

    def __init__(
        self, kind: str, dim: int, width: int, *, gamma: float = 0.05, seed: int, dtype: Dtype = "float64"
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"unknown feature map {kind!r}: choose one of {', '.join(KINDS)}")
        if min(dim, width) < 1:
            raise ValueError(f"dim and width must be at least 1, got {dim} and {width}")
        if not gamma > 0:
            raise ValueError(f"gamma must be positive, got {gamma}")
        self.kind, self.dim = kind, dim
        self.width = dim if kind == "identity" else width
        weights, phases = (np.random.default_rng([seed, part]) for part in range(2))
        shape = (0 if kind == "identity" else width, dim)
        if kind == "cos":
            W = gamma * weights.standard_cauchy(shape)
        else:
            W = math.sqrt((2 if kind == "relu" else 1) / width) * weights.standard_normal(shape)
        b = phases.uniform(0.0, 2 * math.pi, shape[0])
        cast = _named(dtype_name(dtype), DTYPES, "dtype")
        self.register_buffer("weight", torch.from_numpy(W).to(cast), persistent=False)
        self.register_buffer("phase", torch.from_numpy(b).to(cast), persistent=False)

    def forward(self, x: Float[Tensor, "n dim"]) -> Float[Tensor, "n width"]:
        if self.kind == "identity":
            return x
        if self.kind == "cos":
            return torch.addmm(self.phase, x, self.weight.T).cos_().mul_(math.sqrt(2 / self.width))
        h = x @ self.weight.T
        return h.relu_() if self.kind == "relu" else h
