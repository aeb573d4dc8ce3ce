"""Which code made a result: a digest of the Python files of each package that it ran."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_FILES = 10_000  # of a package; what comes after is not looked at
MOST_BYTES = 2**26
MOST_NAMED = 200  # files with a digest each; of a larger package, each folder has one
DIGITS = 16


@functools.cache
def package(name: str) -> dict[str, Any] | None:
    """Return the `digest` of a loaded package or module, with one for each of its `files`; None if it has no files.

    In a git repository that follows it, also `commit` and `dirty`: whether the package was changed since (of our own,
    `provenance.environment` says it). `cut` says that the package is too large to be read whole. Read once a process:
    what was imported does not change.
    """
    module = sys.modules.get(name)
    roots = [Path(root) for root in getattr(module, "__path__", ())]
    single = getattr(module, "__file__", None)
    if not roots and not single:
        return None
    found: dict[str, str] = {}
    size, cut = 0, False
    for path, shown in _files(roots, name) if roots else [(Path(str(single)), Path(str(single)).name)]:
        try:
            size += path.stat().st_size
            cut = len(found) == MOST_FILES or size > MOST_BYTES
            if cut:
                break
            found[shown] = hashlib.sha256(path.read_bytes()).hexdigest()[:DIGITS]
        except OSError:
            continue
    said: dict[str, Any] = {"digest": _joined(found), "files": found if len(found) <= MOST_NAMED else _by_folder(found)}
    said |= {"cut": True} if cut else {}
    return said | ({} if name == "featurelab" else _revision(roots[0] if roots else Path(str(single))))


def _files(roots: list[Path], name: str) -> Iterator[tuple[Path, str]]:
    """The Python files below the folders of a package in a fixed order, each with its place in the package."""
    seen = set()
    for root in roots:
        for folder, folders, files in os.walk(root, followlinks=True):
            where = os.path.realpath(folder)
            if where in seen:  # a link that leads back
                folders.clear()
                continue
            seen.add(where)
            folders[:] = sorted(below for below in folders if below.isidentifier() and below != "__pycache__")
            for file in sorted(files):
                if file.endswith(".py"):
                    path = Path(folder, file)
                    yield path, Path(name, path.relative_to(root)).as_posix()


def _joined(digests: dict[str, str]) -> str:
    text = "\n".join(f"{digest} {name}" for name, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:DIGITS]


def _by_folder(digests: dict[str, str]) -> dict[str, str]:
    folders: dict[str, dict[str, str]] = {}
    for name, digest in digests.items():
        folders.setdefault(f"{name.rpartition('/')[0]}/", {})[name] = digest
    return {folder: _joined(inside) for folder, inside in folders.items()}


def _revision(path: Path) -> dict[str, Any]:
    """The commit of the git repository that follows `path`, and whether `path` was changed since; else nothing."""
    folder, here = (path, ".") if path.is_dir() else (path.parent, path.name)
    if not _git(folder, "ls-files", "--", here):
        return {}
    commit = _git(folder, "rev-parse", "HEAD")
    return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain", "--", here))} if commit else {}


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").strip()
