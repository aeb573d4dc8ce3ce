"""Locks in the outbox, by which processes of one machine exclude each other. A lock ends with its process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from featurelab.tracking.files import open_own
from featurelab.tracking.outbox.journal import Busy


@contextmanager
def exclusive_lock(outbox: Path, name: str) -> Iterator[None]:
    """Hold the lock `name` on this machine. Raises Busy if another process holds it."""
    outbox.mkdir(parents=True, exist_ok=True)
    path = outbox / f"{name}.lock"
    while True:
        handle = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise Busy(f"{path} is in use by another process") from None
        if os.fstat(handle).st_nlink:
            break
        os.close(handle)  # its holder deleted the file while we waited
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def in_use(outbox: Path, name: str) -> bool:
    """Return whether a living process on this machine holds the lock `name`, or the journal of the run `name`."""
    for path in (outbox / f"{name}.lock", outbox / f"{name}.jsonl"):
        try:
            handle = open_own(path, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False
