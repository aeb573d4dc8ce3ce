"""Training whose first gradient steps have their own learning rates and erase weights.

    theta <- (1 - erase) theta - lr grad L(theta),      erase = lr lambda,  L without its penalty (lambda/2)|theta|^2

With erase = 1 and an initialisation with f = 0, neuron i becomes w_i = -lr l'(0) a_i G(w_i, b_i). Shi, Wei, Liang 2023
(arXiv:2310.12408, algorithm 1) take one such step, Shi, Wei, Liang 2022 (ICLR) two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..standard.losses import Batch, Diverged, Loss
from ..standard.schedules import Schedule
from ..standard.supervised import Supervised
from ..standard.withheld import updates_withheld


@dataclass(frozen=True)
class FirstStep:
    """The rate of a step and the share that it erases, of all parameters or only of those that `erase` names.

    `as_decay` computes it as optimisers do with weight decay erase/lr, theta - lr (grad + (erase/lr) theta). This
    differs only by rounding: at a tiny rate the gradient is lost beside what is erased.

    Raises ValueError for a negative rate, or a share outside [0, 1].
    """

    lr: float
    erase: float | Mapping[str, float] = 1.0
    as_decay: bool = False

    def __post_init__(self) -> None:
        if not self.lr >= 0:
            raise ValueError(f"first_lr must not be negative, got {self.lr}")
        for share in self.erase.values() if isinstance(self.erase, Mapping) else [self.erase]:
            if not 0 <= share <= 1:
                raise ValueError(f"erase must lie between 0 and 1, got {share}")


def take_first_step(
    net: nn.Module,
    batch: Batch,
    objective: Loss,
    *,
    lr: float,
    erase: float | Mapping[str, float] = 1.0,
    as_decay: bool = False,
) -> Tensor:
    """Take the step on all trainable parameters of `net`, in place; return the loss before it. No-op while withheld.

    The options are those of `FirstStep`. Raises ValueError if `erase` names anything but a trainable parameter.
    """
    weights = {name: p for name, p in net.named_parameters() if p.requires_grad}
    shares = erase if isinstance(erase, Mapping) else dict.fromkeys(weights, erase)
    if strange := set(shares) - set(weights):
        raise ValueError(f"{', '.join(sorted(strange))}: not a trainable parameter; choose among {', '.join(weights)}")
    value = objective(net, batch)
    gradients = torch.autograd.grad(value, list(weights.values()))
    if not updates_withheld():
        with torch.no_grad():
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
                share = shares.get(name, 0.0)
                if as_decay:
                    weight.sub_(lr * gradient.add(weight, alpha=share / lr))
                else:
                    weight.mul_(1 - share).sub_(lr * gradient)
    return value.detach()


class FirstStepsThen(Supervised):
    """`Supervised` training whose first optimiser steps are `take_first_step`, followed by those of `optimizer`.

    Each of the first batches of the fit takes one of these steps and no other; later batches take `steps_per_batch`
    each. `first_batch`, if given, replaces these batches: all samples where later steps use minibatches, or other
    labels, which destroy only what the first steps learn. `first_loss`, if given, is the loss of these steps.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        loss: str | Loss,
        optimizer: Callable[[nn.Module], torch.optim.Optimizer],
        first_steps: Sequence[FirstStep],
        first_batch: Batch | None = None,
        first_loss: Loss | None = None,
        steps_per_batch: int = 1,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(net, loss=loss, optimizer=optimizer, steps_per_batch=steps_per_batch, schedule=schedule)
        self.first_steps, self.first_batch = list(first_steps), first_batch
        self.first_loss = first_loss or self.loss

    def training_step(self, batch: Batch, batch_index: int) -> None:
        taken = self.trainer.global_step
        if taken >= len(self.first_steps):
            super().training_step(batch, batch_index)
            return
        x, y = batch if self.first_batch is None else self.first_batch
        step = self.first_steps[taken]
        first = (x.to(batch[0]), y.to(batch[1]))
        value = take_first_step(self.net, first, self.first_loss, lr=step.lr, erase=step.erase, as_decay=step.as_decay)
        optimizer: Any = self.optimizers()
        for weight in self.net.parameters():
            weight.grad = None  # a step without gradients moves nothing: it is counted
        optimizer.step()
        self._losses.append(value[None].cpu())
        if not value.isfinite():
            raise Diverged(taken)


class FirstStepThen(FirstStepsThen):
    """One first step with rate `first_lr`, which erases the share `erase` of all weights; None means no first step."""

    def __init__(self, net: nn.Module, *, first_lr: float | None, erase: float = 1.0, **options: Any) -> None:
        steps = [] if first_lr is None else [FirstStep(first_lr, erase)]
        super().__init__(net, first_steps=steps, **options)
