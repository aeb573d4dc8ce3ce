"""Send what crashed or cut-off processes left in an outbox, and end their runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from featurelab.tracking.errors import RunGone, StoreError, disk_full
from featurelab.tracking.files import Planted, require_own_folder
from featurelab.tracking.lines import quoted, without_credentials
from featurelab.tracking.outbox.bound import FULL
from featurelab.tracking.outbox.earlier import Earlier
from featurelab.tracking.outbox.journal import DAMAGED, Busy, Journal
from featurelab.tracking.outbox.journal_lines import checked
from featurelab.tracking.outbox.sending import Delivery
from featurelab.tracking.store.connect import connect, resolve
from featurelab.tracking.store.store import RUN_ID, Store, first_line, shown


@dataclass
class Synced:
    """What `sync` did: run ids whose data is now in the store, those still being recorded, and those that failed."""

    sent: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # run id: reason
    rejected: dict[str, str] = field(default_factory=dict)  # run id: what the store refuses of a run that was sent


def sync(outbox: Path, uri: str | None = None, *, known: str | None = None, timeout: float = 15.0) -> Synced:
    """Send what crashed or cut-off processes left in `outbox`, end their runs (KILLED where no end was recorded).

    Each journal goes to the store it was recorded for, or to `uri` if that is given (a server that moved). A server
    gets what is for it only if it is the one at `known`, by default the address of this environment: a journal is input
    like any other, and an address in it shall not be shown our credentials. A run that a living process still records
    is left alone. Where a run was resumed elsewhere, it gets what it lacks once that attempt has ended. May be
    repeated freely: nothing is stored twice. Raises StoreError for an outbox of another user's.
    """
    try:
        require_own_folder(outbox)
    except Planted as error:
        raise StoreError(str(error.strerror)) from None
    result = Synced()
    stores: dict[str, Store | StoreError] = {}
    for path in sorted(outbox.glob("*.jsonl")):
        if DAMAGED in path.name:
            continue
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
            delivery = _deliver(store, journal, path.stem)
            (result.sent if delivery else result.busy).append(path.stem)
            if delivery and delivery.rejected:
                result.rejected[path.stem] = delivery.rejected
        except RunGone as error:
            result.failed[path.stem] = f"{error}; featurelab sync --discard {path.stem} lets go of what it recorded"
        except Exception as error:  # one broken journal must not keep the others back
            result.failed[path.stem] = _strerror(error)
        finally:
            journal.close()
    for path in sorted(outbox.glob(f"*{DAMAGED}*.jsonl")):
        run_id = path.name.partition(".")[0]
        damage = "its journal was cut, overwritten or written to by another process; what could be read was sent"
        kept = f"{damage}, and it is kept in {quoted(path.name)} until featurelab sync --discard {run_id}"
        result.failed.setdefault(run_id, kept)
    if not (result.busy or result.failed):
        (outbox / FULL).unlink(missing_ok=True)
    return result


def _deliver(store: Store, journal: Journal, run_id: str) -> Delivery | None:
    """Send a journal; None where a later attempt at its run is still going on."""
    store.require_active(run_id)
    run, ours = store.get_run(run_id), journal.attempt
    latest = int(run.data.tags.get("attempt", "1"))
    stored = Earlier.read(store, run_id) if max(ours, latest) > 1 else None
    delivery = Delivery(store, journal, run_id, stored=stored)
    if latest <= ours:
        delivery.finish("KILLED")
    elif run.info.status == "RUNNING":
        return None
    else:
        delivery.merge()
    return delivery


def discard(outbox: Path, run_id: str) -> None:
    """Let go of what a run recorded and no store will take. Raises StoreError where there is no such journal, or it is
    still being written."""
    if not RUN_ID.fullmatch(run_id):
        raise StoreError(f"{quoted(run_id)} is not the id of a run: featurelab sync names those that wait")
    path = outbox / f"{run_id}.jsonl"
    try:
        damaged = list(outbox.glob(f"{run_id}{DAMAGED}*.jsonl"))
        if not (path.is_file() or damaged):
            raise StoreError(f"nothing of a run {quoted(run_id)} waits in {outbox}")
        if path.is_file():
            Journal(path).delete()
            damaged = list(outbox.glob(f"{run_id}{DAMAGED}*.jsonl"))
        for kept in damaged:
            kept.unlink()
    except (Busy, OSError) as error:
        raise StoreError(_strerror(error)) from None


def _address(recorded: str, known: str | None) -> str:
    """The address in a journal, which never holds credentials, with those of the known one if they are for it."""
    try:
        here = known or resolve()
    except StoreError:
        here = ""
    if not recorded and not here:
        raise StoreError("it does not say which store it is for: set MLFLOW_TRACKING_URI to that")
    if recorded in ("", without_credentials(here)):
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
