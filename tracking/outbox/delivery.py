"""Deliver a journal to the store: send its lines, read them back, and set aside what the store refuses for good."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Run

from featurelab.tracking.errors import StoreError
from featurelab.tracking.files import read_own, require_plain_tree
from featurelab.tracking.lines import line, quoted
from featurelab.tracking.outbox.earlier import Earlier, same
from featurelab.tracking.outbox.journal import GENERATIONS, TRAINING, Journal
from featurelab.tracking.outbox.summary import Summary, points_of
from featurelab.tracking.store import artifacts
from featurelab.tracking.store.answers import is_refused
from featurelab.tracking.store.points import Point
from featurelab.tracking.store.store import POINTS_PER_REQUEST, Store
from featurelab.tracking.values import LARGEST

logger = logging.getLogger(__name__)

OUTCOME_TAGS = {"status", "reason", "seconds", "cut_short"}  # how an attempt ended; a later attempt writes its own
UNFINISHED = ("RUNNING", "SCHEDULED")
OUT_OF_RANGE = "steps and times are integers of 64 bits, and times are not negative"
LONGEST_REASON = 300  # characters


class NotStored(StoreError):
    """The store, or whatever answered in its place, accepted data that it does not have."""


class Delivery:
    """Delivers a journal to the store in any number of steps, in the process that wrote it or in a later one.

    `stored` holds the points of earlier attempts that the store has. Lines up to byte `stale` were written by earlier
    attempts: of these, only points that the store lacks are sent, and not how the attempt ended.
    """

    def __init__(
        self, store: Store, journal: Journal, run_id: str, *, stored: Earlier | None = None, stale: float = 0
    ) -> None:
        self.store, self.journal, self.run_id = store, journal, run_id
        self.stored, self.stale = stored, stale
        self.position = 0  # the store has the journal up to this byte
        self.summary = Summary()
        self.summary_sent = False
        self.end: dict[str, Any] | None = None  # the journal's last `end` line
        self.unwritten_end: dict[str, Any] | None = None  # an `end` line for which the disk had no space
        self.discarded: set[str] = set()  # artifact directories to delete when the run ends
        self.expected: set[str] = set()  # artifact directories that this process has spooled and not yet sent
        self.finished = False
        self.rejected = ""  # the first thing that the store refused for good, in one line
        self._n_rejected = 0
        # sent since the run was last read back, and not yet confirmed
        self._confirmed_position = 0
        self._latest: dict[str, tuple[int, int]] = {}  # the last step and time of each metric
        self._labels: set[str] = set()  # names of tags and params
        self._tags_sent_alone: dict[str, str] = {}  # tags from requests without points
        self._last_points: list[Point] = []  # the last point of each request to a server
        self._datasets: set[str] = set()  # digests
        self._is_server = store.uri.startswith("http")  # a proxy may answer in its place
        for entry in stored.journal_lines() if stored is not None else ():
            self.summary.add(entry)
        sent = max((entry["sent"] for _, entry in journal.lines() if "sent" in entry), default=0)
        for byte, entry in journal.lines():
            if byte > sent:
                break
            self._take_note(entry)
        self.position = self._confirmed_position = sent

    def step(self, *, closing: bool = False, least: int = 0) -> bool:
        """Send the next lines, up to a full request, and return whether there were any. Raises what the store raises.

        With `closing`, the last lines take the summary of all points with them. Nothing is sent while fewer than
        `least` points wait.
        """
        metrics: list[Point] = []
        tags: dict[str, Any] = {}
        params: dict[str, Any] = {}
        batch: list[dict[str, Any]] = []
        rewritten_from, self.journal.rewritten_from = self.journal.rewritten_from, math.inf
        self.position = int(min(self.position, rewritten_from))
        self._confirmed_position = min(self._confirmed_position, self.position)
        end, full, most_points = self.position, False, self.store.most_points
        for byte, entry in self.journal.lines(self.position):
            entry = self._what_store_lacks(entry) if byte <= self.stale else entry
            points = entry.get("m", {})
            if full := bool(metrics) and len(metrics) + len(points) > most_points:
                break
            if points and not _in_range(entry):
                self._reject({"m": points, "s": entry["s"], "t": entry["t"]}, OUT_OF_RANGE)
                entry, points = {key: value for key, value in entry.items() if key != "m"}, {}
            if points:
                metrics += points_of(entry)
            tags |= entry.get("tags", {})
            params |= entry.get("params", {})
            batch.append(entry)
            end = byte
        if end == self.position or not (full or len(metrics) >= least):
            return False
        is_last = closing and not self.summary_sent and end == self.journal.size()
        if is_last:
            for entry in batch:
                self._take_note(entry)  # repeated below, which changes nothing
            metrics += self.summary.metrics()
        self._send(metrics, tags, params)
        for entry in batch:
            if "dataset" in entry:
                self._send_dataset(entry["dataset"])
            self._take_note(entry)
        self.position = end
        self.summary_sent = self.summary_sent or is_last
        if self._is_server:
            if is_last:
                return True  # `finish` reads the run back
            self._read_back()
        if any("sent" not in entry for entry in batch):
            with suppress(OSError):  # on a full disk: the line only avoids sending again
                self.journal.append({"sent": end})
        return True

    def waiting(self) -> list[Path]:
        """Return the artifact directories to send, oldest first, after dropping superseded checkpoints."""
        directories = self.journal.spooled()
        checkpoints = [directory for directory in directories if (directory / TRAINING).is_dir()]
        n_kept = 0 if TRAINING in self.discarded else GENERATIONS
        for superseded in checkpoints[: max(0, len(checkpoints) - n_kept)]:
            shutil.rmtree(superseded)
            directories.remove(superseded)
            self.expected.discard(superseded.name)
        return directories

    def send_artifacts(self, directories: Sequence[Path] | None = None) -> None:
        """Send these artifact directories, by default all that wait. Raises what the store raises, and Planted."""
        for directory in self.waiting() if directories is None else directories:
            require_plain_tree(directory)
            self.store.log_tree(self.run_id, directory)
            shutil.rmtree(directory)
            self.expected.discard(directory.name)

    def finish(self, status: str, *, running: bool = False) -> None:
        """Send everything, end the run and delete the journal.

        The run ends with the status in the journal, else with `status`. A run that has ended is left as it is;
        `running` says that this one has not. Before the journal is deleted the run is read back. Raises NotStored if
        the store lacks what was sent, and what the store raises.
        """
        while self.step(closing=True):
            pass
        if self.unwritten_end:
            self._send([], self.unwritten_end["tags"], {})
            self._take_note(self.unwritten_end)
        if not self.summary_sent:
            self._send(self.summary.metrics(), {}, {})
        try:
            self.send_artifacts()
            if self.expected:
                lost = f"{len(self.expected)} were removed from the outbox before they were sent"
                self.store.set_tags(self.run_id, {"artifacts_lost": lost})
            for directory in self.discarded:
                self._delete_artifacts(directory)
        finally:  # an artifact that cannot be sent must not leave the run running
            end = self.end or {"end": status, "t": self._last_time()}
            final_status = self._status_if_damaged(end["end"])
            if running or self.store.get_run(self.run_id).info.status in UNFINISHED:
                self.store.end_run(self.run_id, final_status, end["t"])
        run = self._read_back()
        if run.info.status in UNFINISHED:
            raise NotStored(f"run {self.run_id} is still {run.info.status} in the store")
        self._delete_journal()

    def merge(self) -> None:
        """Send what the store lacks to a run that a later attempt has resumed, and delete the journal."""
        self.stale = math.inf
        self.discarded.add(TRAINING)  # those of the later attempt are newer
        while self.step():
            pass
        self.send_artifacts()
        if self.journal.damaged:
            self._send([], {"damaged": str(self.journal.damaged)}, {})
        self._read_back()
        self._delete_journal()

    def _send(self, metrics: Sequence[Point], tags: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Send a request. If the store refuses it for good, split it in halves until what it refuses is set aside."""
        try:
            self.store.log_metrics(self.run_id, metrics, tags, params)
        except Exception as error:
            if not is_refused(error):
                raise
            if len(metrics) + len(tags) + len(params) == 1:
                entries = [{"m": {m.key: m.value}, "s": m.step, "t": m.timestamp} for m in metrics]
                self._reject((entries or [{"tags": {**tags}} if tags else {"params": {**params}}])[0], str(error))
                return
            for points in filter(None, _halves(metrics)):
                self._send(points, {}, {})
            for some_tags in filter(None, _halves(list(tags.items()))):
                self._send([], dict(some_tags), {})
            for some_params in filter(None, _halves(list(params.items()))):
                self._send([], {}, dict(some_params))
            return
        for name, _, time, step, _ in metrics:
            place = step, time
            if place > self._latest.get(name, ()):
                self._latest[name] = place
        self._labels |= tags.keys() | params.keys()
        if self._is_server:
            self._last_points += [*metrics[POINTS_PER_REQUEST - 1 : -1 : POINTS_PER_REQUEST], *metrics[-1:]]
            if not metrics:
                self._tags_sent_alone |= {name: str(value) for name, value in tags.items()}

    def _send_dataset(self, dataset: dict[str, Any]) -> None:
        try:
            self.store.log_dataset(self.run_id, **dataset)
        except Exception as error:
            if not is_refused(error):
                raise
            self._reject({"dataset": dataset}, str(error))
        else:
            self._datasets.add(dataset["digest"])

    def _reject(self, entry: Mapping[str, Any], reason: str) -> None:
        """Set aside what the store refuses, and tag the run: a store that accepts the tag is not away."""
        self._n_rejected += 1
        if not self.rejected:
            self.rejected = line(f"{_described(entry)}: {reason}", LONGEST_REASON)
            logger.warning(
                "run %s: the store refused data, now set aside in rejected.jsonl: %s", self.run_id, self.rejected
            )
        more = f", and {self._n_rejected - 1} more" if self._n_rejected > 1 else ""
        self.store.set_tags(self.run_id, {"rejected": f"{self.rejected}{more} (see rejected.jsonl)"})
        self.journal.reject(entry)

    def _store_rejected(self) -> None:
        """Make the set-aside lines an artifact of the run, including those of an earlier process."""
        if self.journal.rejected.exists():
            number = self.journal.attempt
            name = "rejected.jsonl" if number == 1 else f"rejected_{number}.jsonl"
            self.store.log_text(self.run_id, read_own(self.journal.rejected), name)

    def _status_if_damaged(self, status: str) -> str:
        """Return the status with which the run ends, after tagging a damaged run: it cannot have finished."""
        damaged = self.journal.damaged
        if damaged is None:
            return status
        tags = {"damaged": str(damaged)}
        if status == "FINISHED":
            status = "FAILED"
            tags |= {"status": "failed", "reason": str(damaged), "cut_short": "true"}
        self._send([], tags, {})
        return status

    def _read_back(self) -> Run:
        """Return the run as stored. Raises NotStored if it lacks what was sent, which is then sent again."""
        run = self.store.get_run(self.run_id)
        missing = self._missing_from(run)
        for unconfirmed in (self._latest, self._labels, self._tags_sent_alone, self._last_points, self._datasets):
            unconfirmed.clear()
        if missing:
            self.position, self.summary_sent = self._confirmed_position, False
            raise NotStored(f"the store lacks what it was sent: {', '.join(missing):.200}")
        self._confirmed_position = self.position
        return run

    def _missing_from(self, run: Run) -> list[str]:
        """Return the names of what was sent and is not in the run.

        The store takes a request as a whole, so its last point stands for all of it. If that point is not the latest
        of its metric, all points of the metric are read.
        """
        stored = {m.key: m for m in run.data._metric_objs}
        missing = [name for name, last in self._latest.items() if name not in stored or _place(stored[name]) < last]
        missing += self._labels - run.data.tags.keys() - run.data.params.keys()
        tags = run.data.tags  # compared by their beginning: a store may cut a long text
        missing += [name for name, value in self._tags_sent_alone.items() if value[:250] != tags.get(name, "")[:250]]
        datasets = run.inputs.dataset_inputs if run.inputs else []
        missing += self._datasets - {each.dataset.digest for each in datasets}
        doubtful = [m for m in self._last_points if m.key not in missing and not _equal(stored[m.key], m)]
        for name in dict.fromkeys(m.key for m in doubtful):
            points = self.store.patiently(self.store.client.get_metric_history, self.run_id, name)
            if not all(any(_equal(point, m) for point in points) for m in doubtful if m.key == name):
                missing.append(name)
        return missing

    def _delete_journal(self) -> None:
        self._store_rejected()
        self.store.require_in_place()  # else the data went into a file that has been removed or replaced
        self.journal.delete()
        self.finished = True

    def _what_store_lacks(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return a line of an earlier attempt without stored points, and without how that attempt ended."""
        rest = {key: value for key, value in entry.items() if key not in ("end", "discard")}
        if "m" in rest and self.stored is not None:
            step = rest["s"]
            rest["m"] = {name: v for name, v in rest["m"].items() if not self.stored.holds(name, step, v)}
        if "tags" in rest:
            rest["tags"] = {name: value for name, value in rest["tags"].items() if name not in OUTCOME_TAGS}
        return rest

    def _delete_artifacts(self, directory: str) -> None:
        """Delete artifacts if the place where they lie allows it; otherwise they stay, which does no harm."""
        try:
            self.store.delete_artifacts(self.run_id, directory)
        except Exception as error:
            logger.info("run %s keeps %s: %s", self.run_id, directory, error)

    def _take_note(self, entry: dict[str, Any]) -> None:
        """Update the summary, the discarded directories and the run's end from one line."""
        if "m" in entry and _in_range(entry):
            self.summary.add(entry)
        if "attempt" in entry:
            self.end = None
        if "discard" in entry:
            self.discarded.add(artifacts.checked(entry["discard"]))
        if "end" in entry:
            self.end = entry

    def _last_time(self) -> int:
        times = [t for t, _ in self.summary.last.values()]
        return max(times, default=self.journal.modified)


def _place(point: Metric | Point) -> tuple[int, int]:
    return point.step, point.timestamp


def _equal(one: Metric, other: Point) -> bool:
    return _place(one) == _place(other) and same(one.value, other.value)


def _in_range(entry: Mapping[str, Any]) -> bool:
    step, time = int(entry["s"]), int(entry["t"])
    return -LARGEST - 1 <= step <= LARGEST and 0 <= time <= LARGEST


def _halves(items: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    return items[: len(items) // 2], items[len(items) // 2 :]


def _described(entry: Mapping[str, Any]) -> str:
    """Return what a rejected line is about, such as "metric loss/train at step 3"."""
    if "m" in entry:
        return f"metric {', '.join(entry['m']):.80} at step {quoted(entry['s'])}"
    kind, names = next(iter(entry.items()))
    return f"{kind} {', '.join(names):.80}"
