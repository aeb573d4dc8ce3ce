"""Identify the code that made a result: a digest of the Python files of each package that ran."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_FILES = 10_000  # read of a package
MOST_BYTES = 2**26
MOST_NAMED = 200  # files with a digest each; in a larger package, each folder has one
DIGITS = 16


@functools.cache
def package(name: str) -> dict[str, Any] | None:
    """Return the `digest` of a loaded package or module, and one for each of its `files`; None if it has no files.

    If a git repository tracks the package, add `commit` and `dirty`, whether the package was changed since the commit;
    for our own package `provenance.environment` adds them. `cut` says that the package was too large to read whole.
    Cached for the process: imported code does not change.
    """
    module = sys.modules.get(name)
    roots = [Path(root) for root in getattr(module, "__path__", ())]
    single = getattr(module, "__file__", None)
    if not roots and not single:
        return None
    digests: dict[str, str] = {}
    size, cut = 0, False
    for path, place in _files(roots, name) if roots else [(Path(str(single)), Path(str(single)).name)]:
        try:
            size += path.stat().st_size
            cut = len(digests) == MOST_FILES or size > MOST_BYTES
            if cut:
                break
            digests[place] = hashlib.sha256(path.read_bytes()).hexdigest()[:DIGITS]
        except OSError:
            continue
    files = digests if len(digests) <= MOST_NAMED else _by_folder(digests)
    description: dict[str, Any] = {"digest": _joined(digests), "files": files} | ({"cut": True} if cut else {})
    return description | ({} if name == "featurelab" else _revision(roots[0] if roots else Path(str(single))))


def _files(roots: list[Path], name: str) -> Iterator[tuple[Path, str]]:
    """Yield (path, place in the package) of each Python file of a package, in a fixed order."""
    seen = set()
    for root in roots:
        for folder, folders, files in os.walk(root, followlinks=True):
            real_path = os.path.realpath(folder)
            if real_path in seen:  # a link that leads back
                folders.clear()
                continue
            seen.add(real_path)
            folders[:] = sorted(each for each in folders if each.isidentifier() and each != "__pycache__")
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
    return {folder: _joined(files) for folder, files in folders.items()}


def _revision(path: Path) -> dict[str, Any]:
    """Return `commit` and `dirty` from the git repository that tracks `path`; empty if none does."""
    folder, target = (path, ".") if path.is_dir() else (path.parent, path.name)
    if not _git(folder, "ls-files", "--", target):
        return {}
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    # not every repository ignores bytecode, which is no change of the package
    changed = _git(folder, "status", "--porcelain", "--", target, ":(exclude,glob)**/__pycache__/**")
    return {"commit": commit, "dirty": bool(changed)}


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").strip()
