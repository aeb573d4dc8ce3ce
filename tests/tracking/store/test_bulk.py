"""Bulk inserts store what MLflow's `log_batch` stores, and leave to it what they were not tried with."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.version import VERSION
from store_workers import at_once, write_one_run

from featurelab.tracking.errors import StoreError
from featurelab.tracking.store import bulk
from featurelab.tracking.store.addresses import sqlite_path

LARGEST = 2**63 - 1
TABLES = {
    "metrics": "key, value, typeof(value), timestamp, step, is_nan",
    "latest_metrics": "key, value, typeof(value), timestamp, step, is_nan",
    "params": "key, value",
    "tags": "key, value",
}
VALUES = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 5e-324, 1e308]) | st.floats()
STEPS = st.sampled_from([-LARGEST - 1, -1, 0, 1, 2, LARGEST])
TIMES = st.sampled_from([0, 1, 2, 1_700_000_000_000, LARGEST])
POINTS = st.builds(Metric, st.sampled_from(["a", "b/c", "ü x"]), VALUES, TIMES, STEPS)
NAMES = st.sampled_from(["p", "q", "r/s", "mlflow.runName", "mlflow.note.content"])
TEXTS = st.dictionaries(NAMES, st.text(max_size=3) | st.sampled_from(["x" * 6001, "a\0b"]), max_size=3)
BATCHES = st.lists(st.tuples(st.lists(POINTS, max_size=12), TEXTS, st.booleans()), min_size=1, max_size=5)
P, Q = Metric("a", 1.0, 5, 1), Metric("a", math.nan, 5, 1)


def _rows(store, run_id):
    """Return all rows of a run by table, as text that tells nan, -0.0 and the last bit apart."""
    with closing(sqlite3.connect(sqlite_path(store.uri))) as database:
        return {
            table: sorted(map(repr, database.execute(f"SELECT {columns} FROM {table} WHERE run_uuid = ?", [run_id])))
            for table, columns in TABLES.items()
        }


def _send(store, batches, tried, monkeypatch):
    """Send batches to a new run, each of them again where its flag says so; `tried` says which take the bulk way."""
    run_id = store.start_run("system/figure", "run", tags={"mlflow.startToken": "x"})
    for index, (points, texts, again) in enumerate(batches):
        with monkeypatch.context() as patched:
            if not tried(index):
                patched.setattr(bulk, "TRIED", {})
            for _ in range(1 + again):
                params = {f"{name}{len(text)}": str(len(text)) for name, text in texts.items()}  # never another value
                store.log_metrics(run_id, points, tags=texts, params=params)
    rows = _rows(store, run_id)
    rows["tags"] = [row for row in rows["tags"] if "startToken" not in row]
    return rows


@settings(max_examples=30)
@given(BATCHES)
@example([([P, P, Q, Q], {}, True), ([Q, P], {}, False)])
@example([([Metric("a", 0.0, 5, 1), Q, Metric("a", -0.0, 5, 1)], {}, False), ([Q, Metric("a", 0.0, 5, 1)], {}, True)])
@example([([P], {}, False), ([Metric("a", 9.0, 9, 0), Metric("a", 0.5, 5, 1), Metric("a", 2.0, 4, 1)], {}, False)])
def test_bulk_inserts_and_log_batch_leave_the_same_tables_in_any_order(store, monkeypatch, batches):
    by_mlflow = _send(store, batches, lambda index: False, monkeypatch)
    assert _send(store, batches, lambda index: True, monkeypatch) == by_mlflow
    assert _send(store, batches, lambda index: index % 2 == 0, monkeypatch) == by_mlflow


@pytest.mark.parametrize("tried", [{}, bulk.TRIED])
def test_another_value_of_a_param_is_refused_and_nothing_is_stored(store, monkeypatch, tried):
    monkeypatch.setattr(bulk, "TRIED", tried)
    run_id = store.start_run("system/figure", "run", params={"lr": 0.1, "width": 64})
    store.log_metrics(run_id, [], params={"lr": 0.1, "depth": 2})
    before = _rows(store, run_id)
    assert before["params"] == ["('depth', '2')", "('lr', '0.1')", "('width', '64')"]
    with pytest.raises(MlflowException, match="Changing param values is not allowed"):
        store.log_metrics(run_id, [P], tags={"new": "x"}, params={"new": 1, "lr": 0.2})
    assert _rows(store, run_id) == before


@pytest.fixture
def requests(store, monkeypatch):
    """The numbers of points that went through `log_batch`, one for each request."""
    sent = []
    log_batch = store.client.log_batch

    def counted(run_id, metrics=(), **others):
        sent.append(len(metrics))
        return log_batch(run_id, metrics=metrics, **others)

    monkeypatch.setattr(store.client, "log_batch", counted)
    return sent


@pytest.fixture
def run_id(store, requests):
    return store.start_run("system/figure", "run")


def test_the_installed_version_is_one_that_was_tried(store, run_id, requests):
    assert VERSION in bulk.TRIED
    store.log_metrics(run_id, [Metric(f"m{i % 20}", float(i), 1000 + i, i // 20) for i in range(2000)])
    assert requests == []
    assert store.get_run(run_id).data.metrics == {f"m{i}": 1980.0 + i for i in range(20)}
    history = store.client.get_metric_history(run_id, "m7")
    assert [(m.step, m.value, m.timestamp) for m in history] == [(s, 20.0 * s + 7, 1007 + 20 * s) for s in range(100)]


def test_another_version_of_mlflow_takes_points_itself(store, run_id, requests, monkeypatch):
    monkeypatch.setattr(bulk, "VERSION", "3.99.0")
    store.log_metrics(run_id, [P])
    assert (requests, store.get_run(run_id).data.metrics) == ([1], {"a": 1.0})


def test_a_file_of_another_schema_takes_no_bulk_inserts(store, run_id, requests):
    with closing(sqlite3.connect(sqlite_path(store.uri), isolation_level=None)) as database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")  # `mlflow db upgrade`, meanwhile
        store.log_metrics(run_id, [P])
        database.execute("UPDATE alembic_version SET version_num = ?", [bulk.TRIED[VERSION]])
    assert (requests, _rows(store, run_id)["metrics"]) == ([1], ["('a', 1.0, 'real', 5, 1, 0)"])


def test_points_of_an_active_model_are_left_to_mlflow(store, run_id, requests, monkeypatch):
    monkeypatch.setattr("mlflow.tracking.fluent.get_active_model_id", lambda: "m-1")
    assert not bulk.insert(store.client, run_id, [P])
    monkeypatch.undo()
    assert not bulk.insert(store.client, run_id, [Metric("a", 1.0, 5, 1, model_id="m-1")])


UNFIT = {
    "step of 65 bits": Metric("a", 1.0, 5, 2**63),
    "time of 65 bits": Metric("a", 1.0, 2**63, 5),
    "negative time": Metric("a", 1.0, -1, 5),
    "no number": Metric("a", "x", 5, 5),
    "invalid name": Metric("a*", 1.0, 5, 5),
    "name outside the folder": Metric("../a", 1.0, 5, 5),
    "long name": Metric("a" * 251, 1.0, 5, 5),
    "half of a surrogate pair": Metric("\ud800", 1.0, 5, 5),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_mlflow_refuses_is_refused_with_its_own_error_and_nothing_is_stored(store, run_id, case):
    assert not bulk.insert(store.client, run_id, [P, UNFIT[case]])
    assert _rows(store, run_id)["metrics"] == []
    with pytest.raises((MlflowException, OverflowError, ValueError)):
        store.log_metrics(run_id, [P, UNFIT[case]])


def test_a_deleted_run_and_an_unknown_one_take_no_points(store, run_id):
    store.client.delete_run(run_id)
    for gone in (run_id, "0" * 32):
        with pytest.raises(MlflowException, match=r"deleted|not found"):
            store.log_metrics(gone, [P])
        assert _rows(store, gone)["metrics"] == []


def test_an_error_in_the_middle_of_the_inserts_leaves_all_to_mlflow(store, run_id, requests):
    with closing(sqlite3.connect(sqlite_path(store.uri))) as database, database:
        database.execute(
            "CREATE TRIGGER once BEFORE INSERT ON metrics WHEN NEW.step = 2"
            " AND (SELECT count(*) FROM metrics) = 1 BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(MlflowException, match="no"):
        store.log_metrics(run_id, [P, Metric("a", 1.0, 5, 2)])
    assert (requests, _rows(store, run_id)["metrics"]) == ([2], [])


def test_a_locked_file_is_waited_for_and_then_takes_every_point_once(store, run_id, requests, monkeypatch):
    monkeypatch.setattr(bulk, "BEGIN", ("PRAGMA busy_timeout = 50", "BEGIN IMMEDIATE"))
    with closing(sqlite3.connect(sqlite_path(store.uri), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="database is locked"):
            replace(store, patience=0.2).log_metrics(run_id, [P])
        other.rollback()
        store.log_metrics(run_id, [P])
    assert (requests, len(_rows(store, run_id)["metrics"])) == ([], 1)


def test_writers_of_both_ways_at_once_lose_no_point_of_one_run(store, run_id):
    assert at_once(4, write_one_run, store.uri, run_id) == ["done"] * 4
    with closing(sqlite3.connect(sqlite_path(store.uri))) as database:
        assert database.execute("SELECT count(*) FROM metrics").fetchone() == (4 * 10 * 20,)
    assert store.get_run(run_id).data.metrics == {f"m{i}": 39.0 for i in range(20)}
