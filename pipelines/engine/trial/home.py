"""Where this process keeps what it records: the store, the outbox, and other folders that users name."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from featurelab.pipelines.engine.errors import RequestError, tell
from featurelab.pipelines.engine.trial.place import OUTBOX_LIMIT, checkpoint_seconds
from featurelab.pipelines.engine.trial.signals import raised
from featurelab.tracking.lines import quoted

if TYPE_CHECKING:
    from featurelab.tracking.store.store import Store


def connect(*, create: bool = True) -> "Store":
    """Return the store of this environment; warn where it is a copy whose artifacts lie elsewhere."""
    from featurelab.tracking.store import connect as stores
    from featurelab.tracking.store.addresses import sqlite_path
    from featurelab.tracking.store.places import copied_from

    with raised():  # on a signal, a store that is only half created is removed
        store = stores.connect(create=create)
    if store.uri.startswith("sqlite:") and (warning := copied_from(sqlite_path(store.uri))):
        tell(f"featurelab: {warning}")
    return store


def outbox_folder(*, writes: bool = True) -> Path:
    """Return the folder where trials keep what the store does not have yet.

    Raises `RequestError` where it cannot be a folder, and for wrong settings of checkpoints and of its size.
    """
    if writes:
        checkpoint_seconds()
        _check_outbox_limit()
    return folder(os.environ.get("FEATURELAB_OUTBOX") or ".featurelab/outbox", "FEATURELAB_OUTBOX", writes=writes)


def _check_outbox_limit() -> None:
    if OUTBOX_LIMIT not in os.environ:
        return
    from featurelab.tracking.outbox.bound import limit_from  # imports MLflow

    try:
        limit_from(os.environ[OUTBOX_LIMIT])
    except ValueError as error:
        raise RequestError(str(error)) from None


def folder(path: str | Path, option: str, *, writes: bool = True) -> Path:
    """Return `path` as an absolute path; raise `RequestError` unless it is, or can become, a folder we may write to."""
    given = f"{option} {quoted(str(path))}"
    try:
        absolute = Path(path).absolute()
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(absolute)
        if any(len(os.fsencode(part)) > 255 for part in absolute.parts):
            raise ValueError("a name may have at most 255 bytes")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RequestError(f"{given} is not a folder: {reason}") from None
    nearest = next(place for place in (absolute, *absolute.parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise RequestError(f"{given} is not a folder: {quoted(str(nearest))} is a file")
    if writes and not os.access(nearest, os.W_OK | os.X_OK):
        raise RequestError(f"{given} is not writable: choose a folder that you may write to")
    return absolute
