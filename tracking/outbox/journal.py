"""What a run recorded, kept in a file until the store has it.

The journal of a run is `<outbox>/<run_id>.jsonl`: a header, then one JSON line for each recorded thing, appended with
one write each, so that the operating system has it even if the process is killed at once. Artifacts lie beside it as
numbered directories, `<outbox>/<run_id>/<n>/...`, which get their number only when complete. A `sent` line says up to
which byte the journal is in the store; sending again what was sent stores nothing twice.

Lines: `{"uri", "run_id", "experiment"}` first, then `{"t", "s", "m": {name: value}}` (milliseconds, step, metrics),
`{"tags": {...}}`, `{"params": {...}}`, `{"dataset": {...}}`, `{"sent": byte}`, `{"discard": directory}` and
`{"end": status, "t", "tags"}`. Where a run is resumed, `{"attempt": n}` stands before what its n-th attempt
recorded.

A line that cannot be read is damage: somebody else wrote to the file, or a disk failed. Everything else is sent, the
run gets the tag `damaged`, and the journal is kept as `<outbox>/<run_id>.damaged.jsonl`. What a store refuses for good
is set aside in `<outbox>/<run_id>.rejected`, which becomes an artifact of the run.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from featurelab.tracking.files import open_own

BLOCK = 2**20  # bytes read at once
TRAINING = "training"  # the artifact directory of checkpoints to resume from: only the newest two are worth sending
GENERATIONS = 2
DAMAGED = ".damaged"  # in the name of a journal that was kept because not all of it could be read

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Busy(Exception):
    """Another process holds this journal."""


class JournalRemoved(OSError):
    """The journal is no longer the file at its path: what is added to it would be lost with this process."""


class JournalDamaged(OSError):
    """Somebody else wrote to the journal, or cut it: some of what was recorded can be missing from it."""


class HandleClosed(OSError):
    """The trial closed the file descriptors of this process, those of the journal and of a database too."""


class Journal:
    """The journal of one run, held by this process alone until `close`.

    Raises Busy where another process holds it, Planted where it is not a plain file of this user's.
    """

    def __init__(self, path: Path, *, header: Mapping[str, Any] | None = None, patience: float = 0.0) -> None:
        self.path = path
        self.spool = path.with_suffix("")
        self.rejected = path.with_suffix(".rejected")
        self.handle_closed: HandleClosed | None = None
        self.shortest = math.inf  # what lies behind this byte may have been written again
        self._damage: set[int] = set()  # where each line begins that cannot be read
        self._one = threading.Lock()
        self._file = open_own(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if header else 0))
        self._identity = _identity(os.fstat(self._file))
        self._lock(time.monotonic() + patience)
        try:
            self._end_cut_line()
            self._end, self._adding = self.size(), 0
            if header and not any("uri" in entry for _, entry in self.lines()):
                self.append(header)
        except BaseException:
            if header and not self.size() and self._in_place():
                path.unlink()
            self.close()
            raise

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one line, which then survives the death of this process.

        Raises OSError on a full disk, JournalRemoved, JournalDamaged and HandleClosed, and then has added nothing.
        """
        line = _encode(entry).encode() + b"\n"
        with self._one:  # what was cut can be taken back only while it is the end
            self._require_whole()
            self._adding = len(line)  # a signal may raise as soon as it is written
            try:
                written = os.write(self._file, line)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            if written < len(line):
                os.ftruncate(self._file, self._end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            self._end, self._adding = self._end + written, 0

    def require_in_place(self) -> None:
        """Raise JournalRemoved where the file that we hold is no longer the one at the path."""
        self._held()
        if not self._in_place():
            raise JournalRemoved(f"the journal {self.path} was removed or replaced while the run was recorded")

    def size(self) -> int:
        """Return the length of the journal in bytes."""
        return self._held().st_size

    def lines(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each whole line from byte `start` on, with the byte where it ends. Unreadable lines are counted."""
        read, rest = start, b""
        while block := self._read(BLOCK, read):  # not by its path, where it may no longer be
            read += len(block)
            *whole, rest = (rest + block).split(b"\n")  # the rest is still being written
            for line in whole:
                begin, start = start, start + len(line) + 1
                entry = _decoded(line)
                if entry is None or ("sent" in entry and not self._ends_line(entry["sent"], begin)):
                    self._damage.add(begin)
                else:
                    yield start, entry

    @property
    def damaged(self) -> JournalDamaged | None:
        """What is wrong with the lines that were read so far, if anything is."""
        if not self._damage:
            return None
        number = f"{len(self._damage)} line{'s' * (len(self._damage) > 1)}"
        return JournalDamaged(f"{number} of the journal of run {self.spool.name} cannot be read: cut or overwritten")

    def read_through(self) -> None:
        """Look at each line, so that `damaged` speaks of all of them."""
        deque(self.lines(), maxlen=0)

    def reject(self, entry: Mapping[str, Any]) -> None:
        """Keep what the store refuses for good."""
        handle = open_own(self.rejected, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, _encode(entry).encode() + b"\n")
        finally:
            os.close(handle)

    def spooled(self) -> list[Path]:
        """Return the complete artifact directories that wait to be sent, oldest first."""
        if not self.spool.is_dir():
            return []
        return sorted((path for path in self.spool.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))

    @property
    def attempt(self) -> int:
        """Which attempt at the run recorded here last."""
        return max((entry["attempt"] for _, entry in self.lines() if "attempt" in entry), default=1)

    @property
    def changed(self) -> int:
        """When it was last written to, in milliseconds since the epoch."""
        return int(os.fstat(self._file).st_mtime * 1000)

    @property
    def closed(self) -> bool:
        """Whether this process has let go of it."""
        return self._file < 0

    def close(self) -> None:
        """Let go, so that another process can take the journal up."""
        file, self._file = self._file, -1
        with suppress(OSError):
            if file >= 0 and _identity(os.fstat(file)) == self._identity:  # else the trial closed it
                os.close(file)

    def delete(self) -> None:
        """Remove the journal and its artifacts: everything is in the store. Nothing is done once it is closed.

        A journal that is damaged is kept under another name.
        """
        if self._file < 0:
            return
        if self._in_place():
            shutil.rmtree(self.spool, ignore_errors=True)
            self.rejected.unlink(missing_ok=True)
            if self._damage:
                self.path.rename(self._name_when_damaged())
            else:
                self.path.unlink(missing_ok=True)
        self.close()

    def _name_when_damaged(self) -> Path:
        number, path = 1, self.path.with_suffix(f"{DAMAGED}.jsonl")
        while path.exists():
            number += 1
            path = self.path.with_suffix(f"{DAMAGED}{number}.jsonl")
        return path

    def _in_place(self) -> bool:
        try:
            return _identity(os.stat(self.path, follow_symlinks=False)) == self._identity
        except OSError:
            return False

    def _require_whole(self) -> None:
        """Raise JournalDamaged where the file does not end where we left it, and make sure that it ends with a line."""
        found = self._held()
        if not self._in_place():
            raise JournalRemoved(f"the journal {self.path} was removed or replaced while the run was recorded")
        if found.st_size == self._end + self._adding:
            self._end = found.st_size
        self._adding = 0
        if found.st_size != self._end:
            self.shortest = min(self.shortest, found.st_size)
            self._damage.add(self._begin_of_line(min(found.st_size, self._end)))
            self._end_cut_line()
            self._end = self.size()
            raise JournalDamaged(f"the journal {self.path} was cut or written to by another process")

    def _held(self) -> os.stat_result:
        """The file that we hold. Raises HandleClosed, the first time, where its handle is not ours any more."""
        with suppress(OSError):
            found = os.fstat(self._file)
            if _identity(found) == self._identity:
                return found
        if self._file < 0:
            raise ValueError(f"the journal {self.path} is closed")
        self.handle_closed = HandleClosed("the trial closed file descriptors that it had not opened")
        self._file = open_own(self.path, os.O_RDWR | os.O_APPEND)
        if not self._in_place():
            raise JournalRemoved(f"the journal {self.path} was removed or replaced while the run was recorded")
        self._lock(time.monotonic())
        raise self.handle_closed

    def _read(self, length: int, start: int) -> bytes:
        self._held()
        return os.pread(self._file, length, start)

    def _ends_line(self, byte: Any, before: int) -> bool:
        """Whether a byte up to which all is said to be sent can be one; what has no number is not for us to judge."""
        if not isinstance(byte, int):
            return True
        return 0 <= byte <= before and (not byte or os.pread(self._file, 1, byte - 1) == b"\n")

    def _end_cut_line(self) -> None:
        """Nothing may be added to a line that was cut; the last writer may have been killed in the middle of one."""
        size = self.size()
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            try:
                os.write(self._file, b"\n")
            except OSError:  # a full disk
                begin = self._begin_of_line(size)
                os.ftruncate(self._file, begin)
                self._damage.add(begin)

    def _begin_of_line(self, byte: int) -> int:
        return os.pread(self._file, byte, 0).rfind(b"\n") + 1

    def _lock(self, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self.close()
                    raise Busy(f"{self.path} is in use by another process") from None
                time.sleep(0.02)
        if not os.fstat(self._file).st_nlink:  # its holder finished and deleted it while we waited
            self.close()
            raise Busy(f"{self.path} has just been sent")


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_ino, found.st_dev


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
