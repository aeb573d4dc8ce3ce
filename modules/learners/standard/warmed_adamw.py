"""AdamW with a linear warm-up that counts optimiser steps, and losses with a penalty on the weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .losses import Batch, Forward, Loss
from .losses import loss as loss_called
from .optimizers import Factory


def adamw(
    lr: float, *, betas: tuple[float, float] = (0.9, 0.999), weight_decay: float = 0.0, warmup: int = 0
) -> Factory:
    """AdamW, W <- W - lr (m / (sqrt(v) + 1e-8) + weight_decay W), rate lr min(1, t / warmup) at step t = 1, 2, ...

    Raises ValueError for a negative warm-up.
    """
    if warmup < 0:
        raise ValueError(f"warmup is a number of steps and must not be negative, got {warmup}")
    return partial(_over_parameters, lr=lr, betas=betas, weight_decay=weight_decay, warmup=warmup)


class WarmedAdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` whose rate rises linearly over the first `warmup` steps; the count is kept in checkpoints."""

    def __init__(self, params: Any, *, warmup: int, **options: Any) -> None:
        super().__init__(params, fused=True, **options)  # one pass over all weights: small networks are launch-bound
        for group in self.param_groups:
            group |= {"full_lr": group["lr"], "warmup": warmup, "taken": 0}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        for group in self.param_groups:
            group["taken"] += 1
            group["lr"] = group["full_lr"] * min(1.0, group["taken"] / max(group["warmup"], 1))
            for weight in group["params"]:  # the fused kernel reads a transposed gradient as if it were not
                if weight.grad is not None and weight.grad.stride() != weight.stride():
                    weight.grad = torch.empty_like(weight).copy_(weight.grad)
        return super().step(closure)


def penalised_loss(loss: str | Loss, penalty: Callable[[], Tensor], strength: float) -> Loss:
    """The loss plus strength times a penalty on weights, `penalty()`, for any outputs.

    With strength 0 the penalty is not computed. Raises ValueError for a negative strength or an unknown loss.
    """
    if strength < 0:
        raise ValueError(f"strength must not be negative, got {strength}")
    return partial(_penalised, loss_called(loss) if isinstance(loss, str) else loss, penalty, strength)


def _penalised(loss: Loss, penalty: Callable[[], Tensor], strength: float, forward: Forward, batch: Batch) -> Tensor:
    value = loss(forward, batch)
    return value + strength * penalty() if strength else value


def _over_parameters(net: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return WarmedAdamW(net.parameters(), **options)
