"""Files that only we should have written: opened as what they are, and not as what somebody has put in their place."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from featurelab.tracking.lines import quoted

SECOND_NAME = "has a second name elsewhere"  # a hard link: it may be any file of this user's


class Planted(OSError):
    """A file or folder is not one that this user's processes make; the message is one line that says what it is."""


def open_own(path: Path, flags: int) -> int:
    """Open a plain file of this user's, and return its handle.

    Raises Planted for a symbolic or second hard link, for what is no plain file, and for a file of another user's.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):  # the last of a socket
            raise _planted(path, "is a symbolic link, or no plain file") from None
        raise
    found = os.fstat(handle)
    wrong = (
        "is no plain file"
        if not stat.S_ISREG(found.st_mode)
        else _of_another(found) or (SECOND_NAME if found.st_nlink > 1 else "")  # none is one just deleted
    )
    if wrong:
        os.close(handle)
        raise _planted(path, wrong)
    return handle


def read_own(path: Path) -> str:
    """The text of a plain file of this user's. Raises Planted for anything else."""
    with os.fdopen(open_own(path, os.O_RDONLY), encoding="utf-8") as file:
        return file.read()


def require_own_folder(path: Path) -> None:
    """Raise Planted unless a folder that exists belongs to this user."""
    if path.exists() and (wrong := _of_another(path.stat())):
        raise _planted(path, wrong)


def require_plain_tree(root: Path) -> None:
    """Raise Planted unless a folder and all below it are folders, or plain files with one name, of this user's."""
    for path in (root, *root.rglob("*")):
        found = path.lstat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise _planted(path, "is a symbolic link, or no plain file")
        if wrong := _of_another(found) or (SECOND_NAME if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 else ""):
            raise _planted(path, wrong)


def _of_another(found: os.stat_result) -> str:
    return "" if found.st_uid == os.geteuid() else "belongs to another user"


def _planted(path: Path, wrong: str) -> Planted:
    return Planted(errno.EPERM, f"{quoted(str(path))} {wrong}")
