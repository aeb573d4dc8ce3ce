"""Average weights densely along training, while a validation loss is near its minimum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from ..standard.losses import Batch, Loss, loss
from .scaling import SwadRule


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


def domainbed_segments(
    losses: Sequence[float], *, patience_start: int = 3, patience_end: int = 6, ratio: float = 1.3
) -> list[int]:
    """The segments that SWAD's program averages, in the order in which they enter; one may enter twice.

    The program converges once the oldest of the last `patience_start` losses is the least of them, at segment c; the
    threshold is `ratio` times their mean. It holds the last `patience_end` segments in a queue, and departs from
    `loss_valley` in three ways. With the longer queue, segments before c enter too, back to but without the last one
    above the threshold, and the first of these is left out. From c on, a segment enters when it reaches the queue's
    end, so c may enter twice. The average is final once all losses in the queue are above the threshold; at the end of
    training the rest of the queue enters up to that point. Without convergence it is the last segment alone. Raises
    ValueError as `loss_valley` does.
    """
    if not losses or min(patience_start, patience_end) < 1:
        raise ValueError("domainbed_segments() needs at least one loss and a patience of at least 1")
    last = len(losses) - 1
    starts = range(len(losses) - patience_start + 1)
    start = next((place for place in starts if losses[place] <= min(losses[place : place + patience_start])), None)
    if start is None:
        return [last]
    seen = start + patience_start - 1
    level = ratio * sum(losses[start : seen + 1]) / patience_start
    entered: list[int] = []
    if patience_end > patience_start:
        oldest = max(0, seen - patience_end + 1)
        early = range(oldest, min(oldest + patience_end - patience_start, seen) + 1)
        above = [place for place in early if losses[place] > level]
        entered += [place for place in early if place > (above[-1] + 1 if above else oldest)]
    else:
        entered += range(start + 1, start + 1 + patience_start - patience_end)
    for now in range(seen + 1, len(losses)):
        oldest = max(0, now - patience_end + 1)
        if oldest < start:
            continue
        if min(losses[oldest : now + 1]) > level:
            return entered or [start]
        entered.append(oldest)
    for oldest in range(max(0, last - patience_end + 1) + 1, len(losses)):
        if min(losses[oldest:]) > level:
            break
        entered.append(oldest)
    return entered or [start]


RULES: dict[str, Callable[..., Sequence[int]]] = {"algorithm_1": loss_valley, "domainbed": domainbed_segments}


class DenseAverage(pl.Callback):
    """Replaces the weights at the end of a fit by their average over the valley of a validation loss.

    Weights are averaged over segments of `every` optimiser steps, and at the end of each the loss of the weights
    themselves is taken on `validation`. The average of some segments forms the final weights: of those in `loss_valley`
    (`rule` "algorithm_1", of the paper) or in `domainbed_segments` ("domainbed", of its program); options are theirs.
    Place this callback before probes that should see these weights. Segments are kept on the CPU and in checkpoints.
    Buffers, such as those of batch normalisation, do not change. The last segment may be shorter. Raises ValueError for
    every < 1 and an unknown rule.
    """

    def __init__(
        self,
        validation: Batch,
        *,
        every: int,
        loss_name: str | Loss = "cross_entropy",
        rule: SwadRule = "algorithm_1",
        **options: Any,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
        self.validation, self.every, self.rule, self.options = validation, every, rule, options
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
            chosen = [self._segments[place] for place in RULES[self.rule](self.losses, **self.options)]
            _load(net, {name: torch.stack([s[name] for s in chosen]).mean(0) for name in chosen[0]})

    def state_dict(self) -> dict[str, Any]:
        return {"losses": self.losses, "segments": self._segments, "sum": self._sum, "count": self._count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.losses, self._segments = state_dict["losses"], state_dict["segments"]
        self._sum, self._count = state_dict["sum"], state_dict["count"]

    def _close(self, net: nn.Module) -> None:
        """End a segment: keep its average, and the validation loss of the weights at its end."""
        training, device = net.training, next(net.parameters()).device
        net.eval()
        with torch.no_grad():
            x, y = (part.to(device) for part in self.validation)
            self.losses.append(self.loss(net, (x, y)).item())
        net.train(training)
        self._segments.append({name: (total / self._count).cpu() for name, total in self._sum.items()})
        self._sum, self._count = {}, 0


def _net(module: pl.LightningModule) -> nn.Module:
    net = getattr(module, "net", module)
    assert isinstance(net, nn.Module)
    return net


def _load(net: nn.Module, weights: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.copy_(weights[name])
