"""Somebody cut or wrote to a journal: the readable lines arrive, the run is tagged, and the journal is kept."""

from __future__ import annotations

import json
import os

import pytest

from featurelab.tracking.errors import StoreError
from featurelab.tracking.outbox.journal import Journal, JournalDamaged
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.outbox.sync import discard, sync


@pytest.fixture
def outbox(tmp_path):
    path = tmp_path / "outbox"
    path.mkdir()
    return path


@pytest.fixture
def run_id(store):
    return store.start_run("system/figure", "run")


@pytest.fixture
def journal(store, run_id, outbox):
    """Write the journal of a process that recorded ten steps and finished."""
    path = outbox / f"{run_id}.jsonl"
    lines = [{"uri": store.uri, "run_id": run_id, "experiment": ""}]
    lines += [{"t": 1 + step, "s": step, "m": {"loss": 0.5}} for step in range(10)]
    lines += [{"end": "FINISHED", "t": 20, "tags": {"status": "finished"}}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def steps(store, run_id):
    return [m.step for m in store.client.get_metric_history(run_id, "loss")]


@pytest.mark.parametrize(
    "line", ["#garbage", "[]", "1", '{"s": 3, "m', "[" * 100_000, '{"sent": 1000000000}', '{"sent": 7}', '{"sent": -1}']
)
def test_an_unreadable_line_is_reported_and_all_others_are_sent(store, run_id, outbox, journal, line):
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([*lines[:4], line, *lines[5:]]) + "\n")
    for _ in range(2):  # reported until it is discarded
        assert f"--discard {run_id}" in sync(outbox, known=store.uri).failed[run_id]
    assert steps(store, run_id) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    run = store.get_run(run_id)
    assert run.data.tags["damaged"].startswith("1 line of the journal")
    assert (run.info.status, run.data.tags["status"], run.data.tags["cut_short"]) == ("FAILED", "failed", "true")
    assert [path.name for path in outbox.iterdir()] == [f"{run_id}.damaged.jsonl"]
    discard(outbox, run_id)
    assert sync(outbox, known=store.uri).failed == {}
    assert list(outbox.iterdir()) == []


def test_a_live_journal_that_is_cut_ends_the_trial_and_no_line_is_added_to_the_cut_one(store, run_id, outbox):
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=60)
    for step in range(5):
        recorder.log({"loss": 0.5}, step)
    journal = outbox / f"{run_id}.jsonl"
    os.truncate(journal, journal.stat().st_size - 10)
    with pytest.raises(JournalDamaged, match="was cut or written to by another process"):
        recorder.log({"loss": 0.5}, 5)
    with pytest.raises(JournalDamaged):
        recorder.log({"loss": 0.5}, 6)
    assert recorder.close("FINISHED", tags={"status": "finished"})
    run = store.get_run(run_id)
    assert run.info.status == "FAILED"
    assert "damaged" in run.data.tags
    assert steps(store, run_id) == [0, 1, 2, 3]
    assert (outbox / f"{run_id}.damaged.jsonl").exists()


def test_a_live_journal_whose_last_line_is_overwritten_ends_the_trial(store, run_id, outbox):
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=60)
    for step in range(5):
        recorder.log({"loss": 0.5}, step)
    journal = outbox / f"{run_id}.jsonl"
    content = journal.read_bytes()
    with journal.open("r+b") as file:
        file.seek(content.rfind(b"\n", 0, -1) + 1)
        file.write(b"#garbage\xff\x00")
    recorder.log({"loss": 0.5}, 5)
    assert recorder.close("FINISHED", tags={"status": "finished"})
    assert isinstance(recorder.broken, JournalDamaged)
    assert store.get_run(run_id).data.tags["status"] == "failed"
    assert steps(store, run_id) == [0, 1, 2, 3, 5]


def test_a_resumed_run_records_again_what_a_damaged_journal_lost(store, run_id, outbox, journal):
    journal.write_text(journal.read_text().replace('"s": 4', "#"))
    recorder = Recorder(store, run_id, outbox=outbox, attempt=2)
    for step in range(12):
        recorder.log({"loss": 0.5}, step)
    assert recorder.close("FINISHED", tags={"status": "finished"})
    assert sorted(steps(store, run_id)) == list(range(12))
    run = store.get_run(run_id)
    assert run.data.tags["status"] == "finished"
    assert "damaged" in run.data.tags


def test_a_journal_without_a_header_is_sent_to_the_store_that_has_its_run(store, run_id, outbox, journal):
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[1:]))
    assert sync(outbox, known=store.uri).sent == [run_id]
    assert steps(store, run_id) == list(range(10))
    (outbox / f"{'0' * 32}.jsonl").touch()
    assert "there is no run" in sync(outbox, known=store.uri).failed["0" * 32]


def test_a_header_that_does_not_fit_on_the_disk_leaves_no_journal(outbox, monkeypatch):
    monkeypatch.setattr("os.write", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        Journal(outbox / "r.jsonl", header={"uri": "sqlite:///x.db"})
    assert list(outbox.iterdir()) == []


@pytest.mark.parametrize("wrong_id", ["x" * 300, "x" * 256, "a/b", "../x", "a\0b", "", "\ud800", "*", "é" * 200])
def test_discarding_anything_invalid_is_refused_in_one_line(outbox, wrong_id):
    with pytest.raises(StoreError) as caught:
        discard(outbox, wrong_id)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_second_names_of_files_elsewhere_are_not_uploaded(store, run_id, outbox, journal, tmp_path):
    (tmp_path / "secret").write_text("s3cret")
    (outbox / run_id / "1").mkdir(parents=True)
    (outbox / run_id / "1" / "kept.txt").hardlink_to(tmp_path / "secret")
    assert "has a second name elsewhere" in sync(outbox, known=store.uri).failed[run_id]
    assert store.artifact_paths(run_id, "") == []
