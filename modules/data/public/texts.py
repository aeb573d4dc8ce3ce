"""Texts of public datasets with their labels, for prompts."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from .sources import dataset_source, labels, load_split


class LabelledTexts(NamedTuple):
    """Texts, the class of each, and the names of the classes in the order of their labels."""

    texts: tuple[str, ...]
    labels: Int64[np.ndarray, " n"]
    names: tuple[str, ...]


def public_texts(name: str, split: str, *, root: str | Path | None = None) -> LabelledTexts:
    """The texts of a split without spaces at their ends; texts of several columns are joined by a line break.

    `root` and errors as in `load_split`; ValueError also for a dataset of pictures, and for labels outside its classes,
    as in a split whose labels are not public.
    """
    entry = dataset_source(name)
    if not entry.texts or not entry.label:
        raise ValueError(f"{name} holds {'texts without classes' if entry.texts else 'pictures, not texts'}")
    rows = load_split(name, split, root=root)
    y = labels(rows, entry.label)
    if not np.isin(y, range(entry.classes)).all():
        raise ValueError(f"split {split!r} of {name} has no public labels")
    columns = [rows[column] for column in entry.texts]
    joined = tuple("\n".join(part.strip() for part in parts) for parts in zip(*columns, strict=True))
    return LabelledTexts(joined, y, entry.names or ())


def text_rows(name: str, split: str, *, root: str | Path | None = None) -> list[dict[str, Any]]:
    """The rows of a split of texts: texts and lists of texts by column.

    Errors as in `load_split`; ValueError also for pictures.
    """
    entry = dataset_source(name)
    if not entry.texts:
        raise ValueError(f"{name} holds pictures, not texts")
    rows: list[dict[str, Any]] = load_split(name, split, root=root).to_list()
    return rows
