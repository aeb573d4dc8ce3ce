"""Several copies of one perceptron, each with its own inputs, trained as one network."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..standard.perceptrons import Perceptron


class PerceptronStack(nn.Module):
    """S copies of a perceptron with one hidden layer: x (n, S, d) -> (n, S, outputs), copy s sees x[:, s].

    Copies start with the same weights and share none. If the loss is a sum over copies, each follows the gradient
    descent that it would follow alone. `features(x)` (n, S, width) are the inputs of the readouts. Raises ValueError
    for a perceptron with another number of hidden layers, copies < 1, and inputs that are not (n, S, d).
    """

    def __init__(self, net: Perceptron, copies: int) -> None:
        super().__init__()
        if len(net.layers) != 1:
            raise ValueError(f"PerceptronStack needs a perceptron with one hidden layer, got {len(net.layers)}")
        if copies < 1:
            raise ValueError(f"copies must be at least 1, got {copies}")
        hidden = net.layers[0]
        assert isinstance(hidden, nn.Linear)

        def repeated(parameter: Tensor) -> nn.Parameter:
            return nn.Parameter(parameter.detach().expand(copies, *parameter.shape).clone())

        self.weight, self.bias = repeated(hidden.weight.T), repeated(hidden.bias[None])  # (S, d, width), (S, 1, width)
        self.head_weight, self.head_bias = repeated(net.head.weight.T), repeated(net.head.bias[None])

    def features(self, x: Float[Tensor, "..."]) -> Float[Tensor, "n copies width"]:
        return self._hidden(x).transpose(0, 1)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "n copies outputs"]:
        return torch.baddbmm(self.head_bias, self._hidden(x), self.head_weight).transpose(0, 1)

    def _hidden(self, x: Tensor) -> Tensor:
        copies, dim = self.weight.shape[:2]
        if x.ndim != 3 or x.shape[1:] != (copies, dim):
            raise ValueError(f"inputs must be (n, {copies}, {dim}), got {tuple(x.shape)}")
        return torch.relu(torch.baddbmm(self.bias, x.transpose(0, 1), self.weight))
