"""Public image datasets, read with Hugging Face `datasets` (the extra `featurelab[public]`).

Loading never touches the network: rows come from parquet files under a data folder, or from the copy that `fetch`
(or any earlier `datasets.load_dataset`) left in the hub's cache. Only `fetch` downloads.
"""

import difflib
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .tensors import Pair, TensorData, stream


class DatasetMissing(Exception):
    """A public dataset is not on this machine (or `datasets` is not installed); one line says how to get it."""


@dataclass(frozen=True)
class Source:
    """Where a dataset lives on the hub, and how its columns become inputs and targets."""

    name: str
    repo_id: str
    config: str
    splits: MappingProxyType[str, int]  # split -> rows on the hub
    label: str  # column; `image` holds the picture
    size: int  # pictures are resized to size x size x 3
    targets: Literal["signs", "one_hot"]
    pixels: Literal["unit", "standardised"]  # [0, 1], or mean 0 and std 1 of each pixel over the training set
    classes: int
    balanced: bool  # subsets take as many rows of every class
    needs: str
    url: str  # licence and citation

    @property
    def columns(self) -> list[str]:
        return ["image", self.label]


_SOURCES = {
    source.name: source
    for source in (
        Source(
            name="celeba",
            repo_id="flwrlabs/celeba",
            config="img_align+identity+attr",
            splits=MappingProxyType({"train": 162_770, "valid": 19_867, "test": 19_962}),
            label="Eyeglasses",
            size=96,
            targets="signs",
            pixels="unit",
            classes=2,
            balanced=True,
            needs="12 GB of downloads; non-commercial research only",
            url="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        ),
        Source(
            name="svhn",
            repo_id="ufldl-stanford/svhn",
            config="cropped_digits",
            splits=MappingProxyType({"train": 73_257, "test": 26_032}),
            label="label",
            size=32,
            targets="one_hot",
            pixels="standardised",
            classes=10,
            balanced=False,
            needs="1.2 GB of downloads; non-commercial use only",
            url="http://ufldl.stanford.edu/housenumbers/",
        ),
    )
}


def available() -> list[Source]:
    """The datasets that can be fetched, by name."""
    return [_SOURCES[name] for name in sorted(_SOURCES)]


def source(name: str) -> Source:
    """The source called `name`; ValueError naming the nearest one otherwise."""
    if name not in _SOURCES:
        nearest = difflib.get_close_matches(name, _SOURCES, n=1, cutoff=0.0)[0]
        raise ValueError(f"no public dataset is called {name!r}; did you mean {nearest!r}? known: {sorted(_SOURCES)}")
    return _SOURCES[name]


def load(name: str, split: str, *, root: str | Path | None = None) -> Any:
    """The image and label columns of a split, as a memory-mapped `datasets.Dataset`.

    Rows come from `<root>/<name>/<split>*.parquet` where there are such files (root: the argument, else the environment
    variable FEATURELAB_DATA), otherwise from the hub's cache. Never downloads.
    Raises DatasetMissing if neither has it, ValueError for an unknown name or split or for files without these columns.
    """
    entry = source(name)
    if split not in entry.splits:
        raise ValueError(f"{name} has no split {split!r}; its splits are {list(entry.splits)}")
    datasets = _datasets(entry)
    datasets.disable_progress_bars()
    folder = root or os.environ.get("FEATURELAB_DATA")
    files = sorted(str(path) for path in Path(folder, name).glob(f"{split}*.parquet")) if folder else []
    if files:
        rows = datasets.load_dataset("parquet", data_files={split: files}, split=split)
        origin = f"{folder}/{name}"
    else:
        try:
            with _offline(datasets):
                rows = datasets.load_dataset(entry.repo_id, entry.config, split=split)
        except (OSError, ValueError) as error:
            raise _missing(entry) from error
        origin = entry.repo_id
    absent = [column for column in entry.columns if column not in rows.column_names]
    if absent:
        raise ValueError(f"{origin} has no column {absent[0]!r}; its columns are {rows.column_names}")
    return rows.select_columns(entry.columns).cast_column("image", datasets.Image())


def require(name: str, *, root: str | Path | None = None) -> None:
    """Raise DatasetMissing unless the splits that `PublicImages` reads are on this machine; reads no images."""
    for split in ("train", "test"):
        load(name, split, root=root)


def fetch(name: str) -> None:
    """Download every split into the hub's cache; DatasetMissing within seconds where the hub is out of reach."""
    entry = source(name)
    datasets = _datasets(entry)
    from huggingface_hub.utils import get_session

    try:  # the hub's client would retry an unreachable host for half a minute
        get_session().head(datasets.config.HF_ENDPOINT, timeout=5.0)
    except Exception as error:
        raise DatasetMissing(
            f"dataset '{name}' cannot be fetched: {datasets.config.HF_ENDPOINT} is out of reach from this machine;"
            f" fetch it where there is a network, or put parquet files into $FEATURELAB_DATA/{name}/"
        ) from error
    datasets.load_dataset(entry.repo_id, entry.config)


def check(name: str, *, root: str | Path | None = None) -> dict[str, Any]:
    """What is on this machine: `present`, and of each split found `rows`, `columns` (name -> type) and `digest`.

    The digest is the SHA-256 over the encoded images and the labels, in order. Where nothing is found, `missing`
    says how to get it.
    """
    entry = source(name)
    found: dict[str, Any] = {}
    missing = None
    for split in entry.splits:
        try:
            rows = load(name, split, root=root)
        except DatasetMissing as error:
            missing = str(error)
            continue
        columns = {column: str(feature) for column, feature in rows.features.items()}
        found[split] = {"rows": len(rows), "columns": columns, "digest": _digest(rows, entry)}
    report: dict[str, Any] = {"name": name, "present": bool(found), "splits": found}
    return report if found else report | {"missing": missing}


def labels(rows: Any, label: str) -> NDArray[np.int64]:
    """The label column (n,) as integers; images are not decoded."""
    return np.asarray(rows.select_columns([label]).with_format("numpy")[:][label]).astype(np.int64)


def images(rows: Any, size: int, *, chunk: int = 256) -> Tensor:
    """Decoded pictures, uint8 of shape (n, 3, size, size), resized (bilinear, both sides) where they have another size.

    Filled chunk by chunk: no more than `chunk` decoded pictures exist beside the result.
    """
    from PIL import Image

    pixels = torch.empty(len(rows), 3, size, size, dtype=torch.uint8)
    start = 0
    for batch in rows.select_columns(["image"]).iter(batch_size=chunk):
        for offset, picture in enumerate(batch["image"]):
            rgb = picture.convert("RGB")
            if rgb.size != (size, size):
                rgb = rgb.resize((size, size), Image.Resampling.BILINEAR)
            pixels[start + offset] = torch.from_numpy(np.array(rgb)).permute(2, 0, 1)
        start += len(batch["image"])
    return pixels


class PublicImages(TensorData):
    """A random subset of a public dataset, inputs flattened to (n, 3 * size * size), channels first.

    - `celeba` (fig. 13): eyeglasses or not, as many of each; 96x96x3 pixels in [0, 1]; labels +1 and -1.
    - `svhn` (fig. 14): cropped digits 32x32x3; each pixel standardised by the training subset's mean and standard
      deviation (constant pixels divided by 1); ten one-hot labels.

    Training rows come from the split `train`, test rows from `test`; `seed` chooses them. `image_shape` is (3, size,
    size). Raises DatasetMissing, or ValueError where a split has too few rows (of a class).
    """

    def __init__(
        self,
        name: str,
        n_train: int,
        n_test: int = 0,
        *,
        seed: int,
        root: str | Path | None = None,
        dtype: str = "float64",
        batch_size: int | None = None,
        order_seed: int = 0,
    ) -> None:
        self.source = entry = source(name)
        self.image_shape = (3, entry.size, entry.size)
        self.seed = seed
        kind = getattr(torch, dtype)
        train = _subset(entry, "train", n_train, seed, root, kind)
        test = _subset(entry, "test", n_test, seed, root, kind) if n_test else None
        if entry.pixels == "standardised":
            mean, spread = train[0].mean(0), train[0].std(0, correction=0)
            # by range: rounding gives a constant pixel a deviation of 1e-17, not 0
            spread[train[0].amax(0) == train[0].amin(0)] = 1.0
            for part in (train, test) if test else (train,):
                part[0].sub_(mean).div_(spread)
        super().__init__(train, test, batch_size=batch_size, order_seed=order_seed, dtype=dtype, name=name)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"repo_id": self.source.repo_id, "image_shape": self.image_shape, "seed": self.seed}


def _subset(entry: Source, split: str, n: int, seed: int, root: str | Path | None, dtype: torch.dtype) -> Pair:
    rows = load(entry.name, split, root=root)
    y = labels(rows, entry.label)
    order = stream(seed, split).permutation(len(y))
    if entry.balanced:
        if n % entry.classes:
            raise ValueError(f"a balanced subset of {entry.name} needs a multiple of {entry.classes} rows, got {n}")
        per_class = n // entry.classes
        order = np.concatenate([order[y[order] == label][:per_class] for label in range(entry.classes)])
        order = stream(seed, f"{split} order").permutation(order)
    chosen = order[:n]
    if len(chosen) < n:
        kind = "balanced rows" if entry.balanced else "rows"
        raise ValueError(f"split {split!r} of {entry.name} gives only {len(chosen)} {kind}, {n} were asked for")
    x = images(rows.select(chosen), entry.size).flatten(1).to(dtype).div_(255.0)
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(y[chosen]), entry.classes)
    return x, (one_hot if entry.targets == "one_hot" else 2 * one_hot[:, 1:] - 1).to(dtype)


def _digest(rows: Any, entry: Source) -> str:
    total = hashlib.sha256()
    for table in rows.with_format("arrow").iter(batch_size=1000):
        for picture in table["image"].combine_chunks().field("bytes"):
            total.update(picture.as_buffer())
        total.update(table[entry.label].to_numpy().astype("<i8").tobytes())
    return total.hexdigest()


def _missing(entry: Source) -> DatasetMissing:
    return DatasetMissing(
        f"dataset '{entry.name}' is not on this machine: run `featurelab data fetch {entry.name}` ({entry.needs}),"
        f" or put parquet files into $FEATURELAB_DATA/{entry.name}/"
    )


def _datasets(entry: Source) -> ModuleType:
    try:
        import datasets
    except ImportError as error:
        raise DatasetMissing(
            f"dataset '{entry.name}' needs the extra `public`: run `pip install 'featurelab[public]'`,"
            f" then `featurelab data fetch {entry.name}`"
        ) from error
    return datasets


@contextmanager
def _offline(datasets: ModuleType) -> Iterator[None]:
    """Let `datasets` look into its cache only, at once, whatever the network is like."""
    with patch.object(datasets.config, "HF_HUB_OFFLINE", True):
        yield
