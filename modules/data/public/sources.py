"""Public datasets on the Hugging Face hub (the extra `feature-learning-lab[public]`) and their rows.

Loading never touches the network: rows come from parquet files under a data folder, or from the copy that
`fetch_dataset` (or any earlier `datasets.load_dataset`) left in the hub's cache. Only `fetch_dataset` downloads.
"""

import difflib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from jaxtyping import Int64

from .catalogue import SOURCES as PICTURES
from .catalogue import DatasetSource as DatasetSource
from .files import DatasetMissing as DatasetMissing
from .files import DatasetRefused as DatasetRefused
from .files import check_columns, tables
from .names import MISSPELT
from .text_catalogue import TEXTS

SOURCES = PICTURES | TEXTS


def available_datasets() -> list[DatasetSource]:
    """The datasets that can be fetched, sorted by name."""
    return [SOURCES[name] for name in sorted(SOURCES)]


def dataset_source(name: str) -> DatasetSource:
    """The source of the dataset `name`. Raises ValueError, which suggests the nearest name, for an unknown one."""
    if name not in SOURCES:
        nearest = difflib.get_close_matches(name, SOURCES, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown public dataset {name!r}; did you mean {nearest!r}? Known: {', '.join(sorted(SOURCES))}"
        )
    return SOURCES[name]


def load_split(name: str, split: str, *, root: str | Path | None = None) -> Any:
    """The used columns of a split, as a memory-mapped `datasets.Dataset`; the column of pictures is called `image`.

    Rows come from `<root>/<name>/<split>*.parquet` if there are such files (root: the argument, else the environment
    variable FEATURELAB_DATA), which a process reads once, otherwise from the hub's cache. Never downloads. Texts
    without classes may also come from `<split>*.jsonl` and, if they have one column, from any `*.txt`, one row each.

    Raises DatasetMissing if neither has the split; ValueError for an unknown name or split; DatasetRefused, a subclass
    of both, for files that cannot be read, lack these columns, have labels that are not classes, or whose classes
    differ from the known ones in number, name or order.
    """
    entry = dataset_source(name)
    if split not in entry.splits:
        raise ValueError(f"{name} has no split {split!r}; its splits are {list(entry.splits)}")
    datasets = _datasets(entry)
    datasets.disable_progress_bars()
    folder = root or os.environ.get("FEATURELAB_DATA")
    kind, files = _files(entry, split, folder)
    if kind == "parquet" and files:
        return _of_files(name, split, f"{folder}/{name}", tuple((file, *_version(file)) for file in files))
    if files:
        return _checked(tables(entry, split, kind, files, datasets), entry, split, f"{folder}/{name}")
    if entry.repo_id is None:
        raise _missing(entry)
    return _checked(_cached(entry, split, datasets), entry, split, entry.repo_id)


@lru_cache(maxsize=16)  # what is kept is a map of a file in memory, and the trials of a sweep read the same few
def _of_files(name: str, split: str, origin: str, files: tuple[tuple[str, int, int, int], ...]) -> Any:
    entry = dataset_source(name)
    rows = tables(entry, split, "parquet", [file for file, *_ in files], _datasets(entry))
    return _checked(rows, entry, split, origin)


def _version(file: str) -> tuple[int, int, int]:
    """What differs when a file is another: its inode, size and time of change."""
    found = os.stat(file) if os.path.exists(file) else os.lstat(file)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _checked(rows: Any, entry: DatasetSource, split: str, origin: str) -> Any:
    """The used columns, once they are found to be those of this dataset."""
    if entry.image != "image" and entry.image in rows.column_names and "image" not in rows.column_names:
        rows = rows.rename_column(entry.image, "image")
    absent = [column for column in entry.columns if column not in rows.column_names]
    if absent:
        raise DatasetRefused(f"{origin} has no column {absent[0]!r}; its columns are {rows.column_names[:20]}")
    if entry.label:
        _agree(rows.features[entry.label], entry.names, entry.classes, f"{origin}, {entry.label}", entry.known)
    if entry.coarse:
        coarse = entry.coarse_names or ()
        _agree(rows.features[entry.coarse], coarse, len(coarse), f"{origin}, {entry.coarse}")
    if entry.domain:
        _agree(rows.features[entry.domain], entry.domains, len(entry.domains), f"{origin}, {entry.domain}")
    rows = rows.select_columns(entry.columns)
    check_columns(rows, entry, split, origin)
    if entry.texts:
        return rows
    from .picture_files import Pictures

    return rows.cast_column("image", Pictures())


def _cached(entry: DatasetSource, split: str, datasets: ModuleType) -> Any:
    """The rows of a split in the hub's cache. A folder of that name in the working directory is ignored."""
    try:
        with _offline(datasets):
            return datasets.load_dataset(f"hf://datasets/{entry.repo_id}", entry.config, split=split)
    except (OSError, ValueError) as error:
        raise _missing(entry) from error


def require_dataset(name: str, *, root: str | Path | None = None) -> None:
    """Raise DatasetMissing unless the training and the test split are on this machine. Reads no rows."""
    entry = dataset_source(name)
    for split in ("train", entry.test):
        if split in entry.splits:
            load_split(name, split, root=root)


def fetch_dataset(name: str) -> None:
    """Download every split into the hub's cache. Raises DatasetMissing within seconds if the hub cannot be reached."""
    entry = dataset_source(name)
    datasets = _datasets(entry)
    if entry.repo_id is None:
        raise _missing(entry)
    from huggingface_hub.utils import get_session

    try:  # the hub's client would retry an unreachable host for half a minute
        get_session().head(datasets.config.HF_ENDPOINT, timeout=5.0)
    except Exception as error:
        raise DatasetMissing(
            f"dataset '{name}' cannot be fetched: {datasets.config.HF_ENDPOINT} cannot be reached from this machine;"
            f" fetch it on a machine with a network, or put parquet files into $FEATURELAB_DATA/{name}/"
        ) from error
    datasets.load_dataset(f"hf://datasets/{entry.repo_id}", entry.config)


def check_dataset(name: str, *, root: str | Path | None = None) -> dict[str, Any]:
    """Describe what is on this machine: `present`, and by split `rows`, `columns` (name -> type) and `digest`.

    The digest is the SHA-256 of the encoded images, or the texts, and the labels, in order. If nothing is found,
    `missing` says how to get it. Raises DatasetRefused for files that do not hold the dataset; the header of every
    picture is read.
    """
    entry = dataset_source(name)
    splits: dict[str, Any] = {}
    missing = None
    for split in entry.splits:
        try:
            rows = load_split(name, split, root=root)
        except DatasetRefused:
            raise
        except DatasetMissing as error:
            missing = str(error)
            continue
        if not entry.texts:
            _check_pictures(rows, f"{name}, {split}")
        columns = {column: str(feature) for column, feature in rows.features.items()}
        splits[split] = {"rows": len(rows), "columns": columns, "digest": digest(rows, entry)}
    report: dict[str, Any] = {"name": name, "present": bool(splits), "splits": splits}
    return report if splits else report | {"missing": missing}


def _check_pictures(rows: Any, where: str) -> None:
    from datasets import Image

    from .picture_files import opened

    row = 0
    try:
        for batch in rows.select_columns(["image"]).cast_column("image", Image(decode=False)).iter(batch_size=1000):
            for cell in batch["image"]:
                opened(cell)
                row += 1
    except DatasetRefused as error:
        raise DatasetRefused(f"{where}, row {row}: {error}") from error


def labels(rows: Any, label: str) -> Int64[np.ndarray, " n"]:
    """The label column (n,) as integers, without decoding images."""
    return np.asarray(rows.select_columns([label]).with_format("numpy")[:][label]).astype(np.int64)


def domains(rows: Any, entry: DatasetSource) -> Int64[np.ndarray, " n"]:
    """The position (n,) of each row's domain in `entry.domains`; ValueError for an unknown domain.

    Numbers of a class column are positions already, which `load_split` has checked; names may differ from ours in case
    and punctuation.
    """
    column = rows.select_columns([entry.domain])
    if hasattr(column.features[entry.domain], "names"):
        return labels(rows, entry.domain or "")
    names, owners = np.unique(np.asarray(column.with_format("numpy")[:][entry.domain]), return_inverse=True)
    places = {_plain(name): place for place, name in enumerate(entry.domains)}
    strange = [name for name in names if _plain(str(name)) not in places]
    if strange:
        raise ValueError(f"{entry.name}: {str(strange[0])!r} is not one of its domains {list(entry.domains)}")
    return np.array([places[_plain(str(name))] for name in names], dtype=np.int64)[owners]


def from_folders(name: str, folder: str | Path, *, root: str | Path | None = None, chunk: int = 500) -> int:
    """Write `<root>/<name>/train.parquet` from pictures in `<folder>/<domain>/<class>/`; return their number.

    DomainBed's own script leaves its benchmarks in such folders. Their names may differ from ours in case and
    punctuation; pictures are copied unchanged, `chunk` at a time. `root` as in `load_split`. Raises ValueError if the
    dataset has no domains, `root` is not given, a folder belongs to no known domain or class, or there are no pictures.
    """
    entry = dataset_source(name)
    datasets = _datasets(entry)
    from pyarrow import Table
    from pyarrow.parquet import ParquetWriter

    root = root or os.environ.get("FEATURELAB_DATA")
    if entry.domain is None or not root:
        raise ValueError(f"{name} has no domains" if entry.domain is None else "set FEATURELAB_DATA, or give a root")
    parts = sorted(path for path in Path(folder).glob("*/*") if path.is_dir())
    classes = entry.names or tuple(sorted({path.name for path in parts}))
    known = {_plain(label): place for place, label in enumerate(classes)}
    domains = {_plain(domain): domain for domain in entry.domains}
    for path in parts:
        if _plain(path.name) not in known or _plain(path.parent.name) not in domains:
            raise ValueError(f"{path} belongs to no known domain and class of {name}")
    files = [path for part in parts for path in sorted(part.iterdir()) if path.is_file()]
    if not files:
        raise ValueError(f"there are no pictures in {folder}/<domain>/<class>/")
    columns = {"image": datasets.Image(), entry.label: datasets.ClassLabel(names=list(classes))}
    schema = datasets.Features(columns | {entry.domain: datasets.Value("string")}).arrow_schema
    Path(root, name).mkdir(parents=True, exist_ok=True)
    with ParquetWriter(Path(root, name, "train.parquet"), schema) as written:
        for start in range(0, len(files), chunk):
            some = files[start : start + chunk]
            table = {
                "image": [{"bytes": path.read_bytes(), "path": path.name} for path in some],
                entry.label: [known[_plain(path.parent.name)] for path in some],
                entry.domain: [domains[_plain(path.parents[1].name)] for path in some],
            }
            written.write_table(Table.from_pydict(table, schema=schema))
    return len(files)


def digest(rows: Any, entry: DatasetSource) -> str:
    """SHA-256 (hex) of the encoded images, or the texts, and the labels of these rows, in order."""
    total = hashlib.sha256()
    for table in rows.with_format("arrow").iter(batch_size=1000):
        for column in entry.texts:
            for text in table[column].to_pylist():
                said = text if isinstance(text, str) else json.dumps(text)
                total.update(f"{len(said.encode())} {said}".encode())
        for picture in () if entry.texts else table["image"].combine_chunks().field("bytes"):
            total.update(picture.as_buffer())
        if entry.label:
            total.update(table[entry.label].to_numpy().astype("<i8").tobytes())
    return total.hexdigest()


def _files(entry: DatasetSource, split: str, folder: str | Path | None) -> tuple[str, list[str]]:
    """The files of a split in a data folder, if any, and the format under which `datasets` reads them."""
    plain = {"json": f"{split}*.jsonl"} | ({"text": "*.txt"} if len(entry.texts) == 1 else {})
    for kind, pattern in ({"parquet": f"{split}*.parquet"} | ({} if entry.label else plain)).items():
        files = sorted(str(path) for path in Path(folder, entry.name).glob(pattern)) if folder else []
        if files:
            return kind, files
    return "parquet", []


def _agree(
    feature: Any, names: tuple[str, ...] | None, classes: int, where: str, known: Mapping[int, str] | None = None
) -> None:
    """Raise DatasetRefused if a column names its classes differently than we do; a column of integers names none.

    Names in `known` may add synonyms after a comma, and a number that distinguishes classes of the same name.
    """
    column_names = getattr(feature, "names", None)
    if column_names is None:
        return
    if len(column_names) != classes:
        raise DatasetRefused(f"{where}: has {len(column_names)} classes, but {classes} are expected")
    for index, ours in (known or {}).items():
        if _plain(column_names[index].split(",")[0]).rstrip("0123456789") != _plain(ours):
            raise DatasetRefused(f"{where}: class {index} is {column_names[index]!r}, but {ours!r} is expected")
    if names is None:
        return
    for index, (theirs, ours) in enumerate(zip(column_names, names, strict=True)):
        if _plain(MISSPELT.get(theirs, theirs)) != _plain(ours):
            raise DatasetRefused(f"{where}: class {index} is {theirs!r}, but {ours!r} is expected")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _missing(entry: DatasetSource) -> DatasetMissing:
    way = f"run `featurelab data fetch {entry.name}` ({entry.needs}), or"
    if entry.repo_id is None:
        way = f"it cannot be fetched ({entry.needs});"
    return DatasetMissing(
        f"dataset '{entry.name}' is not on this machine: {way} put parquet files into $FEATURELAB_DATA/{entry.name}/"
    )


def _datasets(entry: DatasetSource) -> ModuleType:
    try:
        import datasets
    except ImportError as error:
        raise DatasetMissing(
            f"dataset '{entry.name}' needs the extra `public`: run `pip install 'feature-learning-lab[public]'`,"
            f" then `featurelab data fetch {entry.name}`"
        ) from error
    module: ModuleType = datasets
    return module


@contextmanager
def _offline(datasets: ModuleType) -> Iterator[None]:
    """Let `datasets` use only its cache, without waiting for the network."""
    with patch.object(datasets.config, "HF_HUB_OFFLINE", True):
        yield
