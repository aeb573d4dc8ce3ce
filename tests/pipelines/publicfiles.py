"""Small parquet files of the public datasets, of the schema that they have on the hub, with noise and numbers in them.

Import `public_images` into a test module to have those of `few_rows` in $FEATURELAB_DATA during its tests, or call
`write_public` for others and for chosen sizes.
"""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from featurelab.modules.data import CIFAR100_TO_COARSE, dataset_source

# Rows a class in (train, test), and sides of the pictures where they are larger than what is read.
ROWS = {
    "cars196": (3, 2),
    "celeba": (20, 8),
    "cifar100": (2, 1),
    "cub200": (3, 2),
    "domain_net": (6, 1),
    "facescrub": (1, 1),
    "gtsrb": (2, 1),
    "imagenet": (1, 1),
    "imagenet32": (1, 1),
    "office_home": (4, 4),
    "tiny_imagenet": (1, 1),
}
SIDES = {"cars196": (40, 60), "celeba": (218, 178), "cub200": (50, 40)}
SIDES |= dict.fromkeys(("domain_net", "imagenet", "office_home", "pacs", "terra_incognita", "vlcs"), (20, 30))


def write_public(
    root: Path, name: str, rows: Mapping[str, int] | None = None, *, files: int = 1, seed: int = 0, **columns: Any
) -> None:
    """Write `rows[split]` rows a class of this dataset as parquet files, labels in turn 0, 1, ..., 0, 1, ...

    `columns` are feature types in place of the hub's, by column.
    """
    import datasets

    entry = dataset_source(name)
    if not entry.label:
        write_texts(root, name)
        return
    few = ROWS.get(name, (8, 4))
    rows = {"train": few[0], entry.test: few[1]} if rows is None else rows
    height, width = SIDES.get(name, (entry.size, entry.size))
    rng = np.random.default_rng([seed, *name.encode()])
    names = entry.names or (entry.known and [entry.known.get(i, f"another {i}") for i in range(entry.classes)])
    label = datasets.ClassLabel(names=[*names]) if names else datasets.ClassLabel(num_classes=entry.classes)
    features = {entry.label: datasets.Value("bool") if name == "celeba" else label}
    features |= dict.fromkeys(entry.texts, datasets.Value("string")) or {entry.image: datasets.Image()}
    if entry.coarse:
        features[entry.coarse] = datasets.ClassLabel(names=[*(entry.coarse_names or ())])
    if entry.domain:
        features[entry.domain] = datasets.Value("string")
    features |= columns
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for split, each in rows.items():
        n = each * entry.classes
        labels = [i % entry.classes for i in range(n)]
        shape = (height, width, 3) if entry.channels == 3 else (height, width)
        table: dict[str, Any] = {entry.label: [bool(y) for y in labels] if name == "celeba" else labels}
        for column in entry.texts:
            table[column] = [f"{column} {split} {i} of class {y} " for i, y in enumerate(labels)]
        if not entry.texts:
            table[entry.image] = [png(rng.integers(0, 256, shape, dtype=np.uint8)) for _ in range(n)]
        if entry.coarse:
            table[entry.coarse] = [CIFAR100_TO_COARSE[y] for y in labels]
        if entry.domain:  # as many rows of each, class by class
            names = [entry.domains[i // entry.classes % len(entry.domains)] for i in range(n)]
            places = isinstance(features[entry.domain], datasets.ClassLabel)
            table[entry.domain] = [features[entry.domain].str2int(name) for name in names] if places else names
        whole = datasets.Dataset.from_dict(table, features=datasets.Features(features))
        for part in range(files):
            indices = range(part * n // files, (part + 1) * n // files)
            whole.select(indices).to_parquet(folder / f"{split}-{part:05}-of-{files:05}.parquet")


def write_texts(root: Path, name: str, n: int = 3) -> None:
    """Write n rows of each split of texts without classes."""
    import datasets

    entry = dataset_source(name)
    lists = {"answers": ["yes", "no"], "all_classes": None}
    (root / name).mkdir(parents=True, exist_ok=True)
    for split in entry.splits:
        rows = [{c: lists.get(c, f"{c} {split} {i}") for c in entry.texts} for i in range(n)]
        datasets.Dataset.from_list(rows).to_parquet(root / name / f"{split}-0.parquet")


def png(pixels: np.ndarray) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=0)  # noise cannot be made smaller
    return {"bytes": buffer.getvalue(), "path": None}


@pytest.fixture(scope="module")
def public_images(few_rows: Path) -> Iterator[Path]:
    """A folder with a few rows of public datasets, named by $FEATURELAB_DATA during the module's tests."""
    datasets, root = pytest.importorskip("datasets"), few_rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEATURELAB_DATA", str(root))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(root / "cache"))
        yield root
