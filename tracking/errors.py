"""What can be wrong with a store. Apart from the code that talks to it, so that catching an error imports no MLflow."""

import errno

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # no space left, a quota is used up, a file may not grow


class StoreError(Exception):
    """The store cannot be used; the message is one line fit for the command line."""


class RunNotFound(StoreError):
    """No run has this id."""


class RunGone(RunNotFound):
    """A run was deleted while it was recorded."""


class BadArtifact(StoreError):
    """A run has no such artifact, or one that is damaged."""


class StoreGone(StoreError):
    """The file of a store was removed or replaced while it was in use."""


def disk_full(error: BaseException) -> str:
    """Where a disk has no room, one line that says where; nothing for any other error."""
    if not isinstance(error, OSError) or error.errno not in FULL:
        return ""
    return f"the disk is full: {error.filename}" if error.filename else "the disk is full"
