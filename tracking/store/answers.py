"""Tell MLflow's answers and errors from those of a proxy in between, and passing errors from lasting ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from mlflow.exceptions import MlflowException, RestException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE

TRANSIENT_CODES = {"TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INTERNAL_ERROR"}
# in the errors of SQLite, PostgreSQL and MySQL, and their drivers, about values that they cannot hold
UNFIT = ("too large to convert", "out of range", "surrogates not allowed", "NUL (0x00)", "DataError", "Data too long")
LONG = 2**16  # bytes; a longer answer is not parsed twice
BULK = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
CREATE = "/api/2.0/mlflow/experiments/create"
UPLOADS = "/mlflow-artifacts/artifacts/"
REQUIRED = {"experiment": "experiment_id", "run": "info", "run_info": "run_id"}  # what an answer about one must name
BROKEN = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.RetryError,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
    requests.exceptions.JSONDecodeError,
)


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later: a locked database, no connection, an overloaded server.

    True as well if something other than MLflow answered, whose answers are always JSON, whatever their status.
    """
    wrapped = error.__cause__ or error.__context__  # MLflow wraps what `requests` and SQLAlchemy raise
    if isinstance(error, BROKEN) or isinstance(wrapped, BROKEN):
        return True
    if "database is locked" in str(error) or _is_tag_race(str(error).lower()):
        return True
    if not isinstance(error, MlflowException) or "(sqlite3." in str(error):
        return False
    garbled = not isinstance(error, RestException) and str(error).startswith("API request to ")
    return garbled or error.error_code in TRANSIENT_CODES


def is_refused(error: BaseException) -> bool:
    """Return whether the store will never take what it was sent, or no request can carry it."""
    if is_transient(error) or isinstance(error, json.JSONDecodeError):
        return False
    if isinstance(error, MlflowException):
        is_unfit = error.error_code in REFUSALS and any(text in str(error) for text in UNFIT)
        return is_unfit or error.error_code == "INVALID_PARAMETER_VALUE"
    return isinstance(error, OverflowError | ValueError)


def require_mlflow_answer(response: requests.Response, endpoint: str) -> None:
    """Raise a transient error unless MLflow can have given this answer to the request.

    A proxy, a gateway or a login page may answer in its place, even with status 200 and JSON.
    """
    fields = _fields().get((endpoint, str(response.request.method)))
    if response.status_code == 200 and fields and len(response.content) > LONG:
        answer: Any = dict.fromkeys(name for name in fields if f'"{name}"' in response.text[:200])
        fields = [*fields, "*"]
    else:
        try:
            answer = json.loads(response.text)
        except (ValueError, RecursionError):
            answer = None
    if response.status_code != 200:
        is_mlflow = not isinstance(answer, dict) or "error_code" in answer  # its client refuses anything but an object
    elif isinstance(answer, dict):
        is_mlflow = fields is None or _fits(answer, fields, _requested_run(response.request))
    else:
        is_mlflow = False
    if not is_mlflow:
        raise _not_mlflow(endpoint, response.status_code)


def require_stored(response: requests.Response) -> None:
    """Raise a transient error unless the answer to an upload is empty, as that of MLflow."""
    request = response.request
    if request.method == "PUT" and UPLOADS in str(request.url) and response.text.strip() not in ("", "{}"):
        raise _not_mlflow(UPLOADS, response.status_code)


def _fits(answer: dict[str, Any], fields: Sequence[str], run_id: str) -> bool:
    """Return whether an answer has one of these fields and is about this run.

    It may be empty after a write, or after a search without results. A "*" among the fields says that it may not.
    """
    if not fields:
        return not answer
    name = fields[0]
    if fields[-1] == "*":
        return bool(answer.keys() & set(fields))
    if name not in REQUIRED:
        return not answer or bool(answer.keys() & set(fields))
    content = answer.get(name)
    if not isinstance(content, dict) or not content.get(REQUIRED[name]):
        return False
    info = content.get("info", content)
    return not run_id or (isinstance(info, dict) and info.get("run_id") == run_id)


def _requested_run(request: Any) -> str:
    """Return the id of the run that a request reads or updates; empty for any other request."""
    url = urlsplit(str(request.url))
    if url.path.endswith("/runs/get"):
        return parse_qs(url.query).get("run_id", [""])[0]
    if url.path.endswith("/runs/update"):
        return str(json.loads(request.body or b"{}").get("run_id", ""))
    return ""


@cache
def _fields() -> dict[tuple[str, str], Sequence[str]]:
    """Return the fields of the answer to each (endpoint, method), as MLflow's own client declares them."""
    from mlflow.store.tracking.rest_store import RestStore

    declared: dict[tuple[str, str], Sequence[str]] = {
        request: [field.name for field in api.Response.DESCRIPTOR.fields]
        for api, request in RestStore._METHOD_TO_INFO.items()
    }
    never_empty = {(BULK, "GET"): ["metrics", "*"], (CREATE, "POST"): ["experiment_id", "*"]}
    return declared | never_empty


def _not_mlflow(endpoint: str, status: int) -> MlflowException:
    message = f"the answer to {endpoint} (status {status}) is not MLflow's"
    return MlflowException(message, error_code=TEMPORARILY_UNAVAILABLE)


def _is_tag_race(text: str) -> bool:
    """Return whether another process set the same tag of an experiment between MLflow's check and its insertion."""
    return "unique constraint" in text and "experiment_tag" in text
