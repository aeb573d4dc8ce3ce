"""Use any torch `DataLoader` as the data of a trial, with a repeatable order, matching dtypes and a digest."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from .permuted import label_order

MOST_READ = 1000  # samples of a dataset that have to be read one by one for its digest


class LoaderData(pl.LightningDataModule):
    """The batches of `loader` as a data module whose epochs can each be repeated.

    A loader that shuffles draws the order of epoch e from (order_seed, e), or from (seed of its own generator, e) if it
    has one; any sampler with a `generator` works. Floating-point tensors of a batch are cast to `dtype`. Each of W
    workers gets its share of every batch, so together they see the batches of one.

    `inexact` says why a fit cannot resume exactly, and is empty if it can. Raises ValueError within `permuted_labels`,
    which cannot reach the labels inside a loader.
    """

    def __init__(
        self, loader: "DataLoader[Any]", *, order_seed: int = 0, dtype: torch.dtype | None = None, name: str = ""
    ) -> None:
        super().__init__()
        if label_order(1) is not None:
            raise ValueError(
                "control=permuted_labels cannot permute labels inside a DataLoader: give data.TensorData, or declare"
                ' controls=("untrained",)'
            )
        self.loader, self.order_seed, self.dtype = loader, order_seed, dtype
        self.name = name or type(loader.dataset).__name__
        self.inexact = ""
        if isinstance(loader.dataset, IterableDataset):
            self.inexact = "an iterable dataset cannot start in the middle"
        elif loader.persistent_workers:
            self.inexact = "persistent_workers=True keeps random states in worker processes"

    def train_dataloader(self) -> "Epochs":
        rank, world_size = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        return Epochs(self.loader, self.order_seed, self.dtype, rank, world_size)

    def digest(self) -> str:
        return self.describe()["digest"]  # type: ignore[no-any-return]

    def describe(self) -> dict[str, Any]:
        """`name`, `batch_size`, `n_train` if known, and the digest with what it covers: see `digest_of`."""
        facts = {"name": self.name, "batch_size": self.loader.batch_size}
        if not isinstance(self.loader.dataset, IterableDataset):
            facts["n_train"] = len(self.loader.dataset)  # type: ignore[arg-type]
        digest, covers = digest_of(self.loader.dataset)
        return facts | {"digest": digest, "digest_covers": covers}


class Epochs:
    """The batches of a `DataLoader`, with random numbers of its own for each epoch; see `LoaderData`."""

    def __init__(
        self, loader: "DataLoader[Any]", order_seed: int, dtype: torch.dtype | None, rank: int, world_size: int
    ) -> None:
        self.loader, self.dtype, self.rank, self.world_size = loader, dtype, rank, world_size
        own = [source for source in _drawing(loader) if source.generator is not None]
        self._seed = own[0].generator.initial_seed() if own else order_seed
        self.epoch = 0
        self.sampler, self.batch_sampler = self, None  # where Lightning looks for `set_epoch`

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        epoch = self.epoch
        seed = int(np.random.default_rng([self._seed, epoch, *b"loader"]).integers(2**63))
        generator = torch.Generator().manual_seed(seed)
        for sampler in (self.loader.sampler, self.loader.batch_sampler):
            if callable(set_epoch := getattr(sampler, "set_epoch", None)):
                set_epoch(epoch)
        theirs = [(source, source.generator) for source in _drawing(self.loader)]
        try:
            for source, _ in theirs:
                source.generator = generator
            for batch in self.loader:
                yield apply_to_collection(batch, Tensor, self._given)
        finally:
            for source, own in theirs:
                source.generator = own
        self.epoch = epoch + 1

    def _given(self, part: Tensor) -> Tensor:
        if self.world_size > 1:
            if part.ndim == 0 or len(part) % self.world_size:
                raise ValueError(
                    f"a batch of shape {tuple(part.shape)} cannot be shared equally by {self.world_size} workers:"
                    f" choose a batch_size that is a multiple of {self.world_size}, and drop_last=True"
                )
            part = part.chunk(self.world_size)[self.rank]
        return part.to(self.dtype) if self.dtype is not None and part.is_floating_point() else part


def _drawing(loader: "DataLoader[Any]") -> list[Any]:
    """The parts of a loader that draw random numbers: the loader (seeds of worker processes) and its samplers."""
    samplers = [loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)]
    return [*(part for part in samplers if hasattr(part, "generator")), loader]


def digest_of(dataset: Any) -> tuple[str, str]:
    """A digest of at most 36 characters of the contents of a dataset, and a description of what it covers.

    It covers all of a dataset of tensors in memory, and `MOST_READ` evenly spaced samples of others. Where no digest is
    possible, it is "not digested: <why>": for iterable datasets, samples that differ between two readings, and samples
    that hold anything but tensors, arrays, pictures, text, numbers, and lists and mappings of these.
    """
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return "not digested: an iterable dataset", "nothing"
    total = hashlib.sha256()
    try:
        if isinstance(dataset, Subset) and isinstance(dataset.dataset, TensorDataset):
            _add(total, [list(dataset.indices), *dataset.dataset.tensors])
            return total.hexdigest()[:32], f"all {len(dataset)} samples"
        if isinstance(dataset, TensorDataset):
            _add(total, list(dataset.tensors))
            return total.hexdigest()[:32], f"all {len(dataset)} samples"
        n = len(dataset)
        chosen = np.unique(np.linspace(0, n - 1, min(n, MOST_READ)).round().astype(int)).tolist() if n else []
        with isolate_rng():
            first = [_read(dataset, index, hashlib.sha256()).digest() for index in chosen[:1] * 2]
            if len(set(first)) > 1:
                return "not digested: samples are random", "nothing"
            total.update(str(n).encode())
            for index in chosen:
                _read(dataset, index, total)
    except _Unknown as unknown:
        return f"not digested: a {unknown}"[:36], "nothing"
    return total.hexdigest()[:32], f"{'all ' if len(chosen) == n else f'{len(chosen)} of '}{n} samples"


class _Unknown(Exception):
    """A value for which no digest is defined."""


def _read(dataset: Any, index: int, total: Any) -> Any:
    """Add a sample, read with seeded global generators, so that random augmentation gives the same each time."""
    random.seed(index)
    np.random.seed(index % 2**32)  # noqa: NPY002 - what a stranger's dataset may use
    torch.default_generator.manual_seed(index)  # torch.manual_seed writes a stack trace for each kind of device first
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(index)
    _add(total, dataset[index])
    return total


def _add(total: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        total.update(f"{tuple(value.shape)}{value.dtype}".encode())
        total.update(value.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().tobytes())
    elif isinstance(value, str | bytes | bool | int | float | None):
        total.update(f"{type(value).__name__} {value!r};".encode(errors="backslashreplace"))
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            total.update(f"{key}:".encode(errors="backslashreplace"))
            _add(total, value[key])
    elif isinstance(value, list | tuple):
        total.update(f"[{len(value)}]".encode())
        for part in value:
            _add(total, part)
    elif hasattr(value, "__array_interface__") or isinstance(value, np.generic):  # arrays, and pictures of Pillow
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise _Unknown(f"{type(value).__name__} of objects")
        total.update(f"{array.shape}{array.dtype}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    else:
        raise _Unknown(type(value).__name__)
