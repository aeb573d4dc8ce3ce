"""Where the artifacts of a store lie, as far as that is on this machine's disks."""

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
    """Where a SQLite store keeps the artifacts of an experiment: beside its file, wherever a run was started."""
    return store.parent / FOLDER / re.sub(r"[^\w/-]+", "_", experiment).strip("/")


def local(artifact_uri: str) -> Path | None:
    """The path that an artifact address names on this machine's disks; None for one elsewhere."""
    parts = urlsplit(artifact_uri)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else artifact_uri)


def copied_from(path: Path) -> str:
    """One line where a SQLite store is a copy, whose experiments keep their artifacts where the original is.

    Empty where it is not. New runs of these experiments put theirs there too, as MLflow does not look anywhere else.
    """
    with closing(connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT name, artifact_location FROM experiments WHERE lifecycle_stage = 'active'")
        named = [(name, local(location or "")) for name, location in rows]
    homes = set()
    for name, folder in named:
        ours = artifact_folder(path, name)
        inside = ours.relative_to(path.parent)
        if folder and folder != ours and folder.parts[-len(inside.parts) :] == inside.parts:
            homes.add(folder.parents[len(inside.parts) - 1])
    if not homes or all(home.resolve() == path.parent.resolve() for home in homes):
        return ""
    places = ", ".join(str(home / FOLDER) for home in sorted(homes))
    return line(f"the store {path} is a copy: artifacts of its experiments are read and written in {places}")


def identity(path: Path) -> tuple[int, int] | None:
    """Which file lies at a path: its device and inode, or None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
