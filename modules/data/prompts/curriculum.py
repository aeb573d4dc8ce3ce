"""Data of rising difficulty: batches of the current level, mixed with batches of earlier levels."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
from torch import Tensor

from ..core.tensors import TensorData


class Levels(pl.LightningDataModule):  # checkpoints keep its state under this name
    """Levels of a task, the easiest first, each a data module with batches of its own.

    Every second batch is of the current level, `level` (from 0), which `learners.Promotion` raises; the others are of
    it or of one of the `back` levels before it, at random. The batches of each level come in their own order and start
    again at the end. An epoch has as many batches as the longest level. `shown` is the level of the last batch, and
    `counts` the number of batches of each. `test` is empty.

    Raises ValueError for no levels.
    """

    def __init__(self, levels: Sequence[TensorData], *, seed: int, back: int = 2, name: str = "levels") -> None:
        super().__init__()
        if not levels:
            raise ValueError("levels must hold at least one data module")
        self.levels, self.seed, self.back, self.name = list(levels), seed, back, name
        self.level = self.shown = 0
        self.counts = [0] * len(self.levels)
        self.train, self.test = levels[-1].train, levels[-1].test

    def train_dataloader(self) -> Rising:
        for level in self.levels:
            level.trainer = self.trainer
        return Rising(self)

    def val_dataloader(self) -> list[Any]:
        return []

    def state_dict(self) -> dict[str, Any]:
        return {"level": self.level, "counts": list(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.level, self.counts = state["level"], list(state["counts"])

    def digest(self) -> str:
        """SHA-256 (hex) over the digests of all levels."""
        return hashlib.sha256("".join(level.digest() for level in self.levels).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """The description of the last level, with the number of levels and their total size."""
        total = sum(len(level.train[0]) for level in self.levels)
        return self.levels[-1].describe() | {"name": self.name, "levels": len(self.levels), "n_train": total}


class Rising:
    """The batches of `Levels`. It has a length, so that a trainer draws no batch before its level is known."""

    def __init__(self, data: Levels) -> None:
        self.data = data
        self._loaders = [level.train_dataloader() for level in data.levels]
        self._batches: list[Iterator[tuple[Tensor, Tensor]]] = []

    def __len__(self) -> int:
        return max(map(len, self._loaders))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        data = self.data
        if not self._batches:  # a resumed fit skips the earlier ones
            each = [itertools.chain.from_iterable(itertools.repeat(loader)) for loader in self._loaders]
            self._batches = [
                itertools.islice(batches, count, None) for batches, count in zip(each, data.counts, strict=True)
            ]
        for _ in range(len(self)):
            step, level = sum(data.counts), data.level
            earlier = np.random.default_rng([data.seed, step, *b"levels"]).integers(
                max(0, level - data.back), level + 1
            )
            data.shown = int(earlier) if step % 2 else level
            data.counts[data.shown] += 1
            yield next(self._batches[data.shown])
