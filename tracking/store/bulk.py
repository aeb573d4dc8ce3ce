"""Write points to an SQLite store by bulk inserts, with the same rows as `log_batch` and without holding up training.

MLflow makes several Python objects for each point, in the background but under the interpreter's lock: 20 metrics a
step slowed down a training step of 5 ms by a third.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.utils import validation
from mlflow.version import VERSION
from sqlalchemy.exc import SQLAlchemyError

# Schema revision by version of MLflow, for the versions whose rows were compared with ours. `log_batch` serves others.
# To add one, install it, run tests/tracking/store/test_bulk.py, and compare its SqlAlchemyStore._log_metrics.
TRIED = {"3.17.2": "dc11669786a5"}

BEGIN = (
    "PRAGMA foreign_keys = ON",  # as MLflow's own sessions
    "PRAGMA busy_timeout = 20000",
    "BEGIN IMMEDIATE",  # waits for other writers here, and not between reading and writing, where SQLite would give up
)
CHECK = "SELECT lifecycle_stage, (SELECT version_num FROM alembic_version) FROM runs WHERE run_uuid = ?"
INSERT = (
    "INSERT INTO metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)
# MLflow's rule: the largest step, then time, then value counts; of equals, and nan equals 0, the first
UPDATE_LATEST = (
    "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (key, run_uuid) DO UPDATE SET"
    " value = excluded.value, timestamp = excluded.timestamp, step = excluded.step, is_nan = excluded.is_nan"
    " WHERE (excluded.step, excluded.timestamp, excluded.value) > (step, timestamp, value)"
)


def insert(client: MlflowClient, run_id: str, metrics: Sequence[Metric]) -> bool:
    """Store points in one transaction and return True. Points that the store has already are left as they are.

    Return False, with nothing stored, for whatever needs MLflow's own `log_batch`: a store that is not SQLite or of a
    version that was not tried, a run that is not active, a point that is out of range, an error other than a lock.
    Raises sqlite3.OperationalError if another process holds the lock of the file for 20 s.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking.fluent import get_active_model_id

    store = client._tracking_client.store
    is_tried = type(store) is SqlAlchemyStore and store.db_type == "sqlite" and VERSION in TRIED
    if not is_tried or get_active_model_id() or not all(map(_is_plain, metrics)):
        return False
    rows = []
    for metric in metrics:
        is_nan, value = store.sanitize_metric_value(metric.value)
        rows.append((metric.key, value, metric.timestamp, metric.step, is_nan, run_id))
    try:
        with closing(store.engine.raw_connection()) as connection:  # closing it rolls back what was not committed
            return _insert(connection, run_id, rows)
    except (sqlite3.Error, SQLAlchemyError, ValueError, OverflowError) as error:  # also a step of 65 bits
        if "database is locked" in str(error):
            raise
        return False


def _insert(connection: Any, run_id: str, rows: Sequence[tuple[Any, ...]]) -> bool:
    cursor = connection.cursor()
    for statement in BEGIN:
        cursor.execute(statement)
    if cursor.execute(CHECK, [run_id]).fetchone() != ("active", TRIED[VERSION]):
        return False
    latest: dict[str, tuple[Any, ...]] = {}
    for row in rows:
        key, value, timestamp, step, *_ = row
        known = latest.get(key)
        if known is None or (step, timestamp, value) > (known[3], known[2], known[1]):
            latest[key] = row
    cursor.executemany(INSERT, rows)
    cursor.executemany(UPDATE_LATEST, latest.values())
    connection.commit()
    return True


def _is_plain(metric: Metric) -> bool:
    """Return whether a point needs nothing that only MLflow knows, such as the model it belongs to."""
    kinds = type(metric.value), type(metric.timestamp), type(metric.step)
    return kinds == (float, int, int) and metric.timestamp >= 0 and not metric.model_id and _is_name(metric.key)


@lru_cache(maxsize=4096)
def _is_name(key: str) -> bool:
    try:
        validation._validate_metric(key, 0.0, 0, 0)
    except MlflowException:
        return False
    return True
