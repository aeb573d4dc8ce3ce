"""Networks with one hidden layer and several widths on the same inputs, trained as one network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..standard.mlps import MLP


class ParallelWidths(nn.Module):
    """S bias-free networks with one hidden layer: x (n, ...) -> (n, S, outputs); they share inputs but no weights.

    If the loss is a sum over networks (`learners.stacked_cross_entropy`) and the optimiser treats every weight
    separately, as gradient descent and Adam do, each network is trained as it would be alone. `sizes` are the widths.
    Raises ValueError for no networks, other depths, or networks with different inputs, outputs or activations.
    """

    owners: Tensor

    def __init__(self, nets: Sequence[MLP]) -> None:
        super().__init__()
        layers = [[layer.weight.detach() for layer in net.layers if isinstance(layer, nn.Linear)] for net in nets]
        shapes = {(len(own), own[0].shape[1], own[-1].shape[0]) for own in layers}
        kinds = {type(net.activation) for net in nets}
        if len(shapes) != 1 or len(kinds) != 1 or len(layers[0]) != 2:
            raise ValueError("networks must have one hidden layer each and equal inputs, outputs and activations")
        self.sizes = tuple(len(hidden) for hidden, _ in layers)
        self.activation = nets[0].activation
        self.hidden = nn.Parameter(torch.cat([hidden for hidden, _ in layers]))
        self.heads = nn.Parameter(torch.cat([head.T for _, head in layers]))  # (units, outputs)
        owners = torch.arange(len(nets)).repeat_interleave(torch.tensor(self.sizes))
        self.register_buffer("owners", (owners == torch.arange(len(nets))[:, None]).to(self.hidden), persistent=False)

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n networks outputs"]:
        units = self.activation(x.flatten(1) @ self.hidden.T)
        outputs: Tensor = self.owners @ (units[:, :, None] * self.heads)
        return outputs
