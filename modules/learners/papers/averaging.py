"""Average weights densely along training, while a validation loss is near its minimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from ..standard.losses import Batch, Loss, loss


def loss_valley(
    losses: Sequence[float], *, patience_start: int = 3, patience_end: int = 6, ratio: float = 1.3
) -> range:
    """The range of segments in which the loss lies in its valley, whose weights are averaged; at least one.

    The valley begins with the first loss that is not undercut by any of the `patience_start` - 1 following losses. It
    ends before the first `patience_end` consecutive losses above `ratio` times the mean of these first losses; without
    such an end it extends to the last segment, and without a beginning it is the last segment alone. J. Cha et al.,
    "SWAD" (arXiv:2102.08604), algorithm 1. Raises ValueError without any loss or for a patience below 1.
    """
    if not losses or min(patience_start, patience_end) < 1:
        raise ValueError("loss_valley() needs at least one loss and a patience of at least 1")
    for start in range(len(losses) - patience_start + 1):
        first = losses[start : start + patience_start]
        if first[0] <= min(first):
            level = ratio * sum(first) / len(first)
            for end in range(start + patience_start, len(losses) - patience_end + 1):
                if min(losses[end : end + patience_end]) > level:
                    return range(start, end)
            return range(start, len(losses))
    return range(len(losses) - 1, len(losses))


class DenseAverage(pl.Callback):
    """Replaces the weights at the end of a fit by their average over the valley of a validation loss.

    Weights are averaged over segments of `every` optimiser steps. The loss of each segment's average is taken on
    `validation`, and the segments in `loss_valley` form the final weights. Place this callback before probes that
    should see these weights. Segments are kept on the CPU and in checkpoints. Buffers, such as those of batch
    normalisation, do not change. The last segment may be shorter. Raises ValueError for every < 1.
    """

    def __init__(self, validation: Batch, *, every: int, loss_name: str | Loss = "cross_entropy", **rule: Any) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.validation, self.every, self.rule = validation, every, rule
        self.loss = loss(loss_name) if isinstance(loss_name, str) else loss_name
        self.losses: list[float] = []
        self._segments: list[dict[str, Tensor]] = []
        self._sum: dict[str, Tensor] = {}
        self._count = 0

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        net = _net(pl_module)
        with torch.no_grad():
            for name, weight in net.named_parameters():
                self._sum[name] = self._sum[name] + weight if name in self._sum else weight.detach().clone()
        self._count += 1
        if self._count == self.every:
            self._close(net)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        net = _net(pl_module)
        if self._count:
            self._close(net)
        if self._segments:
            chosen = [self._segments[place] for place in loss_valley(self.losses, **self.rule)]
            _load(net, {name: torch.stack([s[name] for s in chosen]).mean(0) for name in chosen[0]})

    def state_dict(self) -> dict[str, Any]:
        return {"losses": self.losses, "segments": self._segments, "sum": self._sum, "count": self._count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.losses, self._segments = state_dict["losses"], state_dict["segments"]
        self._sum, self._count = state_dict["sum"], state_dict["count"]

    def _close(self, net: nn.Module) -> None:
        """End a segment: compute its average and the validation loss of the average."""
        average = {name: total / self._count for name, total in self._sum.items()}
        own = {name: weight.detach().clone() for name, weight in net.named_parameters()}
        training, device = net.training, next(net.parameters()).device
        _load(net, average)
        net.eval()
        with torch.no_grad():
            x, y = (part.to(device) for part in self.validation)
            self.losses.append(self.loss(net, (x, y)).item())
        net.train(training)
        _load(net, own)
        self._segments.append({name: weight.cpu() for name, weight in average.items()})
        self._sum, self._count = {}, 0


def _net(module: pl.LightningModule) -> nn.Module:
    net = getattr(module, "net", module)
    assert isinstance(net, nn.Module)
    return net


def _load(net: nn.Module, weights: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.copy_(weights[name])
