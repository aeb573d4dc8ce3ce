"""Data of rising difficulty: batches of one level, now and then of one before it, until the learner has that too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
from torch import Tensor

from .tensors import TensorData, stream


class Levels(pl.LightningDataModule):
    """Levels of a task, the easiest first, each a data module with batches of its own; one epoch, as long as it takes.

    Of two batches one is of the level that has been reached, `level`, from 0, which somebody else raises
    (`learners.Promotion`); the other is of it or one of the `back` levels before it, at random. Each level's batches
    come in their own order, and begin anew where they end. `test` is empty. Raises ValueError for no levels.
    """

    def __init__(self, levels: Sequence[TensorData], *, seed: int, back: int = 2, name: str = "levels") -> None:
        super().__init__()
        if not levels:
            raise ValueError("there are no levels")
        self.levels, self.seed, self.back, self.name = list(levels), seed, back, name
        self.level = 0
        self.shown = 0  # the level of the last batch
        self.train, self.test = levels[-1].train, levels[-1].test

    def train_dataloader(self) -> Rising:
        for level in self.levels:
            level.trainer = self.trainer
        return Rising(self)

    def val_dataloader(self) -> list[Any]:
        return []

    def digest(self) -> str:
        """SHA-256 (hex) over the digests of all levels."""
        return hashlib.sha256("".join(level.digest() for level in self.levels).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """That of the last level, with the number of levels, and their sizes added up."""
        total = sum(len(level.train[0]) for level in self.levels)
        return self.levels[-1].describe() | {"name": self.name, "levels": len(self.levels), "n_train": total}


class Rising:
    """The batches of `Levels`, without an end: it has no length, so a trainer that wants one stops by its steps."""

    def __init__(self, data: Levels) -> None:
        self.data = data

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        data, rng = self.data, stream(self.data.seed, "levels")
        batches = [_again(level) for level in data.levels]
        while True:
            for earlier in (False, True):
                data.shown = _drawn(rng, data.level, data.back) if earlier else data.level
                yield next(batches[data.shown])


def _again(level: TensorData) -> Iterator[tuple[Tensor, Tensor]]:
    loader = level.train_dataloader()
    while True:
        yield from loader


def _drawn(rng: np.random.Generator, level: int, back: int) -> int:
    return int(rng.integers(max(0, level - back), level + 1))
