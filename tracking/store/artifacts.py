"""Write artifacts to a directory, laid out as in the artifact folder of the run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featurelab.tracking.lines import quoted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


LONGEST_NAME = 255  # bytes: the bound of file systems


def place(root: Path, path: str) -> Path:
    """Return `root / path` after creating its parent directories. Raises ValueError as `checked` does."""
    target = root / checked(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def checked(path: str) -> str:
    """Return `path` if it is a valid artifact path: relative, inside the run, and safe on Windows too.

    Raises ValueError for any other path.
    """
    parts = path.split("/")
    drive = any(re.match(r"[A-Za-z]:", part) for part in parts)
    if not path.isprintable() or "\\" in path or drive or {"", ".", ".."} & set(parts):
        raise ValueError(f"artifact path {quoted(path)} must be relative and stay inside the run")
    if any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise ValueError(f"artifact path {quoted(path)} has a name of more than {LONGEST_NAME} bytes")
    return path


def plain(value: Any) -> Any:
    """Convert numpy scalars and arrays, sets and paths to what `json` can write. Raises TypeError for other types."""
    import numpy as np  # which a command that lists experiments has no use for

    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def jsonable(value: Any) -> Any:
    """Return `value` as it would be read back from JSON. Raises TypeError for what JSON cannot hold."""
    return json.loads(json.dumps(value, default=plain))


def write_json(root: Path, path: str, obj: Any) -> None:
    """Write `obj` as indented JSON. Raises TypeError for what JSON cannot hold."""
    text = json.dumps(obj, indent=2, default=plain)
    place(root, path).write_text(text + "\n")


def write_arrays(root: Path, path: str, **arrays: Any) -> None:
    """Write named arrays as one compressed `.npz`. Raises ValueError for arrays of objects, which would need pickle."""
    import numpy as np

    converted = {name: np.asarray(array) for name, array in arrays.items()}
    if objects := [name for name, array in converted.items() if array.dtype == object]:
        raise ValueError(f"array {objects[0]!r} holds Python objects: only numbers and strings can be stored")
    np.savez_compressed(place(root, path), **converted)  # type: ignore[arg-type]


def write_table(root: Path, path: str, table: pd.DataFrame) -> None:
    """Write a table without its index as `.csv` or `.parquet`, by the suffix. Raises ValueError for other suffixes."""
    suffix = Path(path).suffix
    if suffix == ".csv":
        table.to_csv(place(root, path), index=False)
    elif suffix == ".parquet":
        table.to_parquet(place(root, path), index=False)
    else:
        raise ValueError(f"a table is stored as .csv or .parquet, not {path!r}")


def write_figure(root: Path, stem: str, figure: Figure) -> None:
    """Draw a matplotlib figure as `<stem>.png` (for pages), `<stem>.svg` and `<stem>.pdf` (for papers)."""
    figure.draw_without_rendering()
    # laid out and measured once: for "tight" each of the three would do so twice
    extent, layout = figure.get_tightbbox().padded(0.1), figure.get_layout_engine()
    figure.set_layout_engine("none")
    for suffix in ("png", "svg", "pdf"):
        figure.savefig(place(root, f"{stem}.{suffix}"), dpi=150, bbox_inches=extent)
    figure.set_layout_engine(layout)


def copy(root: Path, source: Path, directory: str) -> None:
    """Copy a file or a directory to `<directory>/<its name>`. Raises FileNotFoundError."""
    target = place(root, str(Path(directory) / source.name))
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)
