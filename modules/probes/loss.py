"""Losses and accuracies of whole datasets during any fit."""

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from featurelab.modules.learners import Forward, Loss, Supervised, accuracy, balanced_accuracy
from featurelab.modules.learners import loss as loss_called

from .probe import Probe


class LossProbe(Probe):
    """`loss/<name>` of each dataset (x, y) in `datasets`, e.g. {"train": data.train, "test": data.test}.

    The loss is the module's own for a `Supervised`, else the one given: a name of `learners.loss` or a function of
    (forward, batch). Where targets are class labels also `accuracy/<name>` in [0, 1], and with `balanced`, for labels
    +-1, `balanced_accuracy/<name>`: the mean over the classes. Empty datasets are passed over. Further options are
    those of `Probe`. Raises ValueError where there is nothing to measure, and at the start of a fit of any other module
    if no loss was given.
    """

    def __init__(
        self,
        datasets: Mapping[str, tuple[Tensor, Tensor]],
        every: int = 1,
        *,
        loss: str | Loss | None = None,
        balanced: bool = False,
        **options: Any,
    ) -> None:
        self.datasets = {name: pair for name, pair in datasets.items() if len(pair[0])}
        if not self.datasets:
            raise ValueError("LossProbe needs at least one dataset that is not empty")
        super().__init__(every=every, inputs=next(iter(self.datasets.values())), **options)
        self.loss = loss_called(loss) if isinstance(loss, str) else loss
        self.balanced = balanced

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.loss is None:
            if not isinstance(pl_module, Supervised):
                raise ValueError(f"LossProbe does not know the loss of {type(pl_module).__name__}: give loss=")
            self.loss = pl_module.loss
        device = pl_module.device
        self.datasets = {name: (x.to(device), y.to(device)) for name, (x, y) in self.datasets.items()}

    @torch.no_grad()
    def measure(self, module: pl.LightningModule, inputs: Tensor, targets: Any) -> dict[str, float]:
        assert self.loss is not None
        values = {}
        for name, (x, y) in self.datasets.items():
            outputs = module(x)
            values[f"loss/{name}"] = self.loss(_known(outputs), (x, y)).item()
            share = accuracy(outputs, y)
            if share is not None:
                values[f"accuracy/{name}"] = share.item()
            if self.balanced:
                values[f"balanced_accuracy/{name}"] = balanced_accuracy(outputs, y).item()
        return values


def _known(outputs: Tensor) -> Forward:
    """The forward pass whose outputs are there already."""
    return lambda _: outputs
