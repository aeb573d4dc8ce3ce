"""The directory where runs keep what the store has not got: how large it may grow, who uses it, sending what is left.

Its bound is FEATURELAB_OUTBOX_LIMIT, as `500M` or `20G`; by default 2 GiB, or 5% of the disk's free space where that is
more, and never more than half of it. Beyond the bound no artifact is taken in, while metrics, which are small, still
are.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .connect import connect, resolve
from .earlier import Earlier
from .errors import RunGone, disk_full
from .files import Planted, open_own, require_own_folder
from .journal import Busy, Delivery, Journal
from .journal_lines import checked
from .lines import quoted, without_credentials
from .store import Store, StoreError, first_line, shown

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


@contextmanager
def alone(outbox: Path, name: str) -> Iterator[None]:
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
    """Whether a living process on this machine holds `alone(outbox, name)`, or the journal of the run `name`."""
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


@dataclass
class Synced:
    """What `sync` did: run ids whose data is now in the store, those still being recorded, and those that failed."""

    sent: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # run id: reason


def sync(outbox: Path, uri: str | None = None, *, known: str | None = None, timeout: float = 15.0) -> Synced:
    """Send what crashed or cut-off processes left in `outbox`, end their runs (KILLED where no end was recorded).

    Each journal goes to the store it was recorded for, or to `uri` if that is given (a server that moved). A server
    gets what is for it only if it is the one at `known`, by default the address of this environment: a journal is input
    like any other, and an address in it shall not be shown our credentials. A run that a living process still records
    is left alone. Where a run was gone on with elsewhere, it gets what it lacks once that attempt has ended. May be
    repeated freely: nothing is stored twice. Raises StoreError for an outbox of another user's.
    """
    try:
        require_own_folder(outbox)
    except Planted as error:
        raise StoreError(str(error.strerror)) from None
    result = Synced()
    stores: dict[str, Store | StoreError] = {}
    for path in sorted(outbox.glob("*.jsonl")):
        try:
            journal = Journal(path)
        except Busy:
            result.busy.append(path.stem)
            continue
        except FileNotFoundError:
            continue
        except OSError as error:
            result.failed[path.stem] = disk_full(error) or _strerror(error)
            continue
        try:
            recorded = checked(journal)
            store = _opened(uri or _address(recorded, known), stores, timeout)
            (result.sent if _deliver(store, journal, path.stem) else result.busy).append(path.stem)
        except RunGone as error:
            result.failed[path.stem] = f"{error}; featurelab sync --discard {path.stem} lets go of what it recorded"
        except Exception as error:  # one broken journal must not keep the others back
            result.failed[path.stem] = _strerror(error)
        finally:
            journal.close()
    if not (result.busy or result.failed):
        (outbox / FULL).unlink(missing_ok=True)
    return result


def _deliver(store: Store, journal: Journal, run_id: str) -> bool:
    """Send a journal, or say that a later attempt at its run is still going on."""
    store.require_active(run_id)
    run, ours = store.get_run(run_id), journal.attempt
    latest = int(run.data.tags.get("attempt", "1"))
    stored = Earlier.read(store, run_id) if max(ours, latest) > 1 else None
    delivery = Delivery(store, journal, run_id, stored=stored)
    if latest <= ours:
        delivery.finish("KILLED")
    elif run.info.status == "RUNNING":
        return False
    else:
        delivery.merge()
    return True


def discard(outbox: Path, run_id: str) -> None:
    """Let go of what a run recorded and no store will take. Raises StoreError where there is no such journal, or it is
    still being written."""
    path = outbox / f"{run_id}.jsonl"
    if path.parent != outbox or not path.is_file():
        raise StoreError(f"nothing of a run {quoted(run_id)} waits in {outbox}")
    try:
        Journal(path).delete()
    except (Busy, OSError) as error:
        raise StoreError(_strerror(error)) from None


def _address(recorded: str, known: str | None) -> str:
    """The address in a journal, which never holds credentials, with those of the known one if they are for it."""
    try:
        here = known or resolve()
    except StoreError:
        here = ""
    if without_credentials(here) == recorded:
        return here
    if not recorded.startswith("sqlite:"):
        raise StoreError(f"it is for the store at {shown(recorded)}: set MLFLOW_TRACKING_URI to that, to send it there")
    return recorded


def _strerror(error: BaseException) -> str:
    return error.strerror if isinstance(error, Planted) and error.strerror else first_line(error)


def _opened(uri: str, stores: dict[str, Store | StoreError], timeout: float) -> Store:
    """Connect once to each store; one that is away is not asked again for every journal."""
    if uri not in stores:
        try:
            stores[uri] = connect(uri, timeout=timeout, create=False)
        except StoreError as error:
            stores[uri] = error
    store = stores[uri]
    if isinstance(store, StoreError):
        raise store
    return store


def _shown(size: int) -> str:
    unit = next((unit for unit in "TGM" if size >= UNITS[unit]), "M")
    return f"{size / UNITS[unit]:.3g} {unit}iB"
