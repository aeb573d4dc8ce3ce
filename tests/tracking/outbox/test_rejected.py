"""Data that a store refuses for good is set aside and reported; everything else of the run arrives."""

from __future__ import annotations

import json

import pytest

from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store.connect import attach

BEYOND = 2**63


@pytest.fixture(params=["file", "server"])
def place(request):
    """Return a store in a SQLite file and one on a server."""
    return (
        request.getfixturevalue("store") if request.param == "file" else attach(request.getfixturevalue("server").uri)
    )


@pytest.fixture
def outbox(tmp_path):
    path = tmp_path / "outbox"
    path.mkdir()
    return path


@pytest.mark.parametrize("step", [2**70, BEYOND, -BEYOND - 1])
def test_a_step_beyond_64_bits_is_refused_naming_metric_and_step(store, outbox, step):
    recorder = Recorder(store, store.start_run("system/figure", "run"), outbox=outbox)
    with pytest.raises(ValueError, match=rf"step {step} of 'm' is out of range"):
        recorder.log({"m": 1.0}, step)
    recorder.log({"m": 1.0}, BEYOND - 1)
    recorder.log({"m": 1.0}, -BEYOND)
    assert recorder.close()
    assert len(store.client.get_metric_history(recorder.run_id, "m")) == 2


IMPOSSIBLE = {
    "step": {"t": 1, "s": 2**80, "m": {"loss": 0.5}},
    "time": {"t": 2**80, "s": 3, "m": {"loss": 0.5}},
    "name of a metric": {"t": 1, "s": 3, "m": {"n" * 400: 0.5}},
    "changed param": {"params": {"lr": "0.2"}},
    "text": {"tags": {"a": "\ud800"}},
}


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_one_impossible_line_is_set_aside_and_the_rest_is_sent(place, outbox, kind):
    run_id = place.start_run("system/figure", "run", params={"lr": "0.1"})
    path = outbox / f"{run_id}.jsonl"
    lines = [{"uri": place.uri, "run_id": run_id, "experiment": ""}]
    lines += [{"t": 1 + step, "s": step, "m": {"loss": 0.5}} for step in range(10)]
    lines.insert(5, IMPOSSIBLE[kind])
    lines += [{"end": "FINISHED", "t": 20, "tags": {"status": "finished"}}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = sync(outbox, known=place.uri)
    assert (done.sent, done.failed, list(done.rejected)) == ([run_id], {}, [run_id])
    run = place.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert len(run.data.tags["rejected"]) < 500
    assert [m.step for m in place.client.get_metric_history(run_id, "loss")] == list(range(10))
    assert place.artifact_paths(run_id, "") == ["rejected.jsonl"]
    rejected = json.loads(place.download(run_id, "rejected.jsonl").read_text().splitlines()[0])
    assert rejected == IMPOSSIBLE[kind]
    assert list(outbox.iterdir()) == []
    assert sync(outbox, known=place.uri).failed == {}
