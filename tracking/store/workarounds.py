"""What MLflow (3.17) does otherwise than our store needs, and how it is got round; each goes when MLflow mends it."""

from __future__ import annotations

import logging
import os
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
from mlflow.utils import rest_utils

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


def apply() -> None:
    """Set its environment, unless somebody has, and silence and mend it; may be called again."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # it logs a traceback for every busy moment
    logging.getLogger("mlflow.store.db.utils").addFilter(_warnings_alone)
    logging.getLogger("mlflow.utils.databricks_utils").setLevel(logging.ERROR)  # that no credentials are there we say
    rest_utils.verify_rest_response = _verified


def _warnings_alone(record: logging.LogRecord) -> bool:
    return record.levelno == logging.WARNING


def _verified(response: Any, endpoint: str, *args: Any, **options: Any) -> Any:
    # it takes an empty answer for a success, so that points which nobody has stored would count as sent
    if response.status_code == 200 and not response.text.strip() and endpoint.startswith(API):
        raise MlflowException(f"the answer to {endpoint} is empty", error_code=TEMPORARILY_UNAVAILABLE)
    return _verify(response, endpoint, *args, **options)
