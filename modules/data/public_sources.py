"""Public image datasets on the Hugging Face hub (the extra `featurelab[public]`): which there are, and their rows.

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
from jaxtyping import Int64
from numpy.typing import NDArray

from .public_names import CIFAR10, CIFAR100, CIFAR100_COARSE, DIGITS, FASHION, MISSPELT, PACS


class DatasetMissing(Exception):
    """A public dataset is not on this machine (or `datasets` is not installed); one line says how to get it."""


Targets = Literal["labels", "coarse", "one_hot", "signs"]
Pixels = Literal["unit", "per_pixel", "per_channel"]


@dataclass(frozen=True)
class Source:
    """Where a dataset lives on the hub, and how its columns become inputs and targets."""

    name: str
    repo_id: str
    config: str | None  # None: the repository has one
    splits: MappingProxyType[str, int]  # split -> rows on the hub
    label: str  # column
    size: int  # pictures are resized to size x size
    classes: int
    needs: str
    url: str  # licence and citation
    image: str = "image"  # column; `load` calls it `image`
    test: str = "test"  # the split that stands for the test set
    channels: int = 3
    targets: Targets = "labels"
    pixels: Pixels = "unit"
    balanced: bool = False  # subsets take as many rows of every class
    names: tuple[str, ...] | None = None  # of the classes, in the order of the labels
    coarse: str | None = None  # column of super-classes
    coarse_names: tuple[str, ...] | None = None
    domain: str | None = None  # column
    domains: tuple[str, ...] = ()  # in the order in which papers hold them out

    @property
    def columns(self) -> list[str]:
        return ["image", self.label, *(column for column in (self.coarse, self.domain) if column)]


def _splits(**rows: int) -> MappingProxyType[str, int]:
    return MappingProxyType(rows)


_SOURCES = {
    source.name: source
    for source in (
        Source(
            name="cars196",
            repo_id="tanganke/stanford_cars",
            config=None,
            splits=_splits(train=8_144, test=8_041),
            label="label",
            size=224,
            classes=196,
            needs="6 GB of downloads; non-commercial research only",
            url="https://doi.org/10.1109/ICCVW.2013.77",
        ),
        Source(
            name="celeba",
            repo_id="flwrlabs/celeba",
            config="img_align+identity+attr",
            splits=_splits(train=162_770, valid=19_867, test=19_962),
            label="Eyeglasses",
            size=96,
            targets="signs",
            classes=2,
            balanced=True,
            needs="12 GB of downloads; non-commercial research only",
            url="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        ),
        Source(
            name="cifar10",
            repo_id="uoft-cs/cifar10",
            config="plain_text",
            splits=_splits(train=50_000, test=10_000),
            image="img",
            label="label",
            size=32,
            classes=10,
            names=CIFAR10,
            needs="0.15 GB of downloads; licence not stated",
            url="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        Source(
            name="cifar100",
            repo_id="uoft-cs/cifar100",
            config="cifar100",
            splits=_splits(train=50_000, test=10_000),
            image="img",
            label="fine_label",
            size=32,
            classes=100,
            names=CIFAR100,
            coarse="coarse_label",
            coarse_names=tuple(CIFAR100_COARSE),
            needs="0.15 GB of downloads; licence not stated",
            url="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        Source(
            name="cub200",
            repo_id="bentrevett/caltech-ucsd-birds-200-2011",
            config=None,
            splits=_splits(train=5_994, test=5_794),
            label="label",
            size=224,
            classes=200,
            needs="1.2 GB of downloads; non-commercial research only",
            url="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        ),
        Source(
            name="fashion_mnist",
            repo_id="zalando-datasets/fashion_mnist",
            config="fashion_mnist",
            splits=_splits(train=60_000, test=10_000),
            label="label",
            size=28,
            channels=1,
            classes=10,
            names=FASHION,
            needs="0.04 GB of downloads; MIT licence",
            url="https://github.com/zalandoresearch/fashion-mnist",
        ),
        Source(
            name="mnist",
            repo_id="ylecun/mnist",
            config="mnist",
            splits=_splits(train=60_000, test=10_000),
            label="label",
            size=28,
            channels=1,
            classes=10,
            names=DIGITS,
            needs="0.02 GB of downloads; licence CC BY-SA 3.0",
            url="http://yann.lecun.com/exdb/mnist/",
        ),
        Source(
            name="pacs",
            repo_id="flwrlabs/pacs",
            config=None,
            splits=_splits(train=9_991),
            test="train",
            label="label",
            size=224,
            classes=7,
            names=PACS,
            domain="domain",
            domains=("art_painting", "cartoon", "photo", "sketch"),
            needs="0.2 GB of downloads; licence not stated",
            url="https://arxiv.org/abs/1710.03077",
        ),
        Source(
            name="svhn",
            repo_id="ufldl-stanford/svhn",
            config="cropped_digits",
            splits=_splits(train=73_257, test=26_032),
            label="label",
            size=32,
            targets="one_hot",
            pixels="per_pixel",
            classes=10,
            names=DIGITS,
            needs="1.2 GB of downloads; non-commercial use only",
            url="http://ufldl.stanford.edu/housenumbers/",
        ),
        Source(
            name="tiny_imagenet",
            repo_id="zh-plus/tiny-imagenet",
            config=None,
            splits=_splits(train=100_000, valid=10_000),
            test="valid",
            label="label",
            size=64,
            classes=200,
            needs="0.16 GB of downloads; the terms of ImageNet, non-commercial research only",
            url="https://image-net.org/download.php",
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
    """The image and label columns of a split, as a memory-mapped `datasets.Dataset`; pictures stand in `image`.

    Rows come from `<root>/<name>/<split>*.parquet` where there are such files (root: the argument, else the environment
    variable FEATURELAB_DATA), otherwise from the hub's cache. Never downloads.
    Raises DatasetMissing if neither has it; ValueError for an unknown name or split, and for files without these
    columns or whose classes are not ours in number, name or order.
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
    if entry.image != "image" and entry.image in rows.column_names:
        rows = rows.rename_column(entry.image, "image")
    absent = [column for column in entry.columns if column not in rows.column_names]
    if absent:
        raise ValueError(f"{origin} has no column {absent[0]!r}; its columns are {rows.column_names}")
    _agree(rows.features[entry.label], entry.names, entry.classes, f"{origin}, {entry.label}")
    if entry.coarse:
        coarse = entry.coarse_names or ()
        _agree(rows.features[entry.coarse], coarse, len(coarse), f"{origin}, {entry.coarse}")
    if entry.domain:
        _agree(rows.features[entry.domain], entry.domains, len(entry.domains), f"{origin}, {entry.domain}")
    return rows.select_columns(entry.columns).cast_column("image", datasets.Image())


def require(name: str, *, root: str | Path | None = None) -> None:
    """Raise DatasetMissing unless the splits that `PublicImages` reads are on this machine; reads no images."""
    for split in ("train", source(name).test):
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
        found[split] = {"rows": len(rows), "columns": columns, "digest": digest(rows, entry)}
    report: dict[str, Any] = {"name": name, "present": bool(found), "splits": found}
    return report if found else report | {"missing": missing}


def labels(rows: Any, label: str) -> Int64[NDArray[np.int64], " n"]:
    """The label column (n,) as integers; images are not decoded."""
    return np.asarray(rows.select_columns([label]).with_format("numpy")[:][label]).astype(np.int64)


def domains(rows: Any, entry: Source) -> Int64[NDArray[np.int64], " n"]:
    """The place (n,) of each row's domain among `entry.domains`; ValueError for a domain that is none of them.

    Numbers of a class column are places already, as `load` has checked; names may be written otherwise than ours in
    case and signs.
    """
    column = rows.select_columns([entry.domain])
    if hasattr(column.features[entry.domain], "names"):
        return labels(rows, entry.domain or "")
    found, owners = np.unique(np.asarray(column.with_format("numpy")[:][entry.domain]), return_inverse=True)
    places = {_plain(name): place for place, name in enumerate(entry.domains)}
    strange = [name for name in found if _plain(str(name)) not in places]
    if strange:
        raise ValueError(f"{entry.name}: {str(strange[0])!r} is none of its domains {list(entry.domains)}")
    return np.array([places[_plain(str(name))] for name in found], dtype=np.int64)[owners]


def digest(rows: Any, entry: Source) -> str:
    """SHA-256 (hex) over the encoded images and the labels of these rows, in order."""
    total = hashlib.sha256()
    for table in rows.with_format("arrow").iter(batch_size=1000):
        for picture in table["image"].combine_chunks().field("bytes"):
            total.update(picture.as_buffer())
        total.update(table[entry.label].to_numpy().astype("<i8").tobytes())
    return total.hexdigest()


def _agree(feature: Any, names: tuple[str, ...] | None, classes: int, where: str) -> None:
    """ValueError where a column names its classes otherwise than we do; a plain column of integers names none."""
    found = getattr(feature, "names", None)
    if found is None:
        return
    if len(found) != classes:
        raise ValueError(f"{where}: {len(found)} classes where {classes} are expected")
    if names is None:
        return
    for index, (theirs, ours) in enumerate(zip(found, names, strict=True)):
        if _plain(MISSPELT.get(theirs, theirs)) != _plain(ours):
            raise ValueError(f"{where}: class {index} is {theirs!r} where {ours!r} is expected")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


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
    found: ModuleType = datasets
    return found


@contextmanager
def _offline(datasets: ModuleType) -> Iterator[None]:
    """Let `datasets` look into its cache only, at once, whatever the network is like."""
    with patch.object(datasets.config, "HF_HUB_OFFLINE", True):
        yield
