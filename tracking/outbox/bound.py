"""How large the directory may grow where runs keep what the store has not got.

Its bound is FEATURELAB_OUTBOX_LIMIT, as `500M` or `20G`; by default 2 GiB, or 5% of the disk's free space where that is
more, and never more than half of it. Beyond the bound no artifact is taken in, while metrics, which are small, still
are.
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
FILLING = 0.8  # from this share of the bound on it is said that the outbox fills
FULL = ".full"  # a file that is there once an artifact was not taken in: so that the other processes can say it
MEASURED_FOR = 2.0  # seconds for which a measurement of its size holds


def limit_from(text: str) -> int:
    """Return the bytes that a size such as `500M`, `1.5GiB` or `1000000` means. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found or not (size := int(float(found[1]) * UNITS[found[2].upper()])):
        raise ValueError(f"{LIMIT}={text[:40]!r} is no size above 0: write it as 500M or 20G")
    return size


class Bound:
    """Watches the size of an outbox, by default against the bound of this machine. Raises ValueError for a bad LIMIT.

    Several processes share an outbox, and each looks every few seconds: together they may pass the bound by what they
    take in meanwhile.
    """

    def __init__(self, outbox: Path, limit: int | None = None) -> None:
        given = os.environ.get(LIMIT)
        self.outbox = outbox
        self._limit = limit_from(given) if limit is None and given else limit
        self._used, self._looked = 0, -MEASURED_FOR
        self._said = 0

    def admits(self, size: int) -> bool:
        """Whether an artifact of this many bytes may be added, which then counts."""
        self._look()
        full = self._used + size > self.limit
        if full:
            with suppress(OSError):  # on a full disk: the others will find out themselves
                os.close(open_own(self.outbox / FULL, os.O_WRONLY | os.O_CREAT))
        else:
            self._used += size
            if self._used < FILLING * self.limit:
                (self.outbox / FULL).unlink(missing_ok=True)
        return not full

    def trouble(self) -> str | None:
        """One line when the outbox has become almost full, one when it is full, and None otherwise."""
        self._look()
        full = self._used >= self.limit or (self.outbox / FULL).exists()
        level = 2 if full else int(self._used >= FILLING * self.limit)
        if level <= self._said:
            return None
        self._said = level
        holds = f"the outbox {self.outbox} holds {_shown(self._used)} of at most {_shown(self.limit)}"
        if level == 1:
            return f"{holds} that the store has not taken; once it is full, only metrics are kept"
        return f"{holds}: artifacts and checkpoints are no longer kept, metrics still are"

    @property
    def limit(self) -> int:
        """The bound in bytes."""
        if self._limit is None:
            self.outbox.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.outbox).free + self._used
            self._limit = min(max(2 * UNITS["G"], free // 20), free // 2)
        return self._limit

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= MEASURED_FOR:
            self._used, self._looked = size_of(self.outbox), now


def size_of(directory: Path) -> int:
    """The bytes of all files below a directory, without those being written and those that vanish meanwhile."""
    total = 0
    for folder, inside, files in os.walk(directory):
        inside[:] = [name for name in inside if not name.startswith(".")]
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def _shown(size: int) -> str:
    unit = next((unit for unit in "TGM" if size >= UNITS[unit]), "M")
    return f"{size / UNITS[unit]:.3g} {unit}iB"
