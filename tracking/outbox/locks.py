"""Which process of this machine does what: locks in the outbox, which end with the process that holds them."""

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
    """Be the only process on this machine that does what `name` stands for. Raises Busy where another one does it."""
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
        os.close(handle)  # its holder deleted it while we waited
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def in_use(outbox: Path, name: str) -> bool:
    """Whether a living process on this machine holds this lock, or the journal of the run of that name."""
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
