"""The upper bound on the size of an outbox, the directory where runs keep what the store does not have yet.

FEATURELAB_OUTBOX_LIMIT sets the bound, as `500M` or `20G`. The default is 2 GiB or 5% of the free disk space, whichever
is more, but at most half of the free space. Beyond the bound artifacts are dropped; metrics, which are small, are still
recorded.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

from featurelab.tracking.files import open_own

LIMIT = "FEATURELAB_OUTBOX_LIMIT"
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
FILLING = 0.8  # the share of the bound from which a warning is due
FULL = ".full"  # a file that tells the other processes that an artifact was dropped
MEASURED_FOR = 2.0  # seconds for which a measured size counts


def limit_from(text: str) -> int:
    """Return the size in bytes that a text such as `500M`, `1.5GiB` or `1000000` means.

    Raises ValueError for any other text and for 0.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match or not (size := int(float(match[1]) * UNITS[match[2].upper()])):
        raise ValueError(f"{LIMIT}={text[:40]!r} must be a positive size: write it as 500M or 20G")
    return size


class Bound:
    """Watches the size of an outbox. `limit` is in bytes; None means that of this machine.

    Several processes share an outbox and each measures it every few seconds, so together they can exceed the bound by
    what they add in between. Raises ValueError if FEATURELAB_OUTBOX_LIMIT is not a size.
    """

    def __init__(self, outbox: Path, limit: int | None = None) -> None:
        setting = os.environ.get(LIMIT)
        self.outbox = outbox
        self._limit = limit_from(setting) if limit is None and setting else limit
        self._used, self._measured_at = 0, -MEASURED_FOR
        self._warned_level = 0

    def admits(self, size: int) -> bool:
        """Return whether an artifact of `size` bytes may be added; if so, count it."""
        self._measure()
        full = self._used + size > self.limit
        if full:
            with suppress(OSError):  # on a full disk: the other processes will notice themselves
                os.close(open_own(self.outbox / FULL, os.O_WRONLY | os.O_CREAT))
        else:
            self._used += size
            if self._used < FILLING * self.limit:
                (self.outbox / FULL).unlink(missing_ok=True)
        return not full

    def trouble(self) -> str | None:
        """Return one warning when the outbox is almost full and one when it is full, each once; otherwise None."""
        self._measure()
        full = self._used >= self.limit or (self.outbox / FULL).exists()
        level = 2 if full else int(self._used >= FILLING * self.limit)
        if level <= self._warned_level:
            return None
        self._warned_level = level
        usage = f"the outbox {self.outbox} holds {_shown(self._used)} of at most {_shown(self.limit)}"
        if level == 1:
            return f"{usage} that the store has not received; once the outbox is full, artifacts are dropped"
        return f"{usage}: artifacts and checkpoints are dropped, metrics are still recorded"

    @property
    def limit(self) -> int:
        """The bound in bytes."""
        if self._limit is None:
            self.outbox.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.outbox).free + self._used
            self._limit = min(max(2 * UNITS["G"], free // 20), free // 2)
        return self._limit

    def _measure(self) -> None:
        now = time.monotonic()
        if now - self._measured_at >= MEASURED_FOR:
            self._used, self._measured_at = size_of(self.outbox), now


def size_of(directory: Path) -> int:
    """Return the bytes of all files below a directory, without drafts (`.name`) and files that vanish meanwhile."""
    total = 0
    for folder, subfolders, files in os.walk(directory):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def _shown(size: int) -> str:
    unit = next((unit for unit in "TGM" if size >= UNITS[unit]), "M")
    return f"{size / UNITS[unit]:.3g} {unit}iB"
