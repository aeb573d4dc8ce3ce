"""One exact full-batch gradient step on the first layer of two-layer networks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from torch import Tensor

from featurelab.modules.nets import TwoLayer

from ..standard.losses import Diverged
from ..standard.withheld import updates_withheld


def half_squared_loss(net: TwoLayer, x: Float[Tensor, "n dim"], y: Float[Tensor, "n heads"]) -> Float[Tensor, ""]:
    """1/(2n) sum_c |y_c - f_c(x)|^2 for targets y."""
    f: Tensor = net(x)
    return (f - y).square().sum() / (2 * len(x))


def negative_gradient(
    net: TwoLayer, x: Float[Tensor, "n dim"], y: Float[Tensor, "n heads"]
) -> Float[Tensor, "dim width"]:
    """G = -dL/dW of `half_squared_loss` by the explicit formula.

    G = -1/n X^T [((f - Y) a / sqrt N) o sigma'(XW)], with f (n, C) the outputs and a (C, N) the heads.
    """
    with torch.no_grad():
        h = net.hidden(x)
        a = net.head.weight
        root = math.sqrt(len(h[0]))
        residual = net.activation(h) @ a.T / root - y
        G: Tensor = -x.T @ (residual @ a / root * net.activation.slope(h)) / len(x)
    return G


def one_step_weights(
    net: TwoLayer, x: Float[Tensor, "n dim"], y: Float[Tensor, "n heads"], *, lr: float, weight_decay: float = 0.0
) -> Float[Tensor, "dim width"]:
    """W + lr sqrt(N) (G - weight_decay W): the weights after one step of `OneStep`, without changing net."""
    W = net.hidden.weight.detach().T
    return W + lr * math.sqrt(W.shape[1]) * (negative_gradient(net, x, y) - weight_decay * W)


class OneStep(pl.LightningModule):
    """Moves the neurons of every network by W <- W + lr sqrt(N) (G - weight_decay W); their heads do not change.

    The networks see the same batch and are independent: several of them form an ensemble. G is `negative_gradient` on
    the full batch. `max_steps=1` takes the one step of the theory; more steps continue from there. `initial` holds the
    weights (d, N) of each network before the first step.

    Raises ValueError without networks or for a negative rate or weight decay, and `Diverged` when weights are not
    finite.
    """

    def __init__(self, networks: Sequence[TwoLayer], *, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__()
        if not networks:
            raise ValueError("nets must hold at least one network")
        if not lr >= 0 or not weight_decay >= 0:
            raise ValueError(f"lr and weight_decay must not be negative, got {lr} and {weight_decay}")
        self.automatic_optimization = False
        self.networks = torch.nn.ModuleList(networks)
        self._networks = list(networks)
        self.lr, self.weight_decay = lr, weight_decay
        self.initial = [net.hidden.weight.detach().clone().T for net in networks]

    def forward(self, x: Float[Tensor, "n dim"]) -> Float[Tensor, "networks n heads"]:
        """The outputs of all networks."""
        return torch.stack([net(x) for net in self._networks])

    def weights(self) -> list[tuple[TwoLayer, Float[Tensor, "dim _width"], Float[Tensor, "dim _width"]]]:
        """Each network with its initial and its current W, on the device of the module."""
        return [
            (net, start.to(net.hidden.weight), net.hidden.weight.detach().T)
            for net, start in zip(self._networks, self.initial, strict=True)
        ]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        weights = [net.hidden.weight for net in self._networks]
        return torch.optim.SGD(weights, lr=self.lr * math.sqrt(len(weights[0])), weight_decay=self.weight_decay)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_index: int) -> None:
        x, y = batch
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        for net in self._networks:
            net.hidden.weight.grad = None if updates_withheld() else -negative_gradient(net, x, y).T
        optimizer.step()
        if not all(net.hidden.weight.isfinite().all() for net in self._networks):
            raise Diverged(self.trainer.global_step)
