"""What a run recorded, kept in a file until the store has it.

The journal of a run is `<outbox>/<run_id>.jsonl`: a header, then one JSON line for each recorded thing, appended with
one write each, so that the operating system has it even if the process is killed at once. Artifacts lie beside it as
numbered directories, `<outbox>/<run_id>/<n>/...`, which get their number only when complete. A `sent` line says up to
which byte the journal is in the store; sending again what was sent stores nothing twice.

Lines: `{"uri", "run_id", "experiment"}` first, then `{"t", "s", "m": {name: value}}` (milliseconds, step, metrics),
`{"tags": {...}}`, `{"dataset": {...}}`, `{"sent": byte}` and `{"end": status, "t", "tags"}`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlflow.entities import Metric

from .store import Store

POINTS_PER_REQUEST = 1000  # MLflow's bound
DERIVED = ("final/", "best/")
DIRECTION = {"loss": min, "error": min, "accuracy": max}  # by the first part of a metric's name: which value is best

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Busy(Exception):
    """Another process holds this journal."""


class Journal:
    """The journal of one run, held by this process alone until `close`. Raises Busy where another one holds it."""

    def __init__(self, path: Path, *, header: Mapping[str, Any] | None = None, patience: float = 0.0) -> None:
        self.path = path
        self.spool = path.with_suffix("")
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if header else 0)
        self._file = os.open(path, flags, 0o600)
        self._lock(time.monotonic() + patience)
        size = self.size()
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # the last writer was killed in the middle of a line
        if header and not any("uri" in entry for _, entry in self.lines()):
            self.append(header)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one line, which then survives the death of this process. OSError where the disk is full."""
        line = _encode(entry).encode() + b"\n"
        if os.write(self._file, line) < len(line):
            os.write(self._file, b"\n")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def size(self) -> int:
        """Return the length of the journal in bytes."""
        return os.fstat(self._file).st_size

    def lines(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each whole line from byte `start` on, with the byte at which it ends. Cut lines are passed over."""
        with open(self.path, "rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # still being written
                start += len(line)
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

    def close(self) -> None:
        """Let go, so that another process can take the journal up."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def delete(self) -> None:
        """Remove the journal and its artifacts: everything is in the store. Nothing is done once it is closed."""
        if self._file < 0:
            return
        shutil.rmtree(self.spool, ignore_errors=True)
        self.path.unlink(missing_ok=True)
        self.close()

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
    """The last and the best value of each metric, which every run carries as `final/<name>` and `best/<name>`."""

    last: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Take in one line of metrics."""
        for name, value in entry["m"].items():
            if name.startswith(DERIVED):
                continue
            self.last[name] = (entry["t"], entry["s"], value)
            better = DIRECTION.get(name.split("/", 1)[0])
            if better and math.isfinite(value):
                self.best[name] = better(value, self.best.get(name, value))

    def metrics(self) -> list[Metric]:
        """Return the derived metrics, each at the time and step of the last point."""
        final = [_metric(f"final/{name}", value, t, step) for name, (t, step, value) in self.last.items()]
        best = [_metric(f"best/{name}", value, *self.last[name][:2]) for name, value in self.best.items()]
        return final + best


class Delivery:
    """Sends a journal to the store, in any number of steps, by the process that wrote it or by a later one."""

    def __init__(self, store: Store, journal: Journal, run_id: str) -> None:
        self.store, self.journal, self.run_id = store, journal, run_id
        self.read = 0  # up to here the journal is in the store
        self.summary = Summary()
        self.end: dict[str, Any] | None = None
        sent = max((entry["sent"] for _, entry in journal.lines() if "sent" in entry), default=0)
        for self.read, entry in journal.lines():
            if self.read > sent:
                break
            self._notice(entry)
        self.read = sent

    def step(self) -> bool:
        """Send the next lines, up to 1000 points, and say whether there were any. Raises what the store raises."""
        metrics: list[Metric] = []
        tags: dict[str, Any] = {}
        taken: list[dict[str, Any]] = []
        end = self.read
        for byte, entry in self.journal.lines(self.read):
            points = entry.get("m", {})
            if metrics and len(metrics) + len(points) > POINTS_PER_REQUEST:
                break
            metrics += [_metric(name, value, entry["t"], entry["s"]) for name, value in points.items()]
            tags |= entry.get("tags", {})
            taken.append(entry)
            end = byte
        if end == self.read:
            return False
        self._send_metrics(metrics)
        self.store.set_tags(self.run_id, tags)
        for entry in taken:
            if "dataset" in entry:
                self.store.log_dataset(self.run_id, **entry["dataset"])
            self._notice(entry)
        self.read = end
        if any("sent" not in entry for entry in taken):
            self.journal.append({"sent": end})
        return True

    def send_artifacts(self) -> None:
        """Send what waits in the spool. Raises what the store raises."""
        for directory in self.journal.spooled():
            self.store.log_tree(self.run_id, directory)
            shutil.rmtree(directory)

    def finish(self, status: str) -> None:
        """Send everything, end the run (as the journal says, else with `status`), and delete the journal."""
        while self.step():
            pass
        self._send_metrics(self.summary.metrics())
        try:
            self.send_artifacts()
        finally:  # what holds an artifact up should not leave the run running
            end = self.end or {"end": status, "t": self._last_time()}
            if self.store.get_run(self.run_id).info.status in ("RUNNING", "SCHEDULED"):
                self.store.end_run(self.run_id, end["end"], end["t"])
        self.journal.delete()

    def _send_metrics(self, metrics: list[Metric]) -> None:
        for start in range(0, len(metrics), POINTS_PER_REQUEST):
            self.store.log_metrics(self.run_id, metrics[start : start + POINTS_PER_REQUEST])

    def _notice(self, entry: dict[str, Any]) -> None:
        if "m" in entry:
            self.summary.add(entry)
        if "end" in entry:
            self.end = entry

    def _last_time(self) -> int:
        times = [t for t, _, _ in self.summary.last.values()]
        return max(times, default=int(self.journal.path.stat().st_mtime * 1000))


def _metric(name: str, value: float, t: int, step: int) -> Metric:
    # MLflow turns inf into 1.8e308, which would be plotted; the tag `nonfinite/<name>` says where it happened
    return Metric(name, value if math.isfinite(value) else math.nan, t, step)
