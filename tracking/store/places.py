"""Where the artifacts of a store lie on this machine's disks."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from urllib.parse import unquote, urlsplit

from featurelab.tracking.lines import line

FOLDER = "mlruns"  # beside the file of a SQLite store


def artifact_folder(store: Path, experiment: str) -> Path:
    """Return the folder of an experiment's artifacts: beside the file of the SQLite store `store`."""
    return store.parent / FOLDER / re.sub(r"[^\w/-]+", "_", experiment).strip("/")


def local(artifact_uri: str) -> Path | None:
    """Return the path that an artifact address names on this machine's disks; None for an address elsewhere."""
    parts = urlsplit(artifact_uri)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else artifact_uri)


def copied_from(path: Path) -> str:
    """Return one line of warning if the SQLite store at `path` is a copy, else an empty text.

    The experiments of a copy keep their artifacts, those of new runs too, beside the original: MLflow does not look
    elsewhere.
    """
    with closing(connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT name, artifact_location FROM experiments WHERE lifecycle_stage = 'active'")
        folders = [(name, local(location or "")) for name, location in rows]
    originals = set()
    for name, folder in folders:
        beside_path = artifact_folder(path, name)
        relative = beside_path.relative_to(path.parent)
        if folder and folder != beside_path and folder.parts[-len(relative.parts) :] == relative.parts:
            originals.add(folder.parents[len(relative.parts) - 1])
    if not originals or all(original.resolve() == path.parent.resolve() for original in originals):
        return ""
    places = ", ".join(str(original / FOLDER) for original in sorted(originals))
    return line(f"the store {path} is a copy: artifacts of its experiments are read and written in {places}")


def identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path, which identify it; None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
