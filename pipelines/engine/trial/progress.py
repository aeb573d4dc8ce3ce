"""The callback by which a fit reports its progress."""

from typing import Any

import pytorch_lightning as pl

from featurelab.pipelines.engine.trial.place import OnStep


class ReportProgress(pl.Callback):
    """Calls `on_step(step, steps)`, counted in optimiser steps, when a fit begins and after every batch.

    A fit without a fixed number of steps is not reported.
    """

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self._steps = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._steps = trainer.estimated_stepping_batches
        self._report(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._report(trainer)

    def _report(self, trainer: pl.Trainer) -> None:
        if 0 < self._steps < float("inf"):
            self._on_step(min(trainer.global_step, int(self._steps)), int(self._steps))
