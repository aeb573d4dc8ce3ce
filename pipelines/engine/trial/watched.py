"""The callback by which a fit tells how far it is."""

from typing import Any

import pytorch_lightning as pl

from featurelab.pipelines.engine.trial.place import Reached


class Watched(pl.Callback):
    """Tells `reached(step, steps)`, in optimiser steps, as a fit begins and after every batch.

    It changes nothing and keeps nothing. A fit without a last step tells nothing.
    """

    def __init__(self, reached: Reached) -> None:
        self._reached = reached
        self._steps = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._steps = trainer.estimated_stepping_batches
        self._tell(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._tell(trainer)

    def _tell(self, trainer: pl.Trainer) -> None:
        if 0 < self._steps < float("inf"):
            self._reached(min(trainer.global_step, int(self._steps)), int(self._steps))
