"""Many recorders write to one SQLite file at once: it has every point exactly once."""

from __future__ import annotations

import sqlite3

import pytest
from store_workers import at_once, record_points


# 32: the cores of a workstation
@pytest.mark.parametrize("count", [8, pytest.param(32, marks=pytest.mark.heavy)])
def test_processes_record_in_one_database_and_each_point_is_stored_once(store, tmp_path, count):
    outbox = tmp_path / "outbox"
    run_ids = at_once(count, record_points, store.uri, str(outbox))
    with sqlite3.connect(tmp_path / "store" / "mlflow.db") as database:
        rows = database.execute("SELECT run_uuid, key, step, value FROM metrics").fetchall()
        names = dict(database.execute("SELECT run_uuid, name FROM runs WHERE status = 'FINISHED'").fetchall())
    assert set(run_ids) == set(names)
    expected = {
        (f"writer {number}", f"m{i}", step, number + i / 7 + step)
        for number in range(count)
        for i in range(20)
        for step in range(40)
    }
    assert len(rows) == len(expected) == count * 800
    assert {(names[run], *point) for run, *point in rows} == expected
    assert list(outbox.iterdir()) == []
