"""Open files that only this user should have written, and refuse what somebody put in their place."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from featurelab.tracking.lines import quoted

LINK = "is a symbolic link or not a plain file"
SECOND_NAME = "has a second name elsewhere"  # a hard link, which may lead to any file of this user


class Planted(OSError):
    """A file or folder is not of the kind that featurelab creates. The message says in one line what it is."""


def open_own(path: Path, flags: int) -> int:
    """Open a plain file of this user and return its handle.

    Raises Planted for a symbolic link, a second hard link, anything but a plain file, and a file of another user.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):  # ENXIO: a socket
            raise _planted(path, LINK) from None
        raise
    status = os.fstat(handle)
    problem = _problem(status) if stat.S_ISREG(status.st_mode) else "is not a plain file"
    if problem:
        os.close(handle)
        raise _planted(path, problem)
    return handle


def read_own(path: Path) -> str:
    """Return the text of a plain file of this user. Raises Planted for anything else."""
    with os.fdopen(open_own(path, os.O_RDONLY), encoding="utf-8") as file:
        return file.read()


def require_own_folder(path: Path) -> None:
    """Raise Planted if a folder exists and belongs to another user."""
    if path.exists() and (problem := _foreign(path.stat())):
        raise _planted(path, problem)


def require_plain_tree(root: Path) -> None:
    """Raise Planted unless everything in a folder is a folder, or a plain file without further names, of this user."""
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise _planted(path, LINK)
        if problem := _problem(status) if stat.S_ISREG(status.st_mode) else _foreign(status):
            raise _planted(path, problem)


def _problem(status: os.stat_result) -> str:
    """Return what is wrong with a plain file, empty if nothing is. A file that was just deleted has no name."""
    return _foreign(status) or (SECOND_NAME if status.st_nlink > 1 else "")


def _foreign(status: os.stat_result) -> str:
    return "" if status.st_uid == os.geteuid() else "belongs to another user"


def _planted(path: Path, problem: str) -> Planted:
    return Planted(errno.EPERM, f"{quoted(str(path))} {problem}")
