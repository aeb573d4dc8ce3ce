"""The errors of a store. In a file of their own, so that catching one does not import MLflow."""

import errno

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # no space left, quota exceeded, file too large


class StoreError(Exception):
    """The store cannot be used. The message is one line for the command line."""


class RunNotFound(StoreError):
    """No run has this id."""


class RunGone(RunNotFound):
    """The run was deleted while it was recorded."""


class BadArtifact(StoreError):
    """The run has no such artifact, or the artifact is damaged."""


class StoreGone(StoreError):
    """The file of the store was removed or replaced while it was in use."""


def disk_full(error: BaseException) -> str:
    """Return one line that names the file if an error says that a disk is full; an empty text for any other error."""
    if not isinstance(error, OSError) or error.errno not in FULL:
        return ""
    return f"the disk is full: {error.filename}" if error.filename else "the disk is full"
