"""A free vector of given length for each input: a representation without any architectural constraint."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name


class SphericalTable(nn.Module):
    """phi(i) = norm v_i / |v_i| for inputs i in [0, inputs): any function of finitely many inputs to length norm.

    v_i starts as N(0, I) in `width` dimensions, drawn from `seed`. Raises ValueError for a size below 1 or norm <= 0.
    """

    def __init__(self, inputs: int, width: int, norm: float = 1.0, *, seed: int, dtype: Dtype = "float64") -> None:
        super().__init__()
        if min(inputs, width) < 1 or not norm > 0:
            raise ValueError(f"inputs and width must be at least 1 and norm positive, got {inputs}, {width}, {norm}")
        drawn = torch.from_numpy(np.random.default_rng([seed, *b"table"]).standard_normal((inputs, width)))
        self.weight = nn.Parameter(drawn.to(getattr(torch, dtype_name(dtype))))
        self.norm = float(norm)

    def forward(self, x: Integer[Tensor, " n"]) -> Float[Tensor, "n width"]:
        return self.norm * nn.functional.normalize(self.weight[x])
