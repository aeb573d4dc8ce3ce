"""Moving a learner up a curriculum: to the next level once its loss on the current one has been low for a while."""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl


class Promotion(pl.Callback):
    """Raises `level` of a `Levels` as the learner's loss falls, and ends the fit some steps after the last level.

    The running mean m <- memory m + (1 - memory) loss covers batches of the current level; below `below` the next level
    begins, with a new m. The fit ends `then` optimiser steps after the last level was reached, or with the trainer's
    steps; over these steps the learning rate falls linearly to 0. `reached` are the steps at which each level after the
    first began.

    The learner must have a `loss_history`, as `Supervised` does. Raises ValueError for a memory outside [0, 1).
    """

    def __init__(self, *, below: float, then: int, memory: float = 0.9) -> None:
        if not 0 <= memory < 1:
            raise ValueError(f"memory must lie in [0, 1), got {memory}")
        self.below, self.then, self.memory = below, then, memory
        self.mean = math.nan
        self.reached: list[int] = []

    def on_train_batch_end(self, trainer: pl.Trainer, learner: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        last = len(data.levels) - 1
        if data.shown == data.level < last:
            loss = float(learner.loss_history[-1])
            self.mean = loss if math.isnan(self.mean) else self.memory * self.mean + (1 - self.memory) * loss
            if self.mean < self.below:
                data.level += 1
                self.mean = math.nan
                self.reached.append(trainer.global_step)
        if data.level == last:
            left = (self.reached[-1] if self.reached else 0) + self.then - trainer.global_step
            for group in trainer.optimizers[0].param_groups:
                rate = "full_lr" if "full_lr" in group else "lr"  # an optimiser with a warm-up sets `lr` itself
                group[rate] = group.setdefault("initial_lr", group[rate]) * max(left, 0) / max(self.then, 1)
            trainer.should_stop = left <= 0

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "reached": self.reached}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean, self.reached = state["mean"], list(state["reached"])
