"""How the lines of a journal reach the store: sent, read back, and set aside where the store refuses them for good."""

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
from featurelab.tracking.outbox.summary import Summary, metric
from featurelab.tracking.store import artifacts
from featurelab.tracking.store.answers import is_refused
from featurelab.tracking.store.store import POINTS_PER_REQUEST, Store
from featurelab.tracking.values import LARGEST

logger = logging.getLogger(__name__)

PASSING = {"status", "reason", "seconds", "cut_short"}  # tags that say how an attempt ended
OUT_OF_RANGE = "steps and times are integers of 64 bits, and times are not negative"
LONGEST_SAID = 300  # characters of the reason why a line was set aside


class NotStored(StoreError):
    """The store, or what answered in its place, took what was sent, and does not have it."""


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
        self.rejected = ""  # what the store refuses for good, in one line
        self._number_rejected = 0
        self._confirmed = 0  # up to here the journal was read back
        self._latest: dict[str, tuple[int, int]] = {}  # the last step and time of each metric sent since then
        self._labels: set[str] = set()  # tags and params sent since then
        self._alone: dict[str, str] = {}  # tags sent since then in requests without points
        self._proofs: list[Metric] = []  # the last point of each request to a server since then
        self._datasets: set[str] = set()  # digests of the data named since then
        self._on_server = store.uri.startswith("http")  # what answers for a server may be something else
        for entry in stored.entries() if stored is not None else ():
            self.summary.add(entry)
        sent = max((entry["sent"] for _, entry in journal.lines() if "sent" in entry), default=0)
        for self.read, entry in journal.lines():
            if self.read > sent:
                break
            self._notice(entry)
        self.read = self._confirmed = sent

    def step(self, *, closing: bool = False, least: int = 0) -> bool:
        """Send the next lines, up to 800 points, and say whether any were sent. Raises what the store raises.

        With `closing`, what is derived from all points goes with the last ones. Nothing is sent while there are fewer
        than `least` points.
        """
        metrics: list[Metric] = []
        tags: dict[str, Any] = {}
        params: dict[str, Any] = {}
        taken: list[dict[str, Any]] = []
        cut, self.journal.shortest = self.journal.shortest, math.inf
        self.read = int(min(self.read, cut))
        self._confirmed = min(self._confirmed, self.read)
        end, full = self.read, False
        for byte, entry in self.journal.lines(self.read):
            entry = self._missing(entry) if byte <= self.stale else entry
            points = entry.get("m", {})
            if full := bool(metrics) and len(metrics) + len(points) > POINTS_PER_REQUEST:
                break
            if points and not _in_range(entry):
                self._reject({"m": points, "s": entry["s"], "t": entry["t"]}, OUT_OF_RANGE)
                entry, points = {key: value for key, value in entry.items() if key != "m"}, {}
            metrics += [metric(name, value, entry["t"], entry["s"]) for name, value in points.items()]
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
        self._send(metrics, tags, params)
        for entry in taken:
            if "dataset" in entry:
                self._name_dataset(entry["dataset"])
            self._notice(entry)
        self.read = end
        self.derived = self.derived or last
        if self._on_server:
            if last:
                return True  # `finish` reads it back
            self._read_back()
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

        A run that has ended already is left as it is; with `running`, it is known that this one has not. Before the
        journal is deleted, the run is read back: NotStored where it lacks what was sent.
        """
        while self.step(closing=True):
            pass
        if self.unwritten:
            self._send([], self.unwritten["tags"], {})
            self._notice(self.unwritten)
        if not self.derived:
            self._send(self.summary.metrics(), {}, {})
        try:
            self.send_artifacts()
            if self.expected:
                lost = f"{len(self.expected)} were removed from the outbox before they were sent"
                self.store.set_tags(self.run_id, {"artifacts_lost": lost})
            for directory in self.discarded:
                self._delete(directory)
        finally:  # what holds an artifact up should not leave the run running
            end = self.end or {"end": status, "t": self._last_time()}
            ends = self._as_damaged(end["end"])
            if running or self.store.get_run(self.run_id).info.status in ("RUNNING", "SCHEDULED"):
                self.store.end_run(self.run_id, ends, end["t"])
        run = self._read_back()
        if run.info.status in ("RUNNING", "SCHEDULED"):
            raise NotStored(f"run {self.run_id} is still {run.info.status} in the store")
        self._let_go()

    def merge(self) -> None:
        """Send what the store lacks to a run that a later attempt has resumed, and delete the journal."""
        self.stale = math.inf
        self.discarded.add(TRAINING)  # the later attempt's own are newer
        while self.step():
            pass
        self.send_artifacts()
        if self.journal.damaged:
            self._send([], {"damaged": str(self.journal.damaged)}, {})
        self._read_back()
        self._let_go()

    def _send(self, metrics: Sequence[Metric], tags: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Send these; what the store refuses for good is looked for by halves, and set aside."""
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
            for labels in filter(None, _halves(list(tags.items()))):
                self._send([], dict(labels), {})
            for settings in filter(None, _halves(list(params.items()))):
                self._send([], {}, dict(settings))
            return
        for m in metrics:
            self._latest[m.key] = max(self._latest.get(m.key, _place(m)), _place(m))
        self._labels |= tags.keys() | params.keys()
        if self._on_server:
            self._proofs += [*metrics[POINTS_PER_REQUEST - 1 : -1 : POINTS_PER_REQUEST], *metrics[-1:]]
            if not metrics:
                self._alone |= {name: str(value) for name, value in tags.items()}

    def _name_dataset(self, dataset: dict[str, Any]) -> None:
        try:
            self.store.log_dataset(self.run_id, **dataset)
        except Exception as error:
            if not is_refused(error):
                raise
            self._reject({"dataset": dataset}, str(error))
        else:
            self._datasets.add(dataset["digest"])

    def _reject(self, entry: Mapping[str, Any], reason: str) -> None:
        """Set aside what the store refuses, and say so in a tag: a store that takes that is not away."""
        self._number_rejected += 1
        if not self.rejected:
            self.rejected = line(f"{_named(entry)}: {reason}", LONGEST_SAID)
            logger.warning(
                "run %s: the store refuses what is set aside in rejected.jsonl: %s", self.run_id, self.rejected
            )
        more = f", and {self._number_rejected - 1} more" if self._number_rejected > 1 else ""
        self.store.set_tags(self.run_id, {"rejected": f"{self.rejected}{more} (see rejected.jsonl)"})
        self.journal.reject(entry)

    def _keep_rejected(self) -> None:
        """Make what was set aside an artifact of the run, also where an earlier process did so."""
        if self.journal.rejected.exists():
            number = self.journal.attempt
            name = "rejected.jsonl" if number == 1 else f"rejected_{number}.jsonl"
            self.store.log_text(self.run_id, read_own(self.journal.rejected), name)

    def _as_damaged(self, status: str) -> str:
        """The status with which the run ends: a trial some of whose lines are missing did not go well."""
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
        """Return the run. Raises NotStored where it lacks what was sent, which is then sent again."""
        run = self.store.get_run(self.run_id)
        missing = self._lacking(run)
        for sent in (self._latest, self._labels, self._alone, self._proofs, self._datasets):
            sent.clear()
        if missing:
            self.read, self.derived = self._confirmed, False
            raise NotStored(f"the store lacks what it was sent: {', '.join(missing):.200}")
        self._confirmed = self.read
        return run

    def _lacking(self, run: Run) -> list[str]:
        """Name what was sent and is not in the run.

        A request is stored as a whole, so that its last point stands for all of it. Where that is not the latest of
        its metric, all points of the metric are read.
        """
        known = {m.key: m for m in run.data._metric_objs}
        missing = [name for name, last in self._latest.items() if name not in known or _place(known[name]) < last]
        missing += self._labels - run.data.tags.keys() - run.data.params.keys()
        # a store may cut a long text
        missing += [name for name, value in self._alone.items() if value[:250] != run.data.tags.get(name, "")[:250]]
        named = run.inputs.dataset_inputs if run.inputs else []
        missing += self._datasets - {one.dataset.digest for one in named}
        doubtful = [m for m in self._proofs if m.key not in missing and not _equal(known[m.key], m)]
        for name in dict.fromkeys(m.key for m in doubtful):
            points = self.store.patiently(self.store.client.get_metric_history, self.run_id, name)
            if not all(any(_equal(point, m) for point in points) for m in doubtful if m.key == name):
                missing.append(name)
        return missing

    def _let_go(self) -> None:
        self._keep_rejected()
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
        return max(times, default=self.journal.changed)


def _place(point: Metric) -> tuple[int, int]:
    return point.step, point.timestamp


def _equal(one: Metric, other: Metric) -> bool:
    return _place(one) == _place(other) and same(one.value, other.value)


def _in_range(entry: Mapping[str, Any]) -> bool:
    step, time = int(entry["s"]), int(entry["t"])
    return -LARGEST - 1 <= step <= LARGEST and 0 <= time <= LARGEST


def _halves(items: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    return items[: len(items) // 2], items[len(items) // 2 :]


def _named(entry: Mapping[str, Any]) -> str:
    """What a line that was set aside is about."""
    if "m" in entry:
        return f"metric {', '.join(entry['m']):.80} at step {quoted(entry['s'])}"
    kind, found = next(iter(entry.items()))
    return f"{kind} {', '.join(found):.80}"
