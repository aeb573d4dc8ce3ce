"""Late delivery: the store was away, slow or locked, or the recording process ended first."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store import bulk
from featurelab.tracking.store.connect import attach
from featurelab.tracking.store.store import Store


@pytest.fixture
def outbox(tmp_path):
    return tmp_path / "outbox"


@pytest.fixture
def run_id(store):
    return store.start_run("system/figure", "run")


def _points(store, run_id, metric):
    return sorted((m.step, m.value) for m in store.client.get_metric_history(run_id, metric))


def _away(store):
    """Return the store at an address where no server listens."""
    return replace(attach("http://127.0.0.1:9"), patience=store.patience)


def test_a_store_that_is_away_never_stops_training_and_sync_delivers_later(store, run_id, outbox, caplog):
    recorder = Recorder(_away(store), run_id, outbox=outbox, flush_seconds=0.05)
    for step in range(300):
        recorder.log({"loss/train": 1 / (step + 1)}, step)
        time.sleep(0.001)
    recorder.json("config", {"lr": 0.1})
    assert not recorder.flush(0.2)
    with caplog.at_level(logging.WARNING, logger="featurelab.tracking.outbox.record"):
        assert not recorder.close("FAILED", tags={"why": "test"}, timeout=1)
    assert [record.message for record in caplog.records if "sync" in record.message] != []
    assert store.get_run(run_id).info.status == "RUNNING"

    assert sync(outbox, store.uri).sent == [run_id]
    run = store.get_run(run_id)
    assert _points(store, run_id, "loss/train") == [(step, 1 / (step + 1)) for step in range(300)]
    assert (run.info.status, run.data.tags["why"], run.data.metrics["best.loss.train"]) == ("FAILED", "test", 1 / 300)
    assert store.read_json(run_id, "config.json") == {"lr": 0.1}
    assert sync(outbox, store.uri).sent == []
    assert list(outbox.iterdir()) == []


def test_closing_waits_while_there_is_progress(store, run_id, outbox, monkeypatch):
    send, requests = bulk.insert, []

    def slow(*batch):
        requests.append(batch)
        time.sleep(1.5)
        return send(*batch)

    monkeypatch.setattr(bulk, "insert", slow)
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=60, flush_points=10**9)
    for step in range(22_000):
        recorder.log({"nfa/0": float(step)}, step)
    assert recorder.close(timeout=8.0)
    assert 1.5 * len(requests) > 8.0, "all requests together take longer than the timeout"
    assert _points(store, run_id, "nfa/0") == [(step, float(step)) for step in range(22_000)]


def test_a_server_that_stops_and_comes_back_loses_nothing_and_stores_nothing_twice(server, outbox):
    store = attach(server.uri)
    run_id = store.start_run("system/restart", "run")
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=0.05)
    expected = []

    def record(count):
        for _ in range(count):
            step = len(expected)
            recorder.log({"loss/train": 1 / (step + 1)}, step)
            expected.append((step, 1 / (step + 1)))
            time.sleep(0.002)

    record(150)
    killer = threading.Timer(0.1, server.stop)  # most likely in the middle of a request
    killer.start()
    record(150)
    killer.join()
    recorder.array("weights", w=np.ones(3))
    server.start()
    record(50)
    assert recorder.close(timeout=60)
    with sqlite3.connect(server.home / "mlflow.db") as database:
        query = "SELECT step, value FROM metrics WHERE run_uuid = ? AND key = 'loss/train' ORDER BY step"
        assert database.execute(query, (run_id,)).fetchall() == expected
    assert store.get_run(run_id).info.status == "FINISHED"
    assert np.load(store.download(run_id, "arrays/weights.npz"))["w"].tolist() == [1, 1, 1]


DYING = """
import os, signal, sys
from pathlib import Path
from featurelab.tracking.store.connect import attach
from featurelab.tracking.outbox.record import Recorder
uri, run_id, outbox, way = sys.argv[1:]
recorder = Recorder(attach(uri), run_id, outbox=Path(outbox), flush_seconds=0.05, flush_points=50)
recorder.json("config", {"lr": 0.1})
for step in range(2000):
    recorder.log({"loss/train": step / 7}, step)
print("recorded", flush=True)
if way == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _die(store, run_id, outbox, way):
    command = [sys.executable, "-c", DYING, store.uri, run_id, str(outbox), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "recorded\n", done.stderr
    return done.returncode


def test_a_killed_process_loses_nothing_that_it_recorded(store, run_id, outbox):
    assert _die(store, run_id, outbox, "kill") == -9
    journal = outbox / f"{run_id}.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"t":1,"s":2000,"m":{"loss/tr')  # as if killed inside a write
    assert sync(outbox).sent == [run_id]
    assert _points(store, run_id, "loss/train") == [(step, step / 7) for step in range(2000)]
    run = store.get_run(run_id)
    assert (run.info.status, run.data.metrics["loss/train"]) == ("KILLED", 1999 / 7)
    assert store.read_json(run_id, "config.json") == {"lr": 0.1}
    assert [path.name for path in outbox.iterdir()] == [f"{run_id}.damaged.jsonl"], (
        "the cut line may have been a whole one"
    )


def test_a_process_that_exits_without_closing_sends_everything(store, run_id, outbox):
    assert _die(store, run_id, outbox, "return") == 0
    assert _points(store, run_id, "loss/train") == [(step, step / 7) for step in range(2000)]
    assert store.get_run(run_id).info.status == "KILLED"
    assert list(outbox.iterdir()) == []


def test_a_recorder_continues_the_journal_of_a_killed_one(store, run_id, outbox):
    outbox.mkdir()
    lines = [{"uri": store.uri, "run_id": run_id, "experiment": ""}, {"t": 1, "s": 0, "m": {"loss/train": 3.0}}]
    (outbox / f"{run_id}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    with Recorder(store, run_id, outbox=outbox) as recorder:
        recorder.log({"loss/train": 5.0}, 1)
    assert _points(store, run_id, "loss/train") == [(0, 3.0), (1, 5.0)]
    assert store.get_run(run_id).data.metrics["best.loss.train"] == 3.0


def test_a_run_that_is_being_recorded_is_left_alone(store, run_id, outbox):
    with Recorder(store, run_id, outbox=outbox) as recorder:
        recorder.log({"a": 1.0}, 0)
        assert sync(outbox).busy == [run_id]
        assert store.get_run(run_id).info.status == "RUNNING"
    assert sync(outbox).busy == []


def test_a_status_that_was_set_in_between_is_kept(store, run_id, outbox):
    Recorder(_away(store), run_id, outbox=outbox).close("FINISHED", timeout=0.2)
    store.end_run(run_id, "FAILED")
    assert sync(outbox, store.uri).sent == [run_id]
    assert store.get_run(run_id).info.status == "FAILED"


def test_one_broken_journal_does_not_hold_up_the_others(store, run_id, outbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no store is
    Recorder(_away(store), run_id, outbox=outbox).close(timeout=0.2)
    missing = f"sqlite:///{outbox}/gone/mlflow.db"
    (outbox / "0a.jsonl").write_text(json.dumps({"uri": store.uri}) + "\n")
    (outbox / "0b.jsonl").write_text("")
    (outbox / "0c.jsonl").write_text(json.dumps({"uri": missing}) + "\n")
    (outbox / f"{run_id}.jsonl").write_text(
        (outbox / f"{run_id}.jsonl").read_text().replace("http://127.0.0.1:9", store.uri)
    )
    result = sync(outbox)
    assert result.sent == [run_id]
    assert "no run '0a'" in result.failed["0a"]
    assert "there is no store" in result.failed["0b"]
    assert "there is no store" in result.failed["0c"]
    assert sorted(path.name for path in outbox.iterdir()) == ["0a.jsonl", "0b.jsonl", "0c.jsonl"]


def test_artifacts_that_cannot_be_sent_are_kept_and_do_not_hold_up_metrics(store, run_id, outbox, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(Store, "log_tree", full)
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=0.05)
    recorder.array("weights", w=np.ones(2))
    recorder.log({"loss/train": 1.0}, 0)
    assert not recorder.close(timeout=1)
    assert store.get_run(run_id).data.metrics["loss/train"] == 1.0
    assert store.get_run(run_id).info.status == "FINISHED"
    assert list(outbox.glob("*/*/arrays/weights.npz")) != []
    monkeypatch.undo()
    assert sync(outbox).sent == [run_id]
    assert np.load(store.download(run_id, "arrays/weights.npz"))["w"].tolist() == [1, 1]


def test_recording_continues_while_another_process_locks_the_database(store, run_id, outbox, tmp_path):
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=0.05)
    other = sqlite3.connect(tmp_path / "store" / "mlflow.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    for step in range(500):
        recorder.log({"loss/train": float(step)}, step)
    time.sleep(1.0)  # the sender meets the lock
    other.rollback()
    assert recorder.close(timeout=30)
    assert _points(store, run_id, "loss/train") == [(step, float(step)) for step in range(500)]
