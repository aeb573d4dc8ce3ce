"""What a server answers, told apart from what stands in its way: a proxy's page, half an answer, nothing at all."""

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
# of what a database or its driver cannot hold, in the words of SQLite, PostgreSQL and MySQL
UNFIT = ("too large to convert", "out of range", "surrogates not allowed", "NUL (0x00)", "DataError", "Data too long")
LONG = 2**16  # bytes of an answer that is not read twice
BULK = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
CREATE = "/api/2.0/mlflow/experiments/create"
UPLOADS = "/mlflow-artifacts/artifacts/"
ONE = {"experiment": "experiment_id", "run": "info", "run_info": "run_id"}  # what an answer about one thing must name
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


def is_refused(error: BaseException) -> bool:
    """Say whether the store looked at what it was sent and will never take it, or no request can carry it."""
    if is_transient(error) or isinstance(error, json.JSONDecodeError):
        return False
    if isinstance(error, MlflowException):
        said = error.error_code in REFUSALS and any(text in str(error) for text in UNFIT)
        return said or error.error_code == "INVALID_PARAMETER_VALUE"
    return isinstance(error, OverflowError | ValueError)


def require_own(response: requests.Response, endpoint: str) -> None:
    """Raise what is repeated unless an answer is one that MLflow gives to this request.

    A proxy, a gateway or a login page may answer in its place, with status 200 and JSON too.
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
        own = not isinstance(answer, dict) or "error_code" in answer  # MLflow's client refuses what is no object
    else:
        own = isinstance(answer, dict) and (fields is None or _is_own(answer, fields, _run_of(response.request)))
    if not own:
        raise _not_mlflow(endpoint, f"(status {response.status_code}) is not MLflow's")


def require_stored(response: requests.Response) -> None:
    """Raise what is repeated unless the answer to an upload is that of MLflow, which is empty."""
    request = response.request
    if request.method == "PUT" and UPLOADS in str(request.url) and response.text.strip() not in ("", "{}"):
        raise _not_mlflow(UPLOADS, f"(status {response.status_code}) is not MLflow's")


def _is_own(answer: dict[str, Any], fields: Sequence[str], run_id: str) -> bool:
    """Whether an answer has the fields of one; an empty one is that of a write, or of a search that found nothing."""
    if not fields:
        return not answer
    name = fields[0]
    if fields[-1] == "*":
        return bool(answer.keys() & set(fields))
    if name not in ONE:
        return not answer or bool(answer.keys() & set(fields))
    found = answer.get(name)
    if not isinstance(found, dict) or not found.get(ONE[name]):
        return False
    info = found.get("info", found)
    return not run_id or (isinstance(info, dict) and info.get("run_id") == run_id)


def _run_of(request: Any) -> str:
    """The run that a request to read or update one names."""
    path = urlsplit(str(request.url))
    if path.path.endswith("/runs/get"):
        return parse_qs(path.query).get("run_id", [""])[0]
    if path.path.endswith("/runs/update"):
        return str(json.loads(request.body or b"{}").get("run_id", ""))
    return ""


@cache
def _fields() -> dict[tuple[str, str], Sequence[str]]:
    """The fields of the answer to each request, as MLflow's own client declares them."""
    from mlflow.store.tracking.rest_store import RestStore

    declared: dict[tuple[str, str], Sequence[str]] = {
        asked: [field.name for field in api.Response.DESCRIPTOR.fields]
        for api, asked in RestStore._METHOD_TO_INFO.items()
    }
    always = {(BULK, "GET"): ["metrics", "*"], (CREATE, "POST"): ["experiment_id", "*"]}
    return declared | always  # where "*" says that there is no empty answer


def _not_mlflow(endpoint: str, wrong: str) -> MlflowException:
    return MlflowException(f"the answer to {endpoint} {wrong}", error_code=TEMPORARILY_UNAVAILABLE)


def _was_faster(text: str) -> bool:
    """Whether another process put the same tag on an experiment between MLflow's look and its insertion."""
    return "unique constraint" in text and "experiment_tag" in text
