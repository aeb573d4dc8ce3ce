"""Public images that do not fit in memory, decoded batch by batch from memory-mapped rows."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Float32, Int64
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..core.permuted import label_order
from ..core.tensors import stream
from .sources import dataset_source, digest, labels, load_split

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Key = tuple[int, int, int]  # row, epoch, place in the epoch


class BalancedBatches:
    """Batches of `per_class` samples of each of `classes` classes, for metric learning.

    Every batch draws its classes, and the samples of each, without repetition (with repetition if a class has fewer
    than `per_class`). An epoch has n // (classes * per_class) batches, at least one, drawn from (order_seed, epoch). Of
    W workers, worker `rank` gets the rank-th of W equal shares of every batch. Yields lists of keys (row, epoch,
    place).

    Raises ValueError if there are fewer classes than `classes`, or a batch does not divide into equal shares.
    """

    def __init__(
        self,
        y: Int64[np.ndarray, " n"],
        classes: int,
        per_class: int,
        *,
        order_seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        known, self._of = np.unique(y), {}
        if classes < 1 or per_class < 1 or len(known) < classes:
            raise ValueError(f"need {classes} classes of {per_class} samples, but there are only {len(known)} classes")
        if classes * per_class % world_size:
            raise ValueError(f"a batch of {classes * per_class} samples cannot be shared equally by {world_size}")
        self._of = {label: np.flatnonzero(y == label) for label in known.tolist()}
        self._length = max(1, len(y) // (classes * per_class))
        self.classes, self.per_class = classes, per_class
        self.order_seed, self.rank, self.world_size = order_seed, rank, world_size
        self.epoch = 0
        self.sampler = self  # where Lightning looks for `set_epoch`

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[Key]]:
        epoch, size = self.epoch, self.classes * self.per_class
        rng = np.random.default_rng([self.order_seed, epoch, *b"balanced"])
        for batch in range(self._length):
            rows: list[int] = []
            for label in rng.choice(list(self._of), self.classes, replace=False).tolist():
                own = self._of[label]
                rows += rng.choice(own, self.per_class, replace=len(own) < self.per_class).tolist()
            share = size // self.world_size
            begin = self.rank * share
            yield [(rows[place], epoch, batch * size + place) for place in range(begin, begin + share)]
        self.epoch = epoch + 1


class ShuffledBatches:
    """Every row once an epoch, in an order drawn from (order_seed, epoch), or in their own order (order_seed=None).

    The last batch is shorter if `batch_size` does not divide n. Workers share batches as in `Batches`. Raises
    ValueError if a batch does not divide into equal shares.
    """

    def __init__(self, n: int, batch_size: int, *, order_seed: int | None, rank: int = 0, world_size: int = 1) -> None:
        for size in (min(batch_size, n), n % batch_size):
            if size % world_size:
                raise ValueError(f"a batch of {size} samples cannot be shared equally by {world_size} workers")
        self.n, self.batch_size, self.order_seed = n, batch_size, order_seed
        self.rank, self.world_size = rank, world_size
        self.epoch = 0
        self.sampler = self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-self.n // self.batch_size)

    def __iter__(self) -> Iterator[list[Key]]:
        epoch = self.epoch
        order = np.arange(self.n)
        if self.order_seed is not None:
            order = np.random.default_rng([self.order_seed, epoch]).permutation(self.n)
        for start in range(0, self.n, self.batch_size):
            size = min(self.batch_size, self.n - start)
            share = size // self.world_size
            begin = start + self.rank * share
            yield [(int(order[place]), epoch, place) for place in range(begin, begin + share)]
        self.epoch = epoch + 1


class Decoded(Dataset[tuple[Tensor, int]]):
    """The picture and the label of a key (row, epoch, place): standardised as for ImageNet, (3, size, size), float32.

    With `crop_seed=None` the shorter side is resized to `resize` (bilinear) and the centre is cut out. Otherwise a
    random part with a share `scale` or more of the area and an aspect ratio of 3/4 to 4/3 is resized, and mirrored with
    probability 1/2, all drawn from (crop_seed, epoch, place): the same bits for any number of loader processes.
    """

    def __init__(
        self,
        rows: Any,
        y: Int64[np.ndarray, " n"],
        *,
        size: int,
        resize: int,
        crop_seed: int | None,
        scale: float = 0.08,
    ) -> None:
        self.rows, self.y = rows, y
        self.size, self.resize, self.crop_seed, self.scale = size, resize, crop_seed, scale
        self._mean = torch.tensor(IMAGENET_MEAN)[:, None, None]
        self._std = torch.tensor(IMAGENET_STD)[:, None, None]

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, key: Key) -> tuple[Float32[Tensor, "3 {self.size} {self.size}"], int]:
        from PIL import Image

        row, epoch, place = key
        picture = self.rows[row]["image"].convert("RGB")
        width, height = picture.size
        mirrored = False
        if self.crop_seed is None:
            box = _middle(width, height, self.size, self.resize)
        else:
            rng = np.random.default_rng([self.crop_seed, epoch, place, *b"crop"])
            box = _random_part(width, height, self.scale, rng)
            mirrored = bool(rng.random() < 0.5)
        shown = picture.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        pixels = torch.from_numpy(np.array(shown)).permute(2, 0, 1)
        pixels = pixels.flip(2) if mirrored else pixels
        return (pixels.float() / 255 - self._mean) / self._std, int(self.y[row])


class StreamedImages(pl.LightningDataModule):
    """Rows of a public dataset as a data module whose memory does not grow with their number.

    - `train_classes` and `test_classes` keep only these classes, relabelled 0, 1, ... in the order given (None: all).
      With `pooled` both sets come from all splits together, selected by class: the usual protocol of metric learning,
      in which training and test classes are disjoint and each set has its own labels.
    - `per_class` keeps at most so many rows of each training class, the first ones.
    - Training batches are random crops, mirrored at random, unless `augment` is False; all others are centre crops.
    - `balanced=(c, m)` trains on batches of m samples of each of c classes, not on `batch_size` rows in turn.

    `labels` are the integer labels of both sets. Batches are (x, y) with x (b, 3, size, size) float32 and y (b,) int64.
    The order depends only on `order_seed` and the epoch. Raises DatasetMissing; ValueError for classes that do not
    exist.
    """

    def __init__(
        self,
        name: str,
        *,
        train_classes: Sequence[int] | None = None,
        test_classes: Sequence[int] | None = None,
        pooled: bool = False,
        per_class: int | None = None,
        size: int = 224,
        resize: int = 256,
        augment: bool = True,
        scale: float = 0.08,
        batch_size: int = 64,
        balanced: tuple[int, int] | None = None,
        order_seed: int = 0,
        workers: int = 0,
        root: str | Path | None = None,
    ) -> None:
        super().__init__()
        if batch_size < 1 or not 0 < size <= resize or not 0 < scale <= 1:
            raise ValueError(f"need batch_size >= 1, size <= resize, 0 < scale <= 1: {batch_size}, {size}, {resize}")
        self.source = entry = dataset_source(name)
        self.name = name
        self.size, self.resize, self.scale, self.augment = size, resize, scale, augment
        self.batch_size, self.balanced, self.order_seed, self.workers = batch_size, balanced, order_seed, workers
        self.image_shape = (3, size, size)
        parts: dict[str, tuple[str, ...]] = {"train": ("train",), "test": (entry.test,)}
        if pooled:
            parts = dict.fromkeys(parts, tuple(entry.splits))
        self._sets = {
            part: rows_of_classes(entry.name, splits, entry.label, entry.classes, classes, root, per_class=limit)
            for (part, splits), classes, limit in zip(
                parts.items(), (train_classes, test_classes), (per_class, None), strict=True
            )
        }
        rows, y = self._sets["train"]
        if (order := label_order(len(y))) is not None:
            self._sets["train"] = rows, y[order]

    @property
    def labels(self) -> tuple[Int64[Tensor, " n_train"], Int64[Tensor, " n_test"]]:
        """Integer labels of the training and the test set, in the order of their rows."""
        train, test = (torch.from_numpy(self._sets[part][1]) for part in ("train", "test"))
        return train, test

    def train_dataloader(self) -> DataLoader[Any]:
        trainer = self.trainer
        rank, world_size = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        return self.loader("train", shuffled=True, rank=rank, world_size=world_size)

    def val_dataloader(self) -> DataLoader[Any]:
        """The test set in its own order; every worker evaluates all of it."""
        return self.loader("test")

    def test_dataloader(self) -> DataLoader[Any]:
        return self.loader("test")

    def loader(
        self, part: Literal["train", "test"], *, shuffled: bool = False, rank: int = 0, world_size: int = 1
    ) -> DataLoader[Any]:
        """Batches of a set: shuffled as for training, or in its own order and without random crops, for measuring."""
        rows, y = self._sets[part]
        seed = self.order_seed if shuffled else None
        batches: BalancedBatches | ShuffledBatches
        if shuffled and self.balanced is not None:
            batches = BalancedBatches(y, *self.balanced, order_seed=self.order_seed, rank=rank, world_size=world_size)
        else:
            batches = ShuffledBatches(len(y), self.batch_size, order_seed=seed, rank=rank, world_size=world_size)
        crop_seed = seed if self.augment else None
        decoded = Decoded(rows, y, size=self.size, resize=self.resize, crop_seed=crop_seed, scale=self.scale)
        return DataLoader(decoded, batch_sampler=batches, num_workers=self.workers)

    def digest(self) -> str:
        """SHA-256 (hex) of the encoded pictures and labels of both sets and the size at which they are shown."""
        total = hashlib.sha256(f"{self.size},{self.resize}".encode())
        for rows, y in self._sets.values():
            total.update(digest(rows, self.source).encode())
            total.update(y.astype("<i8").tobytes())
        return total.hexdigest()

    def describe(self) -> dict[str, Any]:
        train, test = self.labels
        return {
            "name": self.name,
            "repo_id": self.source.repo_id,
            "n_train": len(train),
            "n_test": len(test),
            "dim": 3 * self.size**2,
            "outputs": int(train.max()) + 1,
            "image_shape": self.image_shape,
            "dtype": "float32",
        }


def metric_split(classes: int) -> tuple[range, range]:
    """Training and test classes of metric learning: the first half (rounded down) and the rest."""
    return range(classes // 2), range(classes // 2, classes)


def random_classes(seed: int, known: Sequence[int], count: int, name: str = "classes") -> list[int]:
    """`count` distinct classes of `known`, drawn from the stream `name` of `seed`."""
    if not 0 < count <= len(known):
        raise ValueError(f"need {count} classes, but there are only {len(known)}")
    chosen: list[int] = stream(seed, name).permutation(np.asarray(known))[:count].tolist()
    return chosen


def rows_of_classes(
    name: str,
    splits: Sequence[str],
    label: str,
    count: int,
    classes: Sequence[int] | None,
    root: str | Path | None,
    *,
    per_class: int | None,
) -> tuple[Any, NDArray[np.int64]]:
    """The rows of these classes in the splits, and their new labels."""
    tables = [load_split(name, split, root=root) for split in splits]
    if len(tables) > 1:
        import datasets

        table = datasets.concatenate_datasets(tables)
    else:
        table = tables[0]
    y = labels(table, label)
    wanted = list(range(count)) if classes is None else [int(c) for c in classes]
    missing = [c for c in wanted if not (y == c).any()] if classes is not None else []
    if missing or len(set(wanted)) != len(wanted):
        raise ValueError(f"{name}: no rows of class {missing[0]}" if missing else f"{name}: a class is named twice")
    by_class = [np.flatnonzero(y == c)[:per_class] for c in wanted]
    new = np.concatenate([np.full(len(own), index, dtype=np.int64) for index, own in enumerate(by_class)])
    order = np.argsort(np.concatenate(by_class), kind="stable")  # the order of the dataset
    return table.select(np.concatenate(by_class)[order]), new[order]


def _middle(width: int, height: int, size: int, resize: int) -> tuple[float, float, float, float]:
    """The part of the picture that becomes its centre size x size after its shorter side is resized to `resize`."""
    side = size * min(width, height) / resize
    return (width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2


def _random_part(width: int, height: int, scale: float, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """A part of the picture with a share `scale` to 1 of its area and an aspect ratio of 3/4 to 4/3."""
    for _ in range(10):
        area = width * height * rng.uniform(scale, 1)
        proportion = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        across, down = (area * proportion) ** 0.5, (area / proportion) ** 0.5
        if across <= width and down <= height:
            left, top = rng.uniform(0, width - across), rng.uniform(0, height - down)
            return left, top, left + across, top + down
    return _middle(width, height, min(width, height), min(width, height))
