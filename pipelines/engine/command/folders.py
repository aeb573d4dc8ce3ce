"""Folders that the user names, checked before anything is written."""

import os
from contextlib import suppress
from pathlib import Path

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.trial.place import OUTBOX_LIMIT, checkpoint_seconds
from featurelab.tracking.lines import quoted


def outbox(*, writes: bool = True) -> Path:
    """Where trials keep what the store has not got yet.

    Raises `RequestError` where no folder can be, and for a bad setting of what goes there.
    """
    if writes:
        checkpoint_seconds()
        _check_limit()
    return folder(os.environ.get("FEATURELAB_OUTBOX") or ".featurelab/outbox", "FEATURELAB_OUTBOX", writes=writes)


def _check_limit() -> None:
    if OUTBOX_LIMIT in os.environ:
        from featurelab.tracking.outbox.bound import (
            limit_from,  # brings MLflow, which a command that only tells does not load
        )

        try:
            limit_from(os.environ[OUTBOX_LIMIT])
        except ValueError as error:
            raise RequestError(str(error)) from None


def folder(path: str | Path, named: str, *, writes: bool = True) -> Path:
    """`path` made absolute; raises `RequestError` where it is not, or cannot become, a folder that we may write to."""
    said = f"{named} {quoted(str(path))}"
    try:
        absolute = Path(path).absolute()
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(absolute)
        if any(len(os.fsencode(part)) > 255 for part in absolute.parts):
            raise ValueError("a name has 255 bytes at most")
    except (OSError, ValueError) as error:
        raise RequestError(f"{said} is no folder: {error.strerror if isinstance(error, OSError) else error}") from None
    above = next(place for place in (absolute, *absolute.parents) if os.path.lexists(place))
    if not above.is_dir():
        raise RequestError(f"{said} is no folder: {quoted(str(above))} is a file")
    if writes and not os.access(above, os.W_OK | os.X_OK):
        raise RequestError(f"{said} may not be written")
    return absolute
