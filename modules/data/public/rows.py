"""Training and test rows of a public dataset of pictures, and their pictures a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from ..core.tensors import stream
from .sources import dataset_source, labels, load_split

Ids = np.ndarray


class LabelledRows(NamedTuple):
    """Rows of a table in memory-mapped files, and their labels."""

    table: Any
    rows: Int64[Ids, " n"]
    labels: Int64[Ids, " n"]

    def pictures(self, at_once: int = 256) -> Iterator[list[Any]]:
        """Yield the pictures as PIL images, in the order of the rows, decoding `at_once` at a time.

        Decodes fewer at a time if they have very many pixels. Raises DatasetRefused for what is not a picture.
        """
        from datasets import Image

        from .picture_files import MOST_PIXELS, decoded

        chosen = self.table.select(self.rows).select_columns(["image"]).cast_column("image", Image(decode=False))
        some: list[Any] = []
        pixels = 0
        for batch in chosen.iter(batch_size=at_once):
            for cell in batch["image"]:
                some.append(decoded(cell))
                pixels += some[-1].width * some[-1].height
                if len(some) == at_once or pixels >= MOST_PIXELS:
                    yield some
                    some, pixels = [], 0
        if some:
            yield some


def public_rows(
    name: str,
    n_train: int | None = None,
    n_test: int | None = None,
    *,
    classes: int | None = None,
    per_class: int | None = None,
    held_out: float = 0.1,
    seed: int,
    root: str | Path | None = None,
) -> tuple[LabelledRows, LabelledRows]:
    """`n_train` rows of the split `train` and `n_test` of the test split, drawn with `seed` (None: all).

    A dataset without a test split uses a share `held_out` of its rows for testing. `classes` keeps the first so many
    classes; `per_class` takes equally many training rows of each, repeated in turn if a class has fewer. Raises
    DatasetMissing; ValueError if a split has too few rows.
    """
    entry = dataset_source(name)
    n_classes = entry.classes if classes is None else classes
    parts = []
    for part, split, n in (("train", "train", n_train), ("test", entry.test, n_test)):
        table = load_split(name, split, root=root)
        y = labels(table, entry.label)
        rows = stream(seed, f"{name} {split}").permutation(len(y))
        if entry.test == "train":
            cut = round(held_out * len(rows))
            rows = rows[:cut] if part == "test" else rows[cut:]
        rows = rows[y[rows] < n_classes]
        if part == "train" and per_class is not None:
            rows = np.concatenate([np.resize(rows[y[rows] == label], per_class) for label in np.unique(y[rows])])
            rows = stream(seed, f"{name} in turn").permutation(rows)
        if n is not None and len(rows) < n:
            raise ValueError(f"split {split!r} of {name} gives only {len(rows)} rows, but {n} are needed")
        parts.append(LabelledRows(table, rows[:n], y[rows[:n]]))
    train, test = parts
    return train, test


def repeated_rows(rows: Int64[Ids, " n"]) -> Bool[np.ndarray, " n"]:
    """Whether (n,) each row has appeared before."""
    again = np.ones(len(rows), dtype=bool)
    again[np.unique(rows, return_index=True)[1]] = False
    return again
