"""The journal, the run or the file of the store is removed while a trial records."""

from __future__ import annotations

import math
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from featurelab.tracking.errors import RunGone, StoreError, StoreGone
from featurelab.tracking.outbox.journal import JournalRemoved
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.outbox.sender import Sender
from featurelab.tracking.outbox.sync import discard, sync
from featurelab.tracking.store.connect import attach


@pytest.fixture
def outbox(tmp_path):
    return tmp_path / "outbox"


@pytest.fixture
def run_id(store):
    return store.start_run("system/figure", "run")


def points(store, run_id):
    return sorted((m.step, m.value) for m in store.client.get_metric_history(run_id, "loss/train"))


def until(condition, patience=20.0):
    deadline = time.monotonic() + patience
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def removed(outbox):
    shutil.rmtree(outbox)


def moved(outbox):
    outbox.rename(outbox.with_name("elsewhere"))


def replaced(outbox):
    (journal,) = outbox.glob("*.jsonl")
    journal.rename(outbox / "old")
    journal.write_text("mine\n")


@pytest.mark.parametrize("gone", [removed, moved, replaced])
def test_a_removed_journal_is_noticed_at_the_next_point_and_its_lines_are_stored(store, run_id, outbox, gone):
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=60)
    for step in range(490):
        recorder.log({"loss/train": float(step)}, step)
    gone(outbox)
    with pytest.raises(JournalRemoved, match="was removed or replaced while the run was recorded"):
        recorder.log({"loss/train": 490.0}, 490)
    for record in (lambda: recorder.log({"nfa/0": 0.5}, 491), recorder.check, lambda: recorder.json("x", {})):
        with pytest.raises(JournalRemoved):
            record()
    assert recorder.close(tags={"status": "failed"})
    assert points(store, run_id) == [(step, float(step)) for step in range(490)]
    run = store.get_run(run_id)
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "failed")
    path = outbox / f"{run_id}.jsonl"
    assert not path.exists() or path.read_text() == "mine\n", "the file of somebody else is not deleted"


def test_artifacts_removed_before_they_were_sent_are_counted(store, run_id, outbox, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Sender, "_drain", lambda self, everything: None)
        recorder = Recorder(store, run_id, outbox=outbox)
        for number in range(3):
            recorder.json(f"part{number}", {})
        shutil.rmtree(outbox / run_id / "2")
    assert recorder.close()
    assert store.get_run(run_id).data.tags["artifacts_lost"] == "1 were removed from the outbox before they were sent"
    assert set(store.artifact_paths(run_id, "")) == {"part0.json", "part2.json"}


def test_a_run_that_lost_nothing_has_no_tag_about_losses(store, run_id, outbox):
    with Recorder(store, run_id, outbox=outbox) as recorder:
        recorder.json("part", {})
    assert "artifacts_lost" not in store.get_run(run_id).data.tags


def test_a_deleted_run_is_not_recorded_further_and_its_journal_is_kept(store, run_id, outbox):
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=0.05)
    recorder.log({"loss/train": 0.0}, 0)
    assert recorder.flush(20)
    store.client.delete_run(run_id)
    recorder.log({"loss/train": 1.0}, 1)
    assert until(lambda: recorder.broken)
    with pytest.raises(RunGone, match=f"run {run_id} was deleted from the store"):
        recorder.log({"loss/train": 2.0}, 2)
    assert not recorder.close(timeout=math.inf), "nothing will arrive, so closing does not wait"

    reason = sync(outbox, known=store.uri).failed[run_id]
    assert reason.startswith(f"run {run_id} was deleted from the store")
    store.client.restore_run(run_id)
    assert sync(outbox, known=store.uri).sent == [run_id]
    assert points(store, run_id) == [(0, 0.0), (1, 1.0)]


def test_undeliverable_data_can_be_discarded(store, run_id, outbox):
    recorder = Recorder(store, run_id, outbox=outbox)
    recorder.log({"loss/train": 0.0}, 0)
    with pytest.raises(StoreError, match="in use by another process"):
        discard(outbox, run_id)
    store.client.delete_run(run_id)
    assert not recorder.close(timeout=1)
    assert f"featurelab sync --discard {run_id}" in sync(outbox, known=store.uri).failed[run_id]
    for wrong_id in ("x", f"../outbox/{run_id}", ""):
        with pytest.raises(StoreError, match=r"has no journal of run|is not the id of a run"):
            discard(outbox, wrong_id)
    discard(outbox, run_id)
    assert list(outbox.iterdir()) == []
    assert sync(outbox, known=store.uri).failed == {}


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT count(*) FROM metrics WHERE key = 'loss/train'").fetchone()[0]


def test_a_process_that_starts_after_the_file_was_replaced_refuses_the_new_one(template, tmp_path):
    path = Path(shutil.copy(template, tmp_path / "mlflow.db"))
    store = attach(f"sqlite:///{path}")
    store.start_run("system/figure", "run")
    path.rename(tmp_path / "kept.db")
    shutil.copy(template, path)
    late = f"""
from featurelab.tracking.store.connect import attach
store = attach({store.uri!r})
store.expect({store.file!r})
store.start_run("system/figure", "late")
"""
    process = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True)
    assert process.stderr.splitlines()[-1].endswith("was removed or replaced while it was in use")


@pytest.mark.parametrize("way", ["removed", "replaced"])
def test_no_journal_is_deleted_after_the_file_of_the_store_was_removed_or_replaced(template, tmp_path, outbox, way):
    path = Path(shutil.copy(template, tmp_path / "mlflow.db"))
    store = attach(f"sqlite:///{path}")
    run_id = store.start_run("system/figure", "run")
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=60)
    for step in range(200):
        recorder.log({"loss/train": float(step)}, step)
    moved_file = path.rename(tmp_path / "kept.db")
    for suffix in ("-wal", "-shm"):
        if Path(f"{path}{suffix}").exists():
            Path(f"{path}{suffix}").rename(f"{moved_file}{suffix}")
    if way == "replaced":
        shutil.copy(template, path)
    assert not recorder.close(timeout=math.inf)
    assert isinstance(recorder.broken, StoreGone)
    with pytest.raises(StoreGone, match="was removed or replaced while it was in use"):
        store.start_run("system/figure", "another")
    journal = outbox / f"{run_id}.jsonl"
    assert len(journal.read_text().splitlines()) >= 200, "every line is still there"
    assert rows(moved_file) == 0
