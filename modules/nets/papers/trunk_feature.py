"""A nonlinear feature layer on top of any trunk, with two linear heads: the two-layer network with a backbone."""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name

from ..standard.given_weights import linear_from_weights
from ..standard.mlps import activation as activation_called


class TrunkFeature(nn.Module):
    """f_c(x) = F(x)^T a_c / sqrt(N),  F(x) = sigma(W^T h(x)),  h = trunk, c = 1..heads.

    `trunk` maps inputs to h. `representation(x)` is h, in which train-unseen similarity is measured; `features(x)` is
    F, the input of the linear layer `head`, whose rows are the a_c. Initially the columns of W are uniform on the unit
    sphere of R^dim and the a_c are N(0, I / width), drawn in float64 from a generator of `seed`; the trunk is not
    changed. With `train_heads=False` the a_c are not trained.

    Setup 3 of "Emergence of Alignment and Local Elasticity in Two-Layer Neural Networks", section 5. Raises ValueError
    for a size below 1 or an unknown activation.
    """

    def __init__(
        self,
        trunk: nn.Module,
        dim: int,
        width: int,
        *,
        heads: int = 2,
        activation: str = "tanh",
        train_heads: bool = True,
        seed: int,
        dtype: Dtype = "float32",
    ) -> None:
        super().__init__()
        for name, size in (("dim", dim), ("width", width), ("heads", heads)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        kind = getattr(torch, dtype_name(dtype))
        generator = torch.Generator().manual_seed(seed)
        columns = torch.randn(width, dim, generator=generator, dtype=torch.float64)
        readout = torch.randn(heads, width, generator=generator, dtype=torch.float64)
        self.trunk = trunk
        self.hidden = linear_from_weights(columns / columns.norm(dim=1, keepdim=True), dtype=kind)
        self.head = linear_from_weights(readout / width**0.5, dtype=kind)
        self.activation = activation_called(activation)
        self.head.weight.requires_grad_(train_heads)

    def representation(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n dim"]:
        h: Tensor = self.trunk(x)
        return h

    def transform(self, h: Float[Tensor, "n dim"]) -> Float[Tensor, "n width"]:
        """F of a representation h."""
        features: Tensor = self.activation(self.hidden(h))
        return features

    def features(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n width"]:
        return self.transform(self.representation(x))

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n heads"]:
        outputs: Tensor = self.head(self.features(x)) / self.head.in_features**0.5
        return outputs
