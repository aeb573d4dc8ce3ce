"""Write points, tags and params to an SQLite store by bulk inserts, with the same rows as MLflow's `log_batch`.

MLflow makes several Python objects for each point, in the background but under the interpreter's lock: 20 metrics a
step slowed down a training step of 5 ms by a third.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.utils import validation
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NAME
from mlflow.version import VERSION
from sqlalchemy.exc import SQLAlchemyError

from featurelab.tracking.store.points import Point

# Schema revision by version of MLflow, for the versions whose rows were compared with ours. `log_batch` serves others.
# To add one, install it, run tests/tracking/store/test_bulk.py, and read its SqlAlchemyStore.log_batch for new rules.
TRIED = {"3.17.2": "dc11669786a5"}

BEGIN = (
    "PRAGMA foreign_keys = ON",  # as MLflow's own sessions
    "PRAGMA busy_timeout = 20000",
    "BEGIN IMMEDIATE",  # waits for other writers here, and not between reading and writing, where SQLite would give up
)
CHECK = "SELECT lifecycle_stage, (SELECT version_num FROM alembic_version) FROM runs WHERE run_uuid = ?"
COLUMNS = "(key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, ?, ?)"
INSERT_POINT = f"INSERT INTO metrics {COLUMNS} ON CONFLICT DO NOTHING"
# MLflow's rule: the largest step, then time, then value counts, where nan is 0; of equals the first
UPDATE_LATEST = (
    f"INSERT INTO latest_metrics {COLUMNS} ON CONFLICT (key, run_uuid) DO UPDATE SET"
    " value = excluded.value, timestamp = excluded.timestamp, step = excluded.step, is_nan = excluded.is_nan"
    " WHERE (excluded.step, excluded.timestamp, excluded.value) > (step, timestamp, value)"
)
SET_TAG = (
    "INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)"
    " ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value"
)
INSERT_PARAM = "INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)"
Row = tuple[Any, ...]


def insert(
    client: MlflowClient,
    run_id: str,
    metrics: Sequence[Point | Metric],
    tags: Mapping[str, str] = {},
    params: Mapping[str, str] = {},
) -> bool:
    """Store a request in one transaction and return True. Points that the store has already are left as they are.

    Return False, with nothing stored, for whatever needs MLflow's own `log_batch`: a store that is not SQLite or of a
    version that was not tried, a run that is not active, a value that MLflow would refuse or change, an error other
    than a lock. Raises sqlite3.OperationalError if another process holds the lock of the file for 20 s.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking.fluent import get_active_model_id

    store = client._tracking_client.store
    if not (type(store) is SqlAlchemyStore and store.db_type == "sqlite" and VERSION in TRIED):
        return False
    points = None if metrics and get_active_model_id() else _point_rows(store, run_id, metrics)
    if points is None or not (_are_plain(tags) and _are_plain(params)):
        return False
    try:
        with closing(store.engine.raw_connection()) as connection:  # closing it rolls back what was not committed
            is_stored = _insert(connection.cursor(), run_id, points, tags, params)
            if is_stored:
                connection.commit()
            return is_stored
    except (sqlite3.Error, SQLAlchemyError, ValueError, OverflowError) as error:  # also a step of 65 bits
        if "database is locked" in str(error):
            raise
        return False


def _insert(
    cursor: Any, run_id: str, points: Sequence[Row], tags: Mapping[str, str], params: Mapping[str, str]
) -> bool:
    for statement in BEGIN:
        cursor.execute(statement)
    if cursor.execute(CHECK, [run_id]).fetchone() != ("active", TRIED[VERSION]):
        return False
    if params:
        known = dict(cursor.execute("SELECT key, value FROM params WHERE run_uuid = ?", [run_id]).fetchall())
        if any(known.get(key, value) != value for key, value in params.items()):
            return False
        new_params = [(key, value, run_id) for key, value in params.items() if key not in known]
        cursor.executemany(INSERT_PARAM, new_params)
    cursor.executemany(INSERT_POINT, points)
    cursor.executemany(UPDATE_LATEST, _latest(points))
    cursor.executemany(SET_TAG, [(key, value, run_id) for key, value in tags.items()])
    return True


def _latest(points: Sequence[Row]) -> Sequence[Row]:
    """Return the latest point of each metric by MLflow's rule."""
    latest: dict[str, Row] = {}
    for row in points:
        key, value, timestamp, step, *_ = row
        known = latest.get(key)
        if known is None or (step, timestamp, value) > (known[3], known[2], known[1]):
            latest[key] = row
    return list(latest.values())


def _point_rows(store: Any, run_id: str, metrics: Sequence[Point | Metric]) -> list[Row] | None:
    """Return the row of each point; None if one is not a plain point, which only MLflow can store or refuse."""
    rows, isfinite = [], math.isfinite
    for metric in metrics:
        key, value, timestamp, step = metric.key, metric.value, metric.timestamp, metric.step
        is_plain = type(value) is float and type(timestamp) is type(step) is int and timestamp >= 0
        if not is_plain or metric.model_id or not _is_name(key):
            return None
        is_nan, stored = (False, value) if isfinite(value) else store.sanitize_metric_value(value)
        rows.append((key, stored, timestamp, step, is_nan, run_id))
    return rows


def _are_plain(texts: Mapping[str, str]) -> bool:
    """Return whether MLflow would store these tags or params as they are: it cuts long ones, and a name renames."""
    longest = min(validation.MAX_TAG_VAL_LENGTH, validation.MAX_PARAM_VAL_LENGTH)
    return all(len(text) <= longest and key != MLFLOW_RUN_NAME and _is_name(key) for key, text in texts.items())


@lru_cache(maxsize=4096)
def _is_name(key: str) -> bool:
    """Return whether a name is valid for a metric, a tag and a param."""
    try:
        validation._validate_metric(key, 0.0, 0, 0)
        validation._validate_tag(key, "")
        validation._validate_param(key, "")
    except MlflowException:
        return False
    return True
