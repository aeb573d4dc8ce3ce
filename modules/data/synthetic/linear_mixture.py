"""Positive pairs of a mixture of tasks that share features: x = M z, x+ = M z+.

Z. Shi et al., "The Trade-off between Universality and Label Efficiency of Representations from Contrastive Learning",
ICLR 2023; section 7.2.2 of the dissertation of Z. Shi (2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from featurelab.modules.dtypes import Dtype

from ..core.tensors import Batches, Pair, TensorData, stream

Draw = Callable[[np.random.Generator, int], Pair]


class LinearMixture(TensorData):
    """Batches of fresh positive pairs (x, x+): x = M z with a Haar orthogonal M, and z and z+ as follows.

    `weights` draw a task t. Its features are the `shared` ones, N(0, shared_scale^2), and `private` ones of its own,
    N(0, private_scale^2), equal in z and z+. Private features of other tasks are 0. The `spurious` features are
    N(0, spurious_scale^2), independent in z and z+. Factors are ordered: shared, private of task 0, 1, ..., spurious. A
    task with weight 0 exists but is not in the mixture.

    An epoch has `batches` batches of `batch_size` pairs, drawn from (order_seed, epoch, batch); `train` is one further
    batch. With `shuffled_pairs` the positives are those of other samples of the batch, at random: a control in which
    nothing is invariant. `dictionary` is M; its columns are the factors.

    Raises ValueError for sizes below 1 (`spurious` may be 0), negative weights or scales, and weights that sum to 0.
    """

    def __init__(
        self,
        weights: Sequence[float],
        shared: int,
        private: int,
        spurious: int,
        *,
        batch_size: int = 1024,
        batches: int = 50,
        shared_scale: float = 1.0,
        private_scale: float = 1.0,
        spurious_scale: float = 1.0,
        shuffled_pairs: bool = False,
        order_seed: int = 0,
        seed: int,
        dtype: Dtype = "float64",
    ) -> None:
        share, scales = np.asarray(weights, dtype=float), (shared_scale, private_scale, spurious_scale)
        if min(shared, private, batch_size, batches, len(share)) < 1 or spurious < 0:
            raise ValueError(f"sizes must be at least 1: {shared=}, {private=}, {spurious=}, {batch_size=}, {batches=}")
        if (share < 0).any() or not share.sum() > 0 or min(scales) < 0:
            raise ValueError(f"weights must be >= 0 and not all 0, and scales >= 0, got {weights}, {scales}")
        self.weights, self.shared, self.private, self.spurious = share / share.sum(), shared, private, spurious
        self.tasks, self.scales, self.shuffled_pairs = len(share), scales, shuffled_pairs
        self.factors = shared + self.tasks * private + spurious
        gaussian = torch.from_numpy(stream(seed, "dictionary").standard_normal((self.factors, self.factors)))
        Q, R = torch.linalg.qr(gaussian)
        self.dictionary: Float64[Tensor, "factors factors"] = Q * R.diagonal().sign()  # Haar: Mezzadri 2007
        self.batches, self.size = batches, batch_size
        example = self.pairs(stream(seed, "example"), batch_size)
        super().__init__(example, order_seed=order_seed, dtype=dtype, name="linear_mixture")
        self.train = self.labelled  # a positive is no label: it is not permuted as one

    def pairs(self, chance: np.random.Generator, n: int) -> Pair:
        """n pairs (x, x+), each (n, factors)."""
        task = chance.choice(self.tasks, n, p=self.weights)
        known = self.shared + self.tasks * self.private
        z = np.zeros((n, self.factors))
        z[:, : self.shared] = self.scales[0] * chance.standard_normal((n, self.shared))
        own = self.shared + task[:, None] * self.private + np.arange(self.private)
        np.put_along_axis(z, own, self.scales[1] * chance.standard_normal((n, self.private)), 1)
        other = z.copy()
        for part in (z, other):
            part[:, known:] = self.scales[2] * chance.standard_normal((n, self.spurious))
        if self.shuffled_pairs:
            other = chance.permutation(other)
        x, positive = (torch.from_numpy(part) @ self.dictionary.T for part in (z, other))
        return x, positive

    def task_samples(
        self, n: int, task: int, target: Float64[Tensor, " own"], *, noise: float = 0.0, seed: int
    ) -> Pair:
        """n labelled samples of one task: x (n, factors), y (n,) = target . z_own + noise N(0, 1).

        z_own are the factors of the task, the shared ones first. Own factors, spurious factors and noise have separate
        streams, so that samples of different mixtures with one seed have the same factors and labels. Raises ValueError
        for an unknown task or a target of another length.
        """
        if not 0 <= task < self.tasks or target.shape != (self.shared + self.private,):
            raise ValueError(
                f"need a task below {self.tasks} and a target for each of its factors, got {task} and "
                f"{tuple(target.shape)}"
            )
        own, spurious = self.own(task), self.factors - self.spurious
        z = torch.zeros(n, self.factors, dtype=torch.float64)
        drawn = stream(seed, "own factors").standard_normal((n, len(own)))
        scales = np.repeat(self.scales[:2], [self.shared, self.private])
        z[:, own] = torch.from_numpy(drawn * scales)
        z[:, spurious:] = torch.from_numpy(
            self.scales[2] * stream(seed, "spurious factors").standard_normal((n, self.spurious))
        )
        y = z[:, own] @ target + noise * torch.from_numpy(stream(seed, "noise").standard_normal(n))
        return z @ self.dictionary.T, y

    def own(self, task: int) -> list[int]:
        """The positions of a task's factors, the shared ones first."""
        first = self.shared + task * self.private
        return [*range(self.shared), *range(first, first + self.private)]

    def train_dataloader(self) -> Batches:
        trainer = self.trainer
        rank, world_size = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        return _Fresh(self._fresh, self.size, self.batches, self.order_seed, rank, world_size)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"tasks": self.tasks, "shared": self.shared, "private": self.private}

    def _fresh(self, chance: np.random.Generator, n: int) -> Pair:
        x, positive = (part.to(self.train[0].dtype) for part in self.pairs(chance, n))
        return self._placed((x, positive))


class _Fresh(Batches):
    """`batches` batches in each epoch, drawn afresh from (order_seed, epoch, batch)."""

    def __init__(self, draw: Draw, size: int, batches: int, order_seed: int, rank: int, world_size: int) -> None:
        if size % world_size:
            raise ValueError(f"a batch of {size} samples cannot be shared equally by {world_size} workers")
        self.draw, self.batch_size, self.batches, self.order_seed = draw, size, batches, order_seed
        self.rank, self.world_size, self.epoch = rank, world_size, 0
        self.sampler, self.batch_sampler = self, None

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Pair]:
        epoch, share = self.epoch, self.batch_size // self.world_size
        for batch in range(self.batches):
            x, y = self.draw(np.random.default_rng([self.order_seed or 0, epoch, batch, *b"fresh"]), self.batch_size)
            part = slice(self.rank * share, (self.rank + 1) * share)
            yield x[part], y[part]
        self.epoch = epoch + 1
