"""What a server answers, told apart from what stands in its way: a proxy's page, half an answer, nothing at all."""

from __future__ import annotations

import requests
from mlflow.exceptions import MlflowException, RestException

TRANSIENT_CODES = {"TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
BROKEN = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.RetryError,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
    requests.exceptions.JSONDecodeError,
)


def is_transient(error: BaseException) -> bool:
    """Say whether the same request may succeed later: a locked database, no connection, an overloaded server.

    So may one whose answer was not MLflow's own, which always is JSON, whatever its status.
    """
    wrapped = error.__cause__ or error.__context__  # MLflow wraps what `requests` and SQLAlchemy raise
    if isinstance(error, BROKEN) or isinstance(wrapped, BROKEN):
        return True
    if "database is locked" in str(error) or _was_faster(str(error).lower()):
        return True
    if not isinstance(error, MlflowException) or "(sqlite3." in str(error):
        return False
    garbled = not isinstance(error, RestException) and str(error).startswith("API request to ")
    return garbled or error.error_code in TRANSIENT_CODES


def _was_faster(text: str) -> bool:
    """Whether another process put the same tag on an experiment between MLflow's look and its insertion."""
    return "unique constraint" in text and "experiment_tag" in text
