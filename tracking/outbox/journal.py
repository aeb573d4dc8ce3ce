"""What a run recorded, kept in a file until the store has it.

The journal of a run is `<outbox>/<run_id>.jsonl`: a header, then one JSON line for each recorded thing, appended with
one write each, so that the operating system has it even if the process is killed at once. Artifacts lie beside it as
numbered directories, `<outbox>/<run_id>/<n>/...`, which get their number only when complete. A `sent` line says up to
which byte the journal is in the store; sending again what was sent stores nothing twice.

Lines: `{"uri", "run_id", "experiment"}` first, then `{"t", "s", "m": {name: value}}` (milliseconds, step, metrics),
`{"tags": {...}}`, `{"params": {...}}`, `{"dataset": {...}}`, `{"sent": byte}`, `{"discard": directory}` and
`{"end": status, "t", "tags"}`. Where a run is resumed, `{"attempt": n}` stands before what its n-th attempt
recorded.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.entities import Metric

from featurelab.tracking.files import open_own, require_plain_tree
from featurelab.tracking.store import artifacts
from featurelab.tracking.store.store import POINTS_PER_REQUEST, Store
from featurelab.tracking.values import BEST, DERIVED

if TYPE_CHECKING:
    from featurelab.tracking.outbox.earlier import Earlier

logger = logging.getLogger(__name__)

BLOCK = 2**20  # bytes read at once
TRAINING = "training"  # the artifact directory of checkpoints to resume from: only the newest two are worth sending
GENERATIONS = 2
PASSING = {"status", "reason", "seconds", "cut_short"}  # tags that say how an attempt ended
DIRECTION = {"loss": min, "error": min, "accuracy": max}  # by the first part of a metric's name: which value is best

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Busy(Exception):
    """Another process holds this journal."""


class JournalRemoved(OSError):
    """The journal is no longer the file at its path: what is added to it would be lost with this process."""


class Journal:
    """The journal of one run, held by this process alone until `close`.

    Raises Busy where another process holds it, Planted where it is not a plain file of this user's.
    """

    def __init__(self, path: Path, *, header: Mapping[str, Any] | None = None, patience: float = 0.0) -> None:
        self.path = path
        self.spool = path.with_suffix("")
        self._one = threading.Lock()
        self._file = open_own(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if header else 0))
        self._lock(time.monotonic() + patience)
        try:
            self._end_cut_line()
            if header and not any("uri" in entry for _, entry in self.lines()):
                self.append(header)
        except BaseException:
            self.close()
            raise

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one line, which then survives the death of this process.

        Raises OSError on a full disk and JournalRemoved, and then has added nothing.
        """
        self.require_in_place()
        line = _encode(entry).encode() + b"\n"
        with self._one:  # what was cut can be taken back only while it is the end
            try:
                written = os.write(self._file, line)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            if written < len(line):
                os.ftruncate(self._file, self.size() - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def require_in_place(self) -> None:
        """Raise JournalRemoved where the file that we hold is no longer the one at the path."""
        if not self._in_place():
            raise JournalRemoved(f"the journal {self.path} was removed or replaced while the run was recorded")

    def size(self) -> int:
        """Return the length of the journal in bytes."""
        return os.fstat(self._file).st_size

    def lines(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each whole line from byte `start` on, with the byte at which it ends. Cut lines are passed over."""
        read, rest = start, b""
        while block := os.pread(self._file, BLOCK, read):  # not by its path, where it may no longer be
            read += len(block)
            *whole, rest = (rest + block).split(b"\n")  # the rest is still being written
            for line in whole:
                start += len(line) + 1
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict):
                    yield start, entry

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

    def close(self) -> None:
        """Let go, so that another process can take the journal up."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def delete(self) -> None:
        """Remove the journal and its artifacts: everything is in the store. Nothing is done once it is closed."""
        if self._file < 0:
            return
        if self._in_place():
            shutil.rmtree(self.spool, ignore_errors=True)
            self.path.unlink(missing_ok=True)
        self.close()

    def _in_place(self) -> bool:
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        ours = os.fstat(self._file)
        return (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev)

    def _end_cut_line(self) -> None:
        """The last writer may have been killed in the middle of a line."""
        size = self.size()
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            try:
                os.write(self._file, b"\n")
            except OSError:  # a full disk
                os.ftruncate(self._file, os.pread(self._file, size, 0).rfind(b"\n") + 1)

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


@dataclass
class Summary:
    """The best value of each loss, error and accuracy: of `loss/test` the run carries it as `best.loss.test`."""

    last: dict[str, tuple[int, int]] = field(default_factory=dict)  # time and step of the last point
    best: dict[str, float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Take in one line of metrics."""
        for name, value in entry["m"].items():
            if name.startswith(DERIVED):
                continue
            self.last[name] = (entry["t"], entry["s"])
            better = DIRECTION.get(name.split("/", 1)[0])
            if better and math.isfinite(value):
                self.best[name] = better(value, self.best.get(name, value))

    def metrics(self) -> list[Metric]:
        """Return the derived metrics, each at the time and step of the last point."""
        return [_metric(BEST + name.replace("/", "."), value, *self.last[name]) for name, value in self.best.items()]


class Delivery:
    """Sends a journal to the store, in any number of steps, by the process that wrote it or by a later one.

    `stored` is what the store holds of earlier attempts at the run. Lines up to byte `stale` are theirs: of these only
    points that the store lacks are sent, and not how they ended.
    """

    def __init__(
        self, store: Store, journal: Journal, run_id: str, *, stored: Earlier | None = None, stale: float = 0
    ) -> None:
        self.store, self.journal, self.run_id = store, journal, run_id
        self.stored, self.stale = stored, stale
        self.read = 0  # up to here the journal is in the store
        self.summary = Summary()
        self.end: dict[str, Any] | None = None
        self.unwritten: dict[str, Any] | None = None  # the end of the run, where the journal has no room for it
        self.discarded: set[str] = set()
        self.expected: set[str] = set()  # names of artifact directories that this process has spooled
        self.finished = False
        self.derived = False  # whether what the summary says is in the store
        for entry in stored.entries() if stored is not None else ():
            self.summary.add(entry)
        sent = max((entry["sent"] for _, entry in journal.lines() if "sent" in entry), default=0)
        for self.read, entry in journal.lines():
            if self.read > sent:
                break
            self._notice(entry)
        self.read = sent

    def step(self, *, closing: bool = False, least: int = 0) -> bool:
        """Send the next lines, up to 800 points, and say whether any were sent. Raises what the store raises.

        With `closing`, what is derived from all points goes with the last ones. Nothing is sent while there are fewer
        than `least` points.
        """
        metrics: list[Metric] = []
        tags: dict[str, Any] = {}
        params: dict[str, Any] = {}
        taken: list[dict[str, Any]] = []
        end, full = self.read, False
        for byte, entry in self.journal.lines(self.read):
            entry = self._missing(entry) if byte <= self.stale else entry
            points = entry.get("m", {})
            if full := bool(metrics) and len(metrics) + len(points) > POINTS_PER_REQUEST:
                break
            metrics += [_metric(name, value, entry["t"], entry["s"]) for name, value in points.items()]
            tags |= entry.get("tags", {})
            params |= entry.get("params", {})
            taken.append(entry)
            end = byte
        if end == self.read or not (full or len(metrics) >= least):
            return False
        last = closing and not self.derived and end == self.journal.size()
        if last:
            for entry in taken:
                self._notice(entry)  # again below, which changes nothing
            metrics += self.summary.metrics()
        self.store.log_metrics(self.run_id, metrics, tags, params)
        self.derived = self.derived or last
        for entry in taken:
            if "dataset" in entry:
                self.store.log_dataset(self.run_id, **entry["dataset"])
            self._notice(entry)
        self.read = end
        if any("sent" not in entry for entry in taken):
            with suppress(OSError):  # on a full disk: it only spares sending again
                self.journal.append({"sent": end})
        return True

    def waiting(self) -> list[Path]:
        """The artifacts to send, oldest first; checkpoints that newer ones have replaced are dropped here."""
        directories = self.journal.spooled()
        training = [directory for directory in directories if (directory / TRAINING).is_dir()]
        kept = 0 if TRAINING in self.discarded else GENERATIONS
        for replaced in training[: max(0, len(training) - kept)]:
            shutil.rmtree(replaced)
            directories.remove(replaced)
            self.expected.discard(replaced.name)
        return directories

    def send_artifacts(self, directories: Sequence[Path] | None = None) -> None:
        """Send these artifacts, or all that wait. Raises what the store raises."""
        for directory in self.waiting() if directories is None else directories:
            require_plain_tree(directory)
            self.store.log_tree(self.run_id, directory)
            shutil.rmtree(directory)
            self.expected.discard(directory.name)

    def finish(self, status: str, *, running: bool = False) -> None:
        """Send everything, end the run (as the journal says, else with `status`), and delete the journal.

        A run that has ended already is left as it is; with `running`, it is known that this one has not.
        """
        while self.step(closing=True):
            pass
        if self.unwritten:
            self.store.set_tags(self.run_id, self.unwritten["tags"])
            self._notice(self.unwritten)
        if not self.derived:
            self.store.log_metrics(self.run_id, self.summary.metrics())
        try:
            self.send_artifacts()
            if self.expected:
                lost = f"{len(self.expected)} were removed from the outbox before they were sent"
                self.store.set_tags(self.run_id, {"artifacts_lost": lost})
            for directory in self.discarded:
                self._delete(directory)
        finally:  # what holds an artifact up should not leave the run running
            end = self.end or {"end": status, "t": self._last_time()}
            if running or self.store.get_run(self.run_id).info.status in ("RUNNING", "SCHEDULED"):
                self.store.end_run(self.run_id, end["end"], end["t"])
        self._let_go()

    def merge(self) -> None:
        """Send what the store lacks to a run that a later attempt has resumed, and delete the journal."""
        self.stale = math.inf
        self.discarded.add(TRAINING)  # the later attempt's own are newer
        while self.step():
            pass
        self.send_artifacts()
        self._let_go()

    def _let_go(self) -> None:
        self.store.require_in_place()  # what has taken it may be a file that nobody finds again
        self.journal.delete()
        self.finished = True

    def _missing(self, entry: dict[str, Any]) -> dict[str, Any]:
        """A line of an earlier attempt without what the store has got, and without how that attempt ended."""
        kept = {key: value for key, value in entry.items() if key not in ("end", "discard")}
        if "m" in kept and self.stored is not None:
            step = kept["s"]
            kept["m"] = {name: v for name, v in kept["m"].items() if not self.stored.holds(name, step, v)}
        if "tags" in kept:
            kept["tags"] = {name: value for name, value in kept["tags"].items() if name not in PASSING}
        return kept

    def _delete(self, directory: str) -> None:
        """Not every place where artifacts lie lets them be deleted; what stays there does no harm."""
        try:
            self.store.delete_artifacts(self.run_id, directory)
        except Exception as error:
            logger.info("run %s keeps %s: %s", self.run_id, directory, error)

    def _notice(self, entry: dict[str, Any]) -> None:
        if "m" in entry:
            self.summary.add(entry)
        if "attempt" in entry:
            self.end = None
        if "discard" in entry:
            self.discarded.add(artifacts.checked(entry["discard"]))
        if "end" in entry:
            self.end = entry

    def _last_time(self) -> int:
        times = [t for t, _ in self.summary.last.values()]
        return max(times, default=self.journal.changed)


def _metric(name: str, value: float, t: int, step: int) -> Metric:
    # MLflow turns inf into 1.8e308, which would be plotted; the tag `nonfinite/<name>` says where it happened
    return Metric(name, value if math.isfinite(value) else math.nan, t, step)
