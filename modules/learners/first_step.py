"""Training whose first gradient step has a rate of its own and erases the initial weights (arXiv:2310.12408).

    theta <- (1 - erase) theta - lr grad L(theta),      erase = lr lambda,  L without its penalty (lambda/2)|theta|^2

With erase = 1 and an initialisation with f = 0, neuron i is left with w_i = -lr l'(0) a_i G(w_i, b_i) (algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .losses import Batch, Diverged, Loss
from .optimizers import Schedule
from .supervised import Supervised
from .withheld import withheld


def take_first_step(net: nn.Module, batch: Batch, objective: Loss, *, lr: float, erase: float = 1.0) -> Tensor:
    """Take the step on all parameters of `net` that are trained, in place; the loss before it. No-op while withheld."""
    weights = [p for p in net.parameters() if p.requires_grad]
    value = objective(net, batch)
    gradients = torch.autograd.grad(value, weights)
    if not withheld():
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.mul_(1 - erase).sub_(lr * gradient)
    return value.detach()


class FirstStepThen(Supervised):
    """`Supervised` training whose first optimiser step is `take_first_step`, and whose later ones are `optimizer`'s.

    The first batch of the fit makes that step and no other, and later ones `steps_per_batch` each. The step is taken on
    `first_batch` where one is given: all samples, where later steps see minibatches, or other labels, which destroys
    what is learned in it and nothing later. With `first_lr=None` there is no first step. Raises ValueError for a
    negative rate or an erased share that is not in [0, 1].
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        loss: str | Loss,
        optimizer: Callable[[nn.Module], torch.optim.Optimizer],
        first_lr: float | None,
        erase: float = 1.0,
        first_batch: Batch | None = None,
        steps_per_batch: int = 1,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(net, loss=loss, optimizer=optimizer, steps_per_batch=steps_per_batch, schedule=schedule)
        if first_lr is not None and not first_lr >= 0:
            raise ValueError(f"first_lr must not be negative, got {first_lr}")
        if not 0 <= erase <= 1:
            raise ValueError(f"erase must lie between 0 and 1, got {erase}")
        self.first_lr, self.erase, self.first_batch = first_lr, erase, first_batch

    def training_step(self, batch: Batch, batch_index: int) -> None:
        if self.trainer.global_step or self.first_lr is None:
            super().training_step(batch, batch_index)
            return
        x, y = batch if self.first_batch is None else self.first_batch
        first = (x.to(batch[0]), y.to(batch[1]))
        value = take_first_step(self.net, first, self.loss, lr=self.first_lr, erase=self.erase)
        optimizer: Any = self.optimizers()
        for weight in self.net.parameters():
            weight.grad = None  # a step without gradients moves nothing: it is counted
        optimizer.step()
        self._losses.append(value[None].cpu())
        if not value.isfinite():
            raise Diverged(0)
