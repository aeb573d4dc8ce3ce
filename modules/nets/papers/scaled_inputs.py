"""A linear network whose features are the inputs, each times its own weight."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name
from featurelab.modules.nets.standard.given_weights import linear_from_weights


class ScaledInputs(nn.Module):
    """f(x) = sum_j w_j x_j: `features(x)` are w_j x_j, and `head` sums them and is not trained.

    All w_j start at `init_scale`. The model in the theory of arXiv:2303.07527. Raises ValueError for dim < 1.
    """

    def __init__(self, dim: int, init_scale: float = 1.0, *, dtype: Dtype = "float64") -> None:
        super().__init__()
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        kind = getattr(torch, dtype_name(dtype))
        self.weight = nn.Parameter(torch.full((dim,), float(init_scale), dtype=kind))
        self.head = linear_from_weights(torch.ones(1, dim), dtype=kind)
        self.head.weight.requires_grad_(False)

    def features(self, x: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
        return x * self.weight

    def forward(self, x: Float[Tensor, "n dim"]) -> Float[Tensor, "n 1"]:
        outputs: Tensor = self.head(self.features(x))
        return outputs
