"""The journal of a run: a file that keeps what the run recorded until the store has it.

The journal is `<outbox>/<run_id>.jsonl`: a header, then one JSON line for each recorded thing. Each line is appended
with a single write, so the operating system has it even if the process is killed right after. Artifacts lie beside the
journal in numbered directories, `<outbox>/<run_id>/<n>/...`, which get their number only when they are complete. A
`sent` line says up to which byte the store has the journal; sending a line again stores nothing twice.

Lines: `{"uri", "run_id", "experiment"}` first, then `{"t", "s", "m": {name: value}}` (milliseconds, step, metrics),
`{"tags": {...}}`, `{"params": {...}}`, `{"dataset": {...}}`, `{"sent": byte}`, `{"discard": directory}` and
`{"end": status, "t", "tags"}`. If the run is resumed, `{"attempt": n}` comes before the lines of its n-th attempt.

A line that cannot be read is damage: another process wrote to the file, or a disk failed. All other lines are sent, the
run gets the tag `damaged`, and the journal is kept as `<outbox>/<run_id>.damaged.jsonl`. Lines that a store refuses for
good are set aside in `<outbox>/<run_id>.rejected`, which becomes an artifact of the run.
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

from pydantic_core import to_json

from featurelab.tracking.files import open_own

READ_SIZE = 2**20  # bytes
TRAINING = "training"  # the artifact directory of checkpoints to resume from: only the newest two are worth sending
GENERATIONS = 2
DAMAGED = ".damaged"  # in the file name of a journal that could not be read completely


class Busy(Exception):
    """Another process holds this journal."""


class JournalRemoved(OSError):
    """The journal is no longer the file at its path: lines added to it would be lost with this process."""


class JournalDamaged(OSError):
    """Another process wrote to the journal or cut it: some of what was recorded may be missing."""


class HandleClosed(OSError):
    """The trial closed file descriptors of this process, including that of the journal and perhaps of a database."""


class Journal:
    """The journal of one run, locked by this process until `close`.

    With a `header`, the file is created if it does not exist. Waits up to `patience` seconds for a process that holds
    the journal, then raises Busy. Raises Planted for anything but a plain file of this user, and OSError on a full
    disk.
    """

    def __init__(self, path: Path, *, header: Mapping[str, Any] | None = None, patience: float = 0.0) -> None:
        self.path = path
        self.spool = path.with_suffix("")
        self.rejected = path.with_suffix(".rejected")
        self.handle_closed: HandleClosed | None = None
        self.rewritten_from = math.inf  # the first byte that may have been written again since it was read
        self._damaged_lines: set[int] = set()  # the byte at which each unreadable line begins
        self._append_lock = threading.Lock()
        self._file = open_own(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if header else 0))
        self._identity = _identity(os.fstat(self._file))
        self._lock(time.monotonic() + patience)
        try:
            self._terminate_last_line()
            self._expected_size, self._appending = self.size(), 0
            if header and not any("uri" in entry for _, entry in self.lines()):
                self.append(header)
        except BaseException:
            if header and not self.size() and self._is_at_its_path():
                path.unlink()
            self.close()
            raise

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append one line, which then survives the death of this process.

        Raises OSError on a full disk, JournalRemoved, JournalDamaged or HandleClosed; then nothing was appended.
        """
        line = _encoded(entry) + b"\n"
        with self._append_lock:  # a partial line can be taken back only while it is the last
            self._require_unchanged()
            self._appending = len(line)  # a signal handler may raise right after the write
            try:
                n_written = os.write(self._file, line)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            if n_written < len(line):
                os.ftruncate(self._file, self._expected_size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            self._expected_size, self._appending = self._expected_size + n_written, 0

    def require_in_place(self) -> None:
        """Raise JournalRemoved if the open file is no longer the one at the journal's path."""
        self._fstat()
        if not self._is_at_its_path():
            raise self._removed()

    def size(self) -> int:
        """Return the length of the journal in bytes."""
        return self._fstat().st_size

    def lines(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (byte at which the line ends, line) for each complete line from byte `start` on.

        Unreadable lines are skipped and counted in `damaged`.
        """
        position, partial = start, b""
        while block := self._read(READ_SIZE, position):  # by handle: the file may no longer be at its path
            position += len(block)
            *complete, partial = (partial + block).split(b"\n")  # the last line may still be being written
            for line in complete:
                begin, start = start, start + len(line) + 1
                entry = _decoded(line)
                if entry is None or ("sent" in entry and not self._is_line_end(entry["sent"], begin)):
                    self._damaged_lines.add(begin)
                else:
                    yield start, entry

    @property
    def damaged(self) -> JournalDamaged | None:
        """The error that describes the unreadable lines among those read so far; None if there are none."""
        if not self._damaged_lines:
            return None
        count = f"{len(self._damaged_lines)} line{'s' * (len(self._damaged_lines) > 1)}"
        return JournalDamaged(f"{count} of the journal of run {self.spool.name} cannot be read: cut or overwritten")

    def read_through(self) -> None:
        """Read every line, so that `damaged` covers all of them."""
        deque(self.lines(), maxlen=0)

    def reject(self, entry: Mapping[str, Any]) -> None:
        """Set aside a line that the store refuses for good."""
        handle = open_own(self.rejected, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, _encoded(entry) + b"\n")
        finally:
            os.close(handle)

    def spooled(self) -> list[Path]:
        """Return the complete artifact directories that wait to be sent, oldest first."""
        if not self.spool.is_dir():
            return []
        return sorted((path for path in self.spool.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))

    @property
    def attempt(self) -> int:
        """The number of the last attempt that wrote to this journal, from 1 on."""
        return max((entry["attempt"] for _, entry in self.lines() if "attempt" in entry), default=1)

    @property
    def modified(self) -> int:
        """When the journal was last written to, in milliseconds since the epoch."""
        return int(os.fstat(self._file).st_mtime * 1000)

    @property
    def closed(self) -> bool:
        """Whether this process has closed the journal."""
        return self._file < 0

    def close(self) -> None:
        """Close the file, so that another process can open the journal."""
        file, self._file = self._file, -1
        with suppress(OSError):
            if file >= 0 and _identity(os.fstat(file)) == self._identity:  # else the trial has closed it
                os.close(file)

    def delete(self) -> None:
        """Delete the journal and its artifacts, and close it. Does nothing if it is closed already.

        A damaged journal is renamed instead.
        """
        if self._file < 0:
            return
        if self._is_at_its_path():
            shutil.rmtree(self.spool, ignore_errors=True)
            self.rejected.unlink(missing_ok=True)
            if self._damaged_lines:
                self.path.rename(self._unused_damaged_path())
            else:
                self.path.unlink(missing_ok=True)
        self.close()

    def _unused_damaged_path(self) -> Path:
        number, path = 1, self.path.with_suffix(f"{DAMAGED}.jsonl")
        while path.exists():
            number += 1
            path = self.path.with_suffix(f"{DAMAGED}{number}.jsonl")
        return path

    def _is_at_its_path(self) -> bool:
        try:
            return _identity(os.stat(self.path, follow_symlinks=False)) == self._identity
        except OSError:
            return False

    def _removed(self) -> JournalRemoved:
        return JournalRemoved(f"the journal {self.path} was removed or replaced while the run was recorded")

    def _require_unchanged(self) -> None:
        """Raise JournalDamaged if the file does not end where this process left it, and end it with a whole line."""
        size = self._fstat().st_size
        if not self._is_at_its_path():
            raise self._removed()
        if size == self._expected_size + self._appending:
            self._expected_size = size
        self._appending = 0
        if size != self._expected_size:
            self.rewritten_from = min(self.rewritten_from, size)
            self._damaged_lines.add(self._line_start(min(size, self._expected_size)))
            self._terminate_last_line()
            self._expected_size = self.size()
            raise JournalDamaged(f"the journal {self.path} was cut or written to by another process")

    def _fstat(self) -> os.stat_result:
        """Return the status of the open file. If its handle is no longer ours, reopen it and raise HandleClosed."""
        with suppress(OSError):
            status = os.fstat(self._file)
            if _identity(status) == self._identity:
                return status
        if self._file < 0:
            raise ValueError(f"the journal {self.path} is closed")
        self.handle_closed = HandleClosed("the trial closed file descriptors that it had not opened")
        self._file = open_own(self.path, os.O_RDWR | os.O_APPEND)
        if not self._is_at_its_path():
            raise self._removed()
        self._lock(time.monotonic())
        raise self.handle_closed

    def _read(self, length: int, start: int) -> bytes:
        self._fstat()
        return os.pread(self._file, length, start)

    def _is_line_end(self, byte: Any, before: int) -> bool:
        """Return whether a `sent` line can name this byte. True for what is no number: its type is checked later."""
        if not isinstance(byte, int):
            return True
        return 0 <= byte <= before and (not byte or os.pread(self._file, 1, byte - 1) == b"\n")

    def _terminate_last_line(self) -> None:
        """End the file with a newline: its last writer may have been killed in the middle of a line."""
        size = self.size()
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            try:
                os.write(self._file, b"\n")
            except OSError:  # the disk is full
                begin = self._line_start(size)
                os.ftruncate(self._file, begin)
                self._damaged_lines.add(begin)

    def _line_start(self, byte: int) -> int:
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
        if not os.fstat(self._file).st_nlink:  # its holder sent and deleted it while we waited
            self.close()
            raise Busy(f"{self.path} has just been sent")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_ino, status.st_dev


def _encoded(entry: Mapping[str, Any]) -> bytes:
    try:
        return to_json(entry)  # a fifth of the time of `json`, for which training waits
    except ValueError:  # from halves of surrogate pairs
        return json.dumps(entry, separators=(",", ":")).encode()


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
