"""Send what processes that crashed or were cut off left in an outbox, and end their runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from featurelab.tracking.errors import RunGone, StoreError, disk_full
from featurelab.tracking.files import Planted, require_own_folder
from featurelab.tracking.lines import quoted, without_credentials
from featurelab.tracking.outbox.bound import FULL
from featurelab.tracking.outbox.delivery import Delivery
from featurelab.tracking.outbox.journal import DAMAGED, Busy, Journal
from featurelab.tracking.outbox.journal_lines import store_address
from featurelab.tracking.outbox.resume import stored_points
from featurelab.tracking.store.addresses import RUN_ID, first_line, shown
from featurelab.tracking.store.connect import connect, resolve
from featurelab.tracking.store.store import Store


@dataclass
class Synced:
    """The outcome of `sync`: ids of runs whose data is now in the store, is still being recorded, or was not sent."""

    sent: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # reason by run id
    rejected: dict[str, str] = field(default_factory=dict)  # what the store refused, by the id of a run that was sent


def sync(outbox: Path, uri: str | None = None, *, known: str | None = None, timeout: float = 15.0) -> Synced:
    """Send every journal in `outbox` and end its run: as recorded, or as KILLED if no end was recorded.

    Each journal goes to the store it names, or to `uri` if given (a server that moved). Credentials go only to the
    server at `known`, by default the address in this environment, since the address in a journal is untrusted. A run
    that a living process records is left alone. A run that was resumed elsewhere gets what it lacks once the later
    attempt has ended. Sending again stores nothing twice. `timeout` is in seconds for each store. Raises StoreError if
    the outbox belongs to another user.
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
            result.failed[path.stem] = disk_full(error) or _reason(error)
            continue
        try:
            recorded_uri = store_address(journal)
            store = _connected(uri or _address(recorded_uri, known), stores, timeout)
            delivery = _deliver(store, journal, path.stem)
            (result.sent if delivery else result.busy).append(path.stem)
            if delivery and delivery.rejected:
                result.rejected[path.stem] = delivery.rejected
        except RunGone as error:
            result.failed[path.stem] = f"{error}; to delete its data here: featurelab sync --discard {path.stem}"
        except Exception as error:  # one broken journal must not hold up the others
            result.failed[path.stem] = _reason(error)
        finally:
            journal.close()
    for path in sorted(outbox.glob(f"*{DAMAGED}*.jsonl")):
        run_id = path.name.partition(".")[0]
        damage = "its journal was cut, overwritten or written to by another process; every readable line was sent"
        advice = f"{quoted(path.name)} is kept until featurelab sync --discard {run_id}"
        result.failed.setdefault(run_id, f"{damage}, and {advice}")
    if not (result.busy or result.failed):
        (outbox / FULL).unlink(missing_ok=True)
    return result


def _deliver(store: Store, journal: Journal, run_id: str) -> Delivery | None:
    """Send a journal and return its delivery; None if a later attempt at the run has not ended."""
    store.require_active(run_id)
    run, attempt = store.get_run(run_id), journal.attempt
    latest = int(run.data.tags.get("attempt", "1"))
    stored = stored_points(store, run_id) if max(attempt, latest) > 1 else None
    delivery = Delivery(store, journal, run_id, stored=stored)
    if latest <= attempt:
        delivery.finish("KILLED")
    elif run.info.status == "RUNNING":
        return None
    else:
        delivery.merge()
    return delivery


def discard(outbox: Path, run_id: str) -> None:
    """Delete the journals of a run, damaged ones too.

    Raises StoreError if there are none, if `run_id` is not a run id, or if a process still writes the journal.
    """
    if not RUN_ID.fullmatch(run_id):
        raise StoreError(f"{quoted(run_id)} is not the id of a run: featurelab sync lists those that wait")
    path = outbox / f"{run_id}.jsonl"
    try:
        damaged = list(outbox.glob(f"{run_id}{DAMAGED}*.jsonl"))
        if not (path.is_file() or damaged):
            raise StoreError(f"the outbox {outbox} has no journal of run {quoted(run_id)}: featurelab sync lists those")
        if path.is_file():
            Journal(path).delete()
            damaged = list(outbox.glob(f"{run_id}{DAMAGED}*.jsonl"))
        for damaged_path in damaged:
            damaged_path.unlink()
    except (Busy, OSError) as error:
        raise StoreError(_reason(error)) from None


def _address(recorded: str, known: str | None) -> str:
    """Return the address to send to: that in a journal, with the credentials of `known` if both name one server."""
    try:
        trusted = known or resolve()
    except StoreError:
        trusted = ""
    if not recorded and not trusted:
        raise StoreError("the journal does not name its store: set MLFLOW_TRACKING_URI to the store's address")
    if recorded in ("", without_credentials(trusted)):
        return trusted
    if not recorded.startswith("sqlite:"):
        raise StoreError(
            f"the journal is for the store at {shown(recorded)}: to send it, set MLFLOW_TRACKING_URI to that"
        )
    return recorded


def _reason(error: BaseException) -> str:
    return error.strerror if isinstance(error, Planted) and error.strerror else first_line(error)


def _connected(uri: str, stores: dict[str, Store | StoreError], timeout: float) -> Store:
    """Return the store at `uri`, connecting once: a store that is away is not tried again for every journal."""
    if uri not in stores:
        try:
            stores[uri] = connect(uri, timeout=timeout, create=False)
        except StoreError as error:
            stores[uri] = error
    store = stores[uri]
    if isinstance(store, StoreError):
        raise store
    return store
