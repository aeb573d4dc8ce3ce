"""What MLflow (3.17) does otherwise than our store needs, and how it is got round; each goes when MLflow mends it."""

from __future__ import annotations

import logging
import os
from typing import Any

from mlflow.store.artifact import http_artifact_repo
from mlflow.utils import rest_utils

from featurelab.tracking.store.answers import BULK, require_own, require_stored

API = "/api/2.0/mlflow/"
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it would send statistics home unasked
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # we retry ourselves, within bounds that the caller chose: its own loop would wait for minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    # its address lines on standard output would spoil `--json`
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}

_verify = rest_utils.verify_rest_response
_raise_for_status = rest_utils.augmented_raise_for_status


def apply() -> None:
    """Set its environment, unless somebody has, and silence and mend it; may be called again."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # it logs a traceback for every busy moment
    logging.getLogger("mlflow.store.db.utils").addFilter(_warnings_alone)
    logging.getLogger("mlflow.utils.databricks_utils").setLevel(logging.ERROR)  # that no credentials are there we say
    rest_utils.verify_rest_response = _verified
    http_artifact_repo.augmented_raise_for_status = _uploaded


def _warnings_alone(record: logging.LogRecord) -> bool:
    return record.levelno == logging.WARNING


def _verified(response: Any, endpoint: str, *args: Any, **options: Any) -> Any:
    # it takes an empty answer, and any JSON object, for a success: points which nobody has stored would count as sent
    if endpoint.startswith(API) or endpoint == BULK:
        require_own(response, endpoint)
    return _verify(response, endpoint, *args, **options)


def _uploaded(response: Any) -> None:
    _raise_for_status(response)  # and any status 200 as well
    require_stored(response)
