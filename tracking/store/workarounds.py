"""Workarounds for what MLflow (3.17) does otherwise than our store needs. Remove each when MLflow fixes its cause."""

from __future__ import annotations

import logging
import os
from typing import Any

from mlflow.store.artifact import http_artifact_repo
from mlflow.utils import rest_utils

from featurelab.tracking.store.answers import BULK, require_mlflow_answer, require_stored

API = "/api/2.0/mlflow/"
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it would send usage statistics
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # we retry ourselves, for as long as the caller allows; its own loop would wait for minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    # it prints addresses to standard output, which would break `--json`
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}

_verify = rest_utils.verify_rest_response
_raise_for_status = rest_utils.augmented_raise_for_status


def apply() -> None:
    """Set MLflow's environment variables unless they are set, silence its logs, and check its answers. Idempotent."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # it logs a traceback each time the database is busy
    logging.getLogger("mlflow.store.db.utils").addFilter(_is_warning)
    logging.getLogger("mlflow.utils.databricks_utils").setLevel(logging.ERROR)  # we report missing credentials
    rest_utils.verify_rest_response = _verified
    http_artifact_repo.augmented_raise_for_status = _uploaded


def _is_warning(record: logging.LogRecord) -> bool:
    return record.levelno == logging.WARNING


def _verified(response: Any, endpoint: str, *args: Any, **options: Any) -> Any:
    # MLflow takes an empty answer and any JSON object for success: points that nobody stored would count as sent
    if endpoint.startswith(API) or endpoint == BULK:
        require_mlflow_answer(response, endpoint)
    return _verify(response, endpoint, *args, **options)


def _uploaded(response: Any) -> None:
    _raise_for_status(response)
    require_stored(response)  # MLflow takes any status 200 for success
