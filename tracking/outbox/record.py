"""The recorder a trial writes to. What was recorded is never lost and never holds up training."""

from __future__ import annotations

import atexit
import itertools
import logging
import math
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from featurelab.tracking.errors import StoreError
from featurelab.tracking.lines import without_credentials
from featurelab.tracking.outbox.bound import Bound, size_of
from featurelab.tracking.outbox.delivery import Sender
from featurelab.tracking.outbox.earlier import Earlier, same
from featurelab.tracking.outbox.elsewhere import send_from_another_process
from featurelab.tracking.outbox.journal import TRAINING, HandleClosed, Journal, JournalRemoved
from featurelab.tracking.outbox.sending import Delivery
from featurelab.tracking.outbox.sync import Synced, sync
from featurelab.tracking.store import artifacts
from featurelab.tracking.store.store import POINTS_PER_REQUEST, Store
from featurelab.tracking.values import check_name, check_step, integer, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Listener = Callable[[Mapping[str, float], int], None]

logger = logging.getLogger(__name__)

__all__ = ["Diverged", "Listener", "Recorder", "Synced", "now", "sync"]

STATUSES = ("FINISHED", "FAILED", "KILLED")
PATIENCE = 20.0  # seconds for a process that recorded the run before, to end


class Diverged(Exception):
    """A loss became infinite or not a number. Attributes: `metric`, `step`, `value`."""

    def __init__(self, metric: str, step: int, value: float) -> None:
        super().__init__(f"{metric} is {value} at step {step}")
        self.metric, self.step, self.value = metric, step, value

    def __reduce__(self) -> tuple[Any, ...]:  # so that it can cross from a worker process
        return type(self), (self.metric, self.step, self.value)


class Recorder:
    """Records one run: each point goes to a journal in `outbox` at once, and from there to the store in the background.

    A store that is slow, away or locked costs training nothing: the journal keeps what was not sent, the recorder tries
    again, and what is left when the process ends is sent by `sync`. For `loss`, `error` and `accuracy` the run also
    gets the best value, of `loss/test` as `best.loss.test`. Leaving the context ends the run: FINISHED, KILLED on
    Ctrl-C, FAILED on any other exception.

    `listeners` are called with (metrics, step) after each `log`, in the thread that records; what they raise is raised.

    With `attempt` n > 1 it resumes a run that n - 1 attempts have recorded before: points that are known already
    are not stored again, and where a value differs from the known one, that one stays and the tag `differs/<metric>`
    says so. Raises what the store raises when it is asked for them, and Busy while another process records the run.

    Where the disk of the outbox is full or the journal is removed, what records raises OSError, and where the run or
    the store is removed, StoreError; so does all that is recorded after it: there is no gap before the last point. The
    run ends as FAILED then, and what was recorded before is sent, if it can be.

    An artifact that would let the outbox grow beyond its bound (see `bound.py`) is not kept; the tag `not_kept`
    names it.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        outbox: Path,
        experiment: str = "",
        attempt: int = 1,
        listeners: Sequence[Listener] = (),
        flush_seconds: float = 2.0,
        flush_points: int = POINTS_PER_REQUEST,
    ) -> None:
        if not re.fullmatch(r"[\w-]+", run_id):
            raise ValueError(f"{run_id!r} is not a run id")
        self.run_id = run_id
        self._prepare(listeners)
        self._flush_points = flush_points
        outbox.mkdir(parents=True, exist_ok=True)
        header = {"uri": without_credentials(store.uri), "run_id": run_id, "experiment": experiment}
        self._bound = Bound(outbox)
        self._journal = Journal(outbox / f"{run_id}.jsonl", header=header, patience=PATIENCE)
        try:
            self._delivery = self._going_on(store, attempt, header)
        except BaseException:
            self._journal.close()
            raise
        self._numbers = itertools.count(1 + max((int(path.name) for path in self._journal.spooled()), default=0))
        self._waiting = 0  # points recorded since the sender was last woken
        self._process = os.getpid()
        self._sender = Sender(self._delivery, flush_seconds, flush_points)
        atexit.register(self._leave)

    def pass_over(self, until: int) -> None:
        """Resume from a checkpoint of this time (`now`): what was recorded up to it is not going to be recorded again.

        Listeners are told of it, so that they have heard the same as if the run had never stopped.
        """
        for step, values in self._earlier.pass_over(until) if self._earlier is not None else ():
            for listener in self._listeners:
                listener(values, step)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Record the values of some metrics at one step.

        Values are numbers (numpy and torch scalars too); anything else raises TypeError, an impossible name or a step
        beyond 64 bits ValueError, and then nothing is recorded. A value that is not finite is stored as nan, with the
        first step at which this happened in the tag `nonfinite/<name>`; if the metric is a loss, Diverged is raised
        after it was recorded.
        """
        values = {name: self._number(name, value) for name, value in metrics.items()}
        if type(step) is not int:
            step = integer(step)
        check_step(step, values)
        self._keep(values, step)
        diverged: Diverged | None = None
        for name, value in values.items():
            if not math.isfinite(value):
                self._note_nonfinite(name, step)
                if diverged is None and name.split("/", 1)[0] == "loss":
                    diverged = Diverged(name, step, value)
        for listener in self._listeners:
            listener(values, step)
        if diverged:
            raise diverged

    def array(self, name: str, **arrays: Any) -> None:
        """Store named arrays as `arrays/<name>.npz`."""
        with self._spooling() as root:
            artifacts.write_arrays(root, f"arrays/{name}.npz", **arrays)

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Store a table as `tables/<name>.csv`, which MLflow shows; numbers are read back exactly."""
        with self._spooling() as root:
            artifacts.write_table(root, f"tables/{name}.csv", table)

    def json(self, name: str, obj: Any) -> None:
        """Store `obj` as `<name>.json`."""
        with self._spooling() as root:
            artifacts.write_json(root, f"{name}.json", obj)

    def text(self, name: str, text: str) -> None:
        """Store `text` as `<name>.txt`."""
        with self._spooling() as root:
            artifacts.place(root, f"{name}.txt").write_text(text, encoding="utf-8")

    def figure(self, name: str, figure: Figure) -> None:
        """Store a matplotlib figure as `figures/<name>.png` and `.svg`."""
        with self._spooling() as root:
            artifacts.write_figure(root, f"figures/{name}", figure)

    def files(self) -> AbstractContextManager[Path]:
        """Give an empty directory; what is written there inside the context is stored at the same relative paths."""
        return self._spooling()

    def discard(self, directory: str) -> None:
        """Delete an artifact directory of this run once it has ended, where the store can."""
        self._append({"discard": directory})

    def file(self, path: Path, directory: str = "") -> None:
        """Store a copy, taken now, of a file or a directory under `directory`."""
        with self._spooling() as root:
            artifacts.copy(root, Path(path), directory)

    def dataset(self, name: str, digest: str, profile: Mapping[str, Any], context: str = "train") -> None:
        """Name the data the run uses, by a digest of its content of at most 36 characters (ValueError)."""
        if not 0 < len(digest) <= 36:
            raise ValueError(f"the digest of dataset {name!r} must have 1 to 36 characters, not {len(digest)}")
        plain = {key: artifacts.jsonable(value) for key, value in profile.items()}
        self._append({"dataset": {"name": name, "digest": digest, "profile": plain, "context": context}})

    def params(self, params: Mapping[str, Any]) -> None:
        """Set params of the run, which MLflow does not let change. ValueError for an impossible name."""
        for name in params:
            check_name(name)
        self._append({"params": {name: str(value) for name, value in params.items()}})

    def tags(self, tags: Mapping[str, Any]) -> None:
        """Set tags of the run. ValueError for an impossible name."""
        for name in tags:
            check_name(name)
        self._append({"tags": {name: str(value) for name, value in tags.items()}})

    @property
    def broken(self) -> OSError | StoreError | None:
        """What keeps more from being recorded: a full disk, a journal, a run or a store that was removed."""
        return self._gap or self._sender.gone or self._journal.damaged

    def check(self) -> None:
        """Raise `broken`: whoever passed over it shall not go on regardless."""
        self._guarded(self._journal.require_in_place)
        if self.broken is not None:
            raise self.broken

    def flush(self, timeout: float = 30.0) -> bool:
        """Send what is recorded so far, artifacts too, and say whether all of it arrived within `timeout` seconds."""
        return self._sender.flush(timeout)

    def close(self, status: str = "FINISHED", *, tags: Mapping[str, Any] | None = None, timeout: float = 60.0) -> bool:
        """End the run and say whether everything reached the store; if not, `sync` sends the rest.

        Waits as long as something arrives, and gives up after `timeout` seconds in which nothing did.
        Raises ValueError for a status that is not FINISHED, FAILED or KILLED. Closing again does nothing.
        """
        if status not in STATUSES:
            raise ValueError(f"a run ends as one of {', '.join(STATUSES)}, not {status!r}")
        if self._sender.closed:
            return self._delivery.finished
        for name in tags or {}:
            check_name(name)
        if self.broken is not None and status == "FINISHED":
            status = "FAILED"
        end = {"end": status, "t": now(), "tags": {name: str(value) for name, value in (tags or {}).items()}}
        for _ in range(2):  # where the trial has closed the handle of the journal, it is open again
            try:
                self._journal.append(end)
                break
            except HandleClosed:
                continue
            except OSError:
                self._delivery.unwritten = end
                break
        atexit.unregister(self._leave)
        finished = self._sender.close(timeout)
        if finished and (damaged := self._journal.damaged):
            logger.warning("run %s: %s; it is kept in %s", self.run_id, damaged, self._journal.path.parent)
        self._journal.close()
        if self._journal.handle_closed:
            finished = send_from_another_process(self._journal.path, self._delivery.store.uri)
        if not finished:
            kept = f"kept in {self._journal.path} until `featurelab sync`"
            lost = isinstance(self.broken, JournalRemoved)
            logger.warning("run %s: what the store has not got is %s", self.run_id, "lost" if lost else kept)
        return finished

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.close("FINISHED" if kind is None else "KILLED" if interrupted else "FAILED")

    def _prepare(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)
        self._names: set[str] = set()
        self._nonfinite: set[str] = set()
        self._earlier: Earlier | None = None
        self._differing: set[str] = set()
        self._not_kept: list[str] = []
        self._gap: OSError | None = None  # what kept something from being recorded

    def _going_on(self, store: Store, attempt: int, header: Mapping[str, Any]) -> Delivery:
        """What sends the journal, which may hold what earlier attempts left there."""
        sender = replace(store, patience=0.0)
        if attempt == 1:
            return Delivery(sender, self._journal, self.run_id)
        stored = Earlier.read(store, self.run_id)
        self._journal.read_through()
        if self._journal.damaged:
            Delivery(store, self._journal, self.run_id, stored=stored).merge()
            self._journal = Journal(self._journal.path, header=header)
            stored = Earlier.read(store, self.run_id)
        self._earlier = stored.joined_by(self._journal)
        self._nonfinite = self._earlier.nonfinite()
        delivery = Delivery(sender, self._journal, self.run_id, stored=stored, stale=self._journal.size())
        self._journal.append({"attempt": attempt})
        return delivery

    def _number(self, name: str, value: Any) -> float:
        if name not in self._names:
            check_name(name)
            self._names.add(name)
        return value if type(value) is float else number(name, value)

    def _keep(self, values: Mapping[str, float], step: int) -> None:
        if self._earlier is not None:
            values = {name: value for name, value in values.items() if self._is_new(name, step, value)}
        if values:
            self._append({"t": now(), "s": step, "m": values})
        self._waiting += len(values)
        if self._waiting >= self._flush_points:
            self._waiting = 0
            self._sender.wake()

    def _is_new(self, name: str, step: int, value: float) -> bool:
        assert self._earlier is not None
        known = self._earlier.take(name, step, value)
        if known is not None and not same(known.value, value) and name not in self._differing:
            self._differing.add(name)
            self._append({"tags": {f"differs/{name}": f"step {step}: {known.value!r} became {value!r}"}})
        return known is None

    def _note_nonfinite(self, name: str, step: int) -> None:
        if name not in self._nonfinite:
            self._nonfinite.add(name)
            self._append({"tags": {f"nonfinite/{name}": str(step)}})

    def _append(self, entry: Mapping[str, Any]) -> None:
        if self._sender.closed:
            raise ValueError(f"run {self.run_id} is closed")
        if self.broken is not None:
            raise self.broken
        self._guarded(self._journal.append, entry)

    def _guarded(self, write: Callable[..., None], *arguments: Any) -> None:
        try:
            write(*arguments)
        except OSError as error:
            self._gap = error
            raise

    @contextmanager
    def _spooling(self) -> Iterator[Path]:
        """Give a directory to write an artifact to, and hand it to the sender once it is complete."""
        if self._sender.closed:
            raise ValueError(f"run {self.run_id} is closed")
        self._guarded(self._journal.require_in_place)
        draft = self._journal.spool / f".{uuid.uuid4().hex}"
        draft.mkdir(parents=True)
        try:
            yield draft
            if self._bound.admits(size_of(draft)):
                kept = draft.with_name(str(next(self._numbers)))
                self._delivery.expected.add(kept.name)
                draft.rename(kept)
            else:
                self._leave_out(draft)
            if trouble := self._bound.trouble():
                logger.warning(trouble)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def _leave_out(self, draft: Path) -> None:
        paths = sorted(path.relative_to(draft) for path in draft.rglob("*") if path.is_file())
        shutil.rmtree(draft)
        # a checkpoint to resume from is nothing that a reader of the run would miss
        self._not_kept += [str(path) for path in paths if path.parts[0] != TRAINING]
        if self._not_kept:
            shown, more = ", ".join(self._not_kept[:20]), len(self._not_kept) - 20
            self._append({"tags": {"not_kept": shown[:4000] + (f" and {more} more" if more > 0 else "")}})

    def _leave(self) -> None:
        """At interpreter exit: nobody closed the run, so whatever it did was cut short."""
        if os.getpid() == self._process:  # not in a forked child
            self.close("KILLED", timeout=15.0)


def now() -> int:
    """The time as points carry it: milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
