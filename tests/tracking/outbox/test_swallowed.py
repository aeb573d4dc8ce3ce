"""A proxy answers a write as MLflow would and drops it: the loss is noticed and the write is sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from between import Between, points, writes
from tenacity import wait_fixed

from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store.connect import attach

SWALLOWED = (200, b"{}", 0)
PART = 50


@pytest.fixture
def between(server) -> Iterator[Between]:
    with Between(server.uri) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def soon(monkeypatch) -> None:
    """Repeat requests without long pauses."""
    monkeypatch.setattr(
        "featurelab.tracking.store.connection.wait_exponential_jitter", lambda **waits: wait_fixed(0.01)
    )
    monkeypatch.setattr("featurelab.tracking.outbox.sender.LONGEST_PAUSE", 0.05)


def upwards(part: int) -> range:
    return range(PART * part, PART * (part + 1))


def downwards(part: int) -> range:
    return upwards(2 - part)


@pytest.mark.parametrize("order", [upwards, downwards])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_dropped_batch_is_sent_again_whatever_came_before_and_after(between, tmp_path, lost, order):
    store = attach(between.uri)
    run_id = store.start_run("system/swallowed", f"{lost} {order.__name__}")
    recorder = Recorder(store, run_id, outbox=tmp_path, flush_seconds=60)
    between.chosen = points
    for part in range(3):
        for step in order(part):
            recorder.log({"loss/train": step / 7, "norm": 1.0}, step)
        between.garbled = [SWALLOWED] * (part == lost)
        assert recorder.flush()
        assert between.garbled == []
    assert recorder.close(tags={"status": "finished"})
    for name in ("loss/train", "norm"):
        stored = Counter(m.step for m in store.client.get_metric_history(run_id, name))
        assert stored == Counter(range(3 * PART))
    assert list(tmp_path.iterdir()) == []


def test_a_dropped_batch_is_noticed_even_if_reading_back_failed_and_the_next_batch_arrived(between, tmp_path):
    store = attach(between.uri)
    run_id = store.start_run("system/swallowed", "not read back")
    recorder = Recorder(store, run_id, outbox=tmp_path, flush_seconds=60)
    for step in range(PART):
        recorder.log({"loss/train": 0.5}, step)
    between.garbled = [SWALLOWED] * 2  # to the points, and to the request to read the run
    recorder.flush(1)
    for step in range(PART, 2 * PART):
        recorder.log({"loss/train": 0.5}, step)
    assert recorder.flush()
    assert recorder.close(tags={"status": "finished"})
    assert len(store.client.get_metric_history(run_id, "loss/train")) == 2 * PART


def test_a_dropped_point_of_a_resumed_run_is_sent_again(between, tmp_path):
    store = attach(between.uri)
    run_id = store.start_run("system/swallowed", "resumed")
    for attempt, missing in ((1, {4}), (2, set())):
        recorder = Recorder(store, run_id, outbox=tmp_path, attempt=attempt)
        for step in set(range(10)) - missing:
            recorder.log({"norm": 0.5}, step)
        if attempt == 2:
            between.garbled, between.chosen = [SWALLOWED], points
        assert recorder.close("FAILED" if missing else "FINISHED")
    assert between.garbled == []
    assert sorted(m.step for m in store.client.get_metric_history(run_id, "norm")) == list(range(10))


def test_dropped_tags_and_datasets_are_sent_again(between, tmp_path):
    store = attach(between.uri)
    run_id = store.start_run("system/swallowed", "tags", tags={"status": "running"})
    recorder = Recorder(store, run_id, outbox=tmp_path)
    recorder.dataset("digits", "1234", {})
    between.garbled, between.chosen = [SWALLOWED] * 2, writes
    assert recorder.close(tags={"status": "finished", "reason": "x" * 20_000})
    assert between.garbled == []
    run = store.get_run(run_id)
    assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
    assert [each.dataset.digest for each in run.inputs.dataset_inputs] == ["1234"]


def test_a_proxy_that_drops_everything_delays_the_end_only_for_a_while(between, tmp_path):
    store = attach(between.uri)
    run_id = store.start_run("system/swallowed", "everything")
    recorder = Recorder(store, run_id, outbox=tmp_path)
    for step in range(PART):
        recorder.log({"loss/train": 0.5}, step)
    between.garbled, between.chosen = [SWALLOWED] * 10_000, points
    assert not recorder.close(timeout=2)
    assert (tmp_path / f"{run_id}.jsonl").exists()
    between.garbled = []
    assert sync(tmp_path, known=between.uri).sent == [run_id]
    assert len(store.client.get_metric_history(run_id, "loss/train")) == PART
    assert store.get_run(run_id).info.status == "FINISHED"
