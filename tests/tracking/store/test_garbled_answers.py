"""Something between us and the server answers in its place: with a login page, half an answer or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from between import Between
from tenacity import wait_fixed

from featurelab.tracking.errors import StoreError
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import attach

PAGE = b"<html>please log in</html>"
GARBLED = {
    "page": (200, PAGE, 0),
    "nothing": (200, b"", 0),
    "cut short": (200, b'{"run": {"info": {"run_i', 0),
    "connection cut": (200, b'{"run": {', 100),
    "no object": (200, b'"ok"', 0),
    "another's object": (200, b'{"hello": 1}', 0),
    "another's error": (200, b'{"error": "maintenance"}', 0),
    "a list": (200, b"[]", 0),
    "another's not found": (404, b'{"detail": "Not Found"}', 0),
    "unauthorised": (401, PAGE, 0),
    "forbidden": (403, b"no", 0),
    "not found": (404, PAGE, 0),
    "bad gateway": (502, PAGE, 0),
}


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


@pytest.mark.parametrize("kind", GARBLED)
def test_a_request_is_repeated_if_something_else_answers_for_the_server(between, tmp_path, kind):
    store = attach(between.uri)
    run_id = store.start_run("system/garbled", kind)
    recorder = Recorder(store, run_id, outbox=tmp_path)
    for step in range(300):
        recorder.log({"loss/train": float(step)}, step)
    between.garbled = [GARBLED[kind]] * 3
    assert recorder.close(tags={"status": "finished"})
    assert between.garbled == []
    run = store.get_run(run_id)
    assert (run.info.status, run.data.tags["status"]) == ("FINISHED", "finished")
    assert len(store.client.get_metric_history(run_id, "loss/train")) == 300


def test_a_batch_that_a_proxy_drops_with_a_valid_answer_is_sent_again(between, tmp_path):
    store = attach(between.uri)
    run_id = store.start_run("system/garbled", "swallowed")
    recorder = Recorder(store, run_id, outbox=tmp_path, flush_seconds=0.05)
    for part in range(3):
        between.garbled = [(200, b"{}", 0)]
        for step in range(100 * part, 100 * part + 100):
            recorder.log({"loss/train": float(step)}, step)
        assert recorder.flush()
    between.garbled = [(200, b"{}", 0)] * 2
    assert recorder.close(tags={"status": "finished"})
    assert len(store.client.get_metric_history(run_id, "loss/train")) == 300
    assert store.get_run(run_id).info.status == "FINISHED"


@pytest.mark.parametrize("kind", GARBLED)
def test_every_kind_of_request_is_repeated(between, kind):
    store = attach(between.uri)

    def garble() -> None:
        between.garbled = [GARBLED[kind]]

    garble()
    run_id = store.start_run("system/garbled", kind)
    garble()
    store.set_tags(run_id, {"a": "b"})
    garble()
    assert store.get_run(run_id).data.tags["a"] == "b"
    garble()
    assert next(query.rows(store, "system/garbled", tags={"mlflow.runName": kind}))["run_id"] == run_id
    garble()
    assert len(query.histories(store, [run_id])) == 0
    garble()
    store.end_run(run_id)
    assert store.get_run(run_id).info.status == "FINISHED"


@pytest.mark.parametrize("kind", GARBLED)
def test_the_error_after_patience_ends_is_one_line(between, kind):
    between.garbled = [GARBLED[kind]] * 1000
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        replace(attach(between.uri), patience=0.1).set_tags("0" * 32, {"a": "b"})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
