"""Schedules of learning rates: functions of a number of epochs or steps, which multiply a rate."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from .optimizers import Factory

Schedule = Callable[[int], float]  # epochs or steps that are over -> what the learning rate is multiplied with


def milestone_schedule(epochs: Sequence[int], factor: float = 0.1) -> Schedule:
    """The step schedule: epoch -> factor^m with m the number of milestones <= epoch (epochs count from 0).

    As `Supervised(schedule=...)` it multiplies the learning rate by `factor` at the start of each of these epochs.
    Raises ValueError for milestones that do not increase or a factor that is not positive.
    """
    steps = tuple(int(epoch) for epoch in epochs)
    if any(b <= a for a, b in pairwise(steps)):
        raise ValueError(f"milestones must increase, got {steps}")
    if not factor > 0:
        raise ValueError(f"factor multiplies a learning rate and must be positive, got {factor}")
    return partial(_stepped, steps, float(factor))


def linear_decay_at_end(epochs: int, share: float = 0.3) -> Schedule:
    """A schedule that is 1, then falls in equal steps towards 0 over the last `share` of `epochs`, and stays above 0.

    After `epochs` it keeps its last value. Raises ValueError for epochs < 1 or a share outside [0, 1].
    """
    if epochs < 1 or not 0 <= share <= 1:
        raise ValueError(f"epochs must be at least 1 and share in [0, 1], got {epochs} and {share}")
    return partial(_falling, epochs, max(share * epochs, 1.0))


def cosine_schedule(epochs: int, warmup: int = 0) -> Schedule:
    """The cosine schedule without restarts: t -> (1 + cos(pi t / epochs)) / 2, 0 from `epochs` (or so many steps) on.

    With `warmup` w it takes the steps from w on, after factors (t + 1) / w for t < w. Raises ValueError for epochs < 1,
    and unless 0 <= warmup < epochs.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs}")
    if not 0 <= warmup < epochs:
        raise ValueError(f"warmup must lie between 0 and epochs - 1 = {epochs - 1}, got {warmup}")
    return partial(_warmed, epochs, warmup) if warmup else partial(_cosine, epochs)


def scheduled_by_step(optimizer: Factory, schedule: Schedule) -> Factory:
    """The optimiser with rates lr * schedule(t) at step t = 0, 1, ...; the count is kept in checkpoints.

    For schedules by epoch use `Supervised(schedule=...)`.
    """
    return partial(_by_step, optimizer, schedule)


# Schedules are partials of these, not closures, so that they can be sent to worker processes.
def _stepped(milestones: tuple[int, ...], factor: float, epoch: int) -> float:
    return factor ** bisect_right(milestones, epoch)


def _falling(epochs: int, last: float, epoch: int) -> float:
    return min(1.0, max(epochs - epoch, 1) / last)


def _warmed(epochs: int, warmup: int, epoch: int) -> float:
    return (epoch + 1) / warmup if epoch < warmup else _cosine(epochs - warmup, epoch - warmup)


def _cosine(epochs: int, epoch: int) -> float:
    return (1 + math.cos(math.pi * min(epoch / epochs, 1))) / 2


def _by_step(optimizer: Factory, schedule: Schedule, net: nn.Module) -> torch.optim.Optimizer:
    made = optimizer(net)
    for group in made.param_groups:
        group |= {"full_lr": group["lr"], "lr": group["lr"] * schedule(0), "taken": 0}

    def lower(*_: Any) -> None:
        for group in made.param_groups:
            group["taken"] += 1
            group["lr"] = group["full_lr"] * schedule(group["taken"])

    made.register_step_post_hook(lower)
    return made
