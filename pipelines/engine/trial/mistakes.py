"""Where in an author's own package something went wrong: one line, instead of a traceback through libraries."""

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from featurelab.tracking.lines import line


def mistake(error: BaseException, function: Callable[..., Any] | None) -> str:
    """An error in one line with the last frame in the package of `function`: "KeyError: 'x' (lab/f.py:1 in train)"."""
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    place = own_frame(error, function) if function is not None else ""
    return line(f"{said} ({place})" if place else said)


def own_frame(error: BaseException, function: Callable[..., Any]) -> str:
    """`file:line in function` of the last frame in the package that declares `function`; empty if there is none."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    package = _package(Path(code.co_filename), getattr(function, "__module__", "") or "")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path == package or package in path.parents:
            return f"{path.relative_to(package.parent)}:{frame.lineno} in {frame.name}"
    return ""


def _package(file: Path, module: str) -> Path:
    """The folder of the package that a module is in, or the file of a module in none; of ours, that of its system."""
    parts = module.split(".")
    if len(parts) == 1:
        return file
    return file.parents[0 if parts[0] == "featurelab" else len(parts) - 2]
