"""The callback by which a fit tells how far it is."""

from typing import Any

import pytorch_lightning as pl

from featurelab.pipelines.engine.trial.place import Reached


class Watched(pl.Callback):
    """Tells `reached(step, share)` after every batch; it changes nothing and keeps nothing."""

    def __init__(self, reached: Reached) -> None:
        self._reached = reached

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.max_steps > 0:
            share = trainer.global_step / trainer.max_steps
        elif trainer.max_epochs and trainer.max_epochs > 0:
            share = (trainer.current_epoch + (batch_idx + 1) / float(trainer.num_training_batches)) / trainer.max_epochs
        else:
            return
        self._reached(trainer.global_step, min(share, 1.0))
