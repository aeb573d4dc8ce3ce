"""Several processes record a run one after another: each point is stored once, however they end."""

from __future__ import annotations

import math
import os
import shutil
import signal
import time

import pytest
from store_workers import exit_code, record_and_die

from featurelab.tracking.outbox.journal import Busy
from featurelab.tracking.outbox.record import Recorder, now
from featurelab.tracking.outbox.sender import Sender
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store.store import Store


@pytest.fixture
def outbox(tmp_path):
    return tmp_path / "outbox"


@pytest.fixture
def run_id(store):
    return store.start_run("system/figure", "run")


def points(store, run_id, metric="loss/train"):
    return [(m.step, m.value) for m in sorted(store.client.get_metric_history(run_id, metric), key=lambda m: m.step)]


def curve(until, start=0):
    return [(step, 1 / (step + 1)) for step in range(start, until)]


def record(recorder, until, start=0):
    for step, value in curve(until, start):
        recorder.log({"loss/train": value}, step)


def resumed(store, run_id, outbox, attempt=2, **options):
    store.set_tags(run_id, {"attempt": attempt})
    store.reopen_run(run_id)
    return Recorder(store, run_id, outbox=outbox, attempt=attempt, **options)


def die(store, run_id, outbox, flush="half"):
    """Record 100 points in a process that is killed, after the store received 50 of them or none."""
    assert exit_code(record_and_die, store.uri, run_id, str(outbox), flush) == -signal.SIGKILL


@pytest.mark.parametrize("flush", ["half", "none"])
def test_repeated_points_are_stored_once_and_unsent_ones_are_not_lost(store, run_id, outbox, flush):
    die(store, run_id, outbox, flush)
    with resumed(store, run_id, outbox) as recorder:
        record(recorder, 150)
    assert points(store, run_id) == curve(150)
    run = store.get_run(run_id)
    assert (run.info.status, run.data.metrics["loss/train"]) == ("FINISHED", 1 / 150)
    assert [tag for tag in run.data.tags if tag.startswith("differs")] == []
    assert os.listdir(outbox) == []


def test_an_attempt_after_sync_ended_the_run_ends_it_again(store, run_id, outbox):
    die(store, run_id, outbox)
    assert sync(outbox).sent == [run_id]
    assert store.get_run(run_id).info.status == "KILLED"
    recorder = resumed(store, run_id, outbox)
    assert store.get_run(run_id).info.status == "RUNNING"
    record(recorder, 100)
    recorder.log({"loss/train": 0.5}, 100)
    recorder.close()
    assert points(store, run_id) == [*curve(100), (100, 0.5)]
    metrics = store.get_run(run_id).data.metrics
    assert (metrics["loss/train"], metrics["best.loss.train"]) == (0.5, 1 / 100)
    assert store.get_run(run_id).info.status == "FINISHED"


def test_a_different_value_is_tagged_and_the_first_one_stays(store, run_id, outbox):
    die(store, run_id, outbox)
    with resumed(store, run_id, outbox) as recorder:
        recorder.log({"loss/train": 7.0}, 3)
        recorder.log({"loss/train": 8.0}, 4)
    assert points(store, run_id) == curve(100)
    assert store.get_run(run_id).data.tags["differs/loss/train"] == "step 3: 0.25 became 7.0"


def test_nonfinite_values_count_as_equal(store, run_id, outbox):
    for attempt in (1, 2):
        recorder = resumed(store, run_id, outbox, attempt)
        recorder.log({"nfa/0": math.inf}, 3)
        recorder.log({"nfa/0": math.nan}, 5)
        recorder.close("KILLED")
    assert [step for step, _ in points(store, run_id, "nfa/0")] == [3, 5]
    tags = store.get_run(run_id).data.tags
    assert tags["nonfinite/nfa/0"] == "3"
    assert "differs/nfa/0" not in tags


def test_two_points_at_one_step_are_both_stored_and_both_recognised(store, run_id, outbox):
    for attempt in (1, 2):
        recorder = resumed(store, run_id, outbox, attempt)
        for value in (1.0, 2.0):
            recorder.log({"nfa/0": value}, 0)
            time.sleep(0.002)
        recorder.close("KILLED")
    assert sorted(value for _, value in points(store, run_id, "nfa/0")) == [1.0, 2.0]
    assert "differs/nfa/0" not in store.get_run(run_id).data.tags


def test_points_before_a_checkpoint_are_passed_over_and_listeners_hear_them(store, run_id, outbox):
    recorder = Recorder(store, run_id, outbox=outbox)
    record(recorder, 20)
    taken = now()
    time.sleep(0.002)
    record(recorder, 30, start=20)
    recorder.close("KILLED")
    heard = []
    recorder = resumed(store, run_id, outbox, listeners=[lambda metrics, step: heard.append((step, *metrics.items()))])
    recorder.pass_over(taken)
    assert heard == [(step, ("loss/train", value)) for step, value in curve(20)]
    record(recorder, 40, start=20)
    recorder.log({"loss/train": 0.5}, 3)  # a new point, not one from before the checkpoint
    recorder.close()
    assert points(store, run_id) == sorted([*curve(40), (3, 0.5)], key=lambda point: point[0])
    assert len(heard) == 41


def test_the_journal_of_a_machine_that_comes_back_adds_what_is_missing_and_nothing_twice(
    store, run_id, outbox, tmp_path
):
    die(store, run_id, outbox)
    recorder = resumed(store, run_id, tmp_path / "elsewhere")
    assert sync(outbox).busy == [run_id]  # the running attempt may still record the same points
    record(recorder, 80)
    recorder.close("FAILED", tags={"status": "failed"})
    assert sync(outbox).sent == [run_id]
    assert points(store, run_id) == curve(100)
    run = store.get_run(run_id)
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "failed")
    assert os.listdir(outbox) == []


def test_a_third_attempt_on_the_first_machine_stores_nothing_twice(store, run_id, outbox, tmp_path):
    die(store, run_id, outbox)
    second = resumed(store, run_id, tmp_path / "elsewhere")
    record(second, 80)
    second.close("KILLED")
    with resumed(store, run_id, outbox, attempt=3) as recorder:
        record(recorder, 120)
    assert points(store, run_id) == curve(120)
    assert store.get_run(run_id).info.status == "FINISHED"


def test_only_the_newest_two_checkpoints_are_sent_and_none_of_a_run_that_has_ended(store, run_id, outbox, monkeypatch):
    def saved(recorder, number):
        with recorder.files() as root:
            (root / "training").mkdir()
            (root / "training" / f"{number % 2}.ckpt").write_text(str(number))

    send = Store.log_tree
    sent = []
    monkeypatch.setattr(Store, "log_tree", lambda *a: (sent.append(a), send(*a)))
    with monkeypatch.context() as patched:
        patched.setattr(Sender, "_drain", lambda self, everything: None)  # as while the store is away
        recorder = Recorder(store, run_id, outbox=outbox)
        for number in range(5):
            saved(recorder, number)
    recorder.close("KILLED")
    assert len(sent) == 2
    texts = [store.download(run_id, f"training/{slot}.ckpt").read_text() for slot in (0, 1)]
    assert texts == ["4", "3"]
    recorder = resumed(store, run_id, outbox)
    saved(recorder, 5)
    recorder.discard("training")
    recorder.close()
    assert store.artifact_paths(run_id, "training") == []


def test_points_are_in_the_store_before_the_checkpoint_that_implies_them(store, run_id, outbox, monkeypatch):
    send, seen = Store.log_tree, []

    def watched(*arguments):
        seen.append(len(store.client.get_metric_history(run_id, "loss/train")))
        return send(*arguments)

    monkeypatch.setattr(Store, "log_tree", watched)
    with Recorder(store, run_id, outbox=outbox, flush_seconds=0.01) as recorder:
        for number in range(1, 20):
            record(recorder, 10 * number, start=10 * (number - 1))
            recorder.json("state", {"points": 10 * number})
            time.sleep(0.01)
    assert len(seen) == 19
    assert all(points >= 10 * (number + 1) for number, points in enumerate(seen))


def test_a_run_that_another_process_records_cannot_be_resumed(store, run_id, outbox, monkeypatch):
    monkeypatch.setattr("featurelab.tracking.outbox.record.PATIENCE", 0.2)
    with Recorder(store, run_id, outbox=outbox), pytest.raises(Busy):
        Recorder(store, run_id, outbox=outbox, attempt=2)


def test_a_damaged_journal_costs_at_most_the_line_that_was_damaged(store, run_id, outbox):
    die(store, run_id, outbox, "none")
    journal = outbox / f"{run_id}.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    with resumed(store, run_id, outbox) as recorder:
        record(recorder, 120, start=90)
    assert points(store, run_id) == curve(120)
    shutil.rmtree(outbox)
