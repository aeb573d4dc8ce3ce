from __future__ import annotations

import math
import pickle
import time

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from featurelab.tracking.outbox.record import Diverged, Recorder
from featurelab.tracking.store import bulk


@pytest.fixture
def outbox(tmp_path):
    return tmp_path / "outbox"


@pytest.fixture
def run_id(store):
    return store.start_run("system/figure", "run")


def _points(store, run_id, metric):
    return sorted((m.step, m.value) for m in store.client.get_metric_history(run_id, metric))


def test_recorded_points_are_in_the_store_with_best_values(store, run_id, outbox):
    with Recorder(store, run_id, outbox=outbox) as recorder:
        for step, value in enumerate([0.5, 0.2, 0.9, 0.4]):
            recorder.log({"loss/val": value, "accuracy/test": value, "nfa/0": value}, step)
        recorder.log({"final/given": 1.0, "best/given": 2.0}, 0)
    run = store.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert _points(store, run_id, "loss/val") == [(0, 0.5), (1, 0.2), (2, 0.9), (3, 0.4)]
    assert run.data.metrics == {
        "loss/val": 0.4,
        "accuracy/test": 0.4,
        "nfa/0": 0.4,
        "final/given": 1.0,
        "best/given": 2.0,
        "best.loss.val": 0.2,
        "best.accuracy.test": 0.9,
    }
    assert _points(store, run_id, "best.loss.val") == [(3, 0.2)]
    assert list(outbox.iterdir()) == []


def test_points_arrive_during_the_run(store, run_id, outbox):
    recorder = Recorder(store, run_id, outbox=outbox, flush_seconds=60, flush_points=10)
    time.sleep(0.2)  # the sender now waits for a minute, or for ten points
    for step in range(10):
        recorder.log({"loss/train": float(step)}, step)
    deadline = time.monotonic() + 10
    while not _points(store, run_id, "loss/train") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(_points(store, run_id, "loss/train")) == 10
    recorder.log({"loss/train": 10.0}, 10)
    assert recorder.flush(10)
    assert len(_points(store, run_id, "loss/train")) == 11
    assert store.get_run(run_id).info.status == "RUNNING"
    assert recorder.close()


def test_requests_are_full_while_more_is_being_recorded(store, run_id, outbox, monkeypatch):
    send, sizes = bulk.insert, []

    def insert(client, run, metrics, *labels):
        sizes.append(len(metrics))
        return send(client, run, metrics, *labels)

    monkeypatch.setattr(bulk, "insert", insert)
    with Recorder(store, run_id, outbox=outbox, flush_seconds=60) as recorder:
        for step in range(500):
            recorder.log({f"m{i}": float(step) for i in range(20)}, step)
            time.sleep(0.002)  # slower than it is sent
    assert sizes == [4000, 4000, 2000]


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(3), np.array(2.0), 7])
def test_numbers_of_every_type_are_recorded(store, run_id, outbox, value):
    with Recorder(store, run_id, outbox=outbox) as recorder:
        recorder.log({"nfa/0": value}, np.int32(1))
    assert _points(store, run_id, "nfa/0") == [(1, float(value))]


@pytest.mark.parametrize("value", [True, np.bool_(True), np.array(False), "0.5", None, [0.5], np.ones(2), 1j])
def test_anything_but_a_number_is_refused_by_name_and_nothing_is_recorded(store, run_id, outbox, value):
    with Recorder(store, run_id, outbox=outbox) as recorder:
        with pytest.raises(TypeError, match="nfa/bad"):
            recorder.log({"nfa/good": 0.5, "nfa/bad": value}, 0)
        for step in (True, 0.5, None):
            with pytest.raises(TypeError, match="step"):
                recorder.log({"nfa/good": 0.5}, step)
    assert store.get_run(run_id).data.metrics == {}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_divergence_is_recorded_beside_the_metric_and_stops_only_losses(store, run_id, outbox, value):
    seen = []
    recorder = Recorder(store, run_id, outbox=outbox, listeners=[lambda metrics, step: seen.append(step)])
    recorder.log({"loss/train": 1.0, "nfa/0": value}, 3)
    recorder.log({"nfa/0": value}, 4)
    with pytest.raises(Diverged) as caught:
        recorder.log({"accuracy/test": 0.5, "loss/train": value}, 5)
    recorder.close("FAILED")
    assert (caught.value.metric, caught.value.step) == ("loss/train", 5)
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
    run = store.get_run(run_id)
    assert run.data.tags["nonfinite/nfa/0"] == "3"
    assert run.data.tags["nonfinite/loss/train"] == "5"
    assert math.isnan(run.data.metrics["nfa/0"])
    assert run.data.metrics["best.loss.train"] == 1.0
    assert run.data.metrics["accuracy/test"] == 0.5
    assert seen == [3, 4, 5]


def test_artifacts_datasets_and_tags_arrive_and_later_ones_replace_earlier_ones(store, run_id, outbox, tmp_path):
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "x.txt").write_text("kept")
    figure = Figure()
    figure.subplots().plot([1, 2])
    with Recorder(store, run_id, outbox=outbox) as recorder:
        for value in (1, 2):
            recorder.array("agop/0", values=np.full((2, 2), value), layers=["a", "b"])
        recorder.table("spectrum", pd.DataFrame({"k": [1, 2], "value": [0.1, 1 / 3]}))
        recorder.json("config", {"lr": 0.1})
        recorder.file(tmp_path / "given", "extra")
        (tmp_path / "given" / "x.txt").write_text("changed later")
        recorder.figure("panel", figure)
        recorder.dataset("chain", "abc", {"n": np.int64(3)})
        recorder.tags({"note": 5})
    with np.load(store.download(run_id, "arrays/agop/0.npz")) as arrays:
        assert (arrays["values"] == 2).all()
        assert arrays["layers"].tolist() == ["a", "b"]
    assert pd.read_csv(store.download(run_id, "tables/spectrum.csv"))["value"].tolist() == [0.1, 1 / 3]
    assert store.read_json(run_id, "config.json") == {"lr": 0.1}
    assert store.download(run_id, "extra/given/x.txt").read_text() == "kept"
    assert {f.path for f in store.client.list_artifacts(run_id, "figures")} == {
        "figures/panel.pdf",
        "figures/panel.png",
        "figures/panel.svg",
    }
    run = store.get_run(run_id)
    assert run.inputs.dataset_inputs[0].dataset.digest == "abc"
    assert run.data.tags["note"] == "5"
    assert list(outbox.iterdir()) == []


def test_an_artifact_that_cannot_be_written_leaves_nothing_behind(store, run_id, outbox):
    with Recorder(store, run_id, outbox=outbox) as recorder:
        with pytest.raises(ValueError, match="Python objects"):
            recorder.array("bad", x=np.array([object()]))
        with pytest.raises(ValueError, match="inside the run"):
            recorder.json("../bad", {})
        with pytest.raises(ValueError, match="36 characters"):
            recorder.dataset("chain", "x" * 37, {})
        with pytest.raises(TypeError):
            recorder.dataset("chain", "x", {"net": object()})
        assert list((outbox / run_id).iterdir()) == []
    assert store.client.list_artifacts(run_id) == []


@pytest.mark.parametrize(
    ("error", "status"), [(None, "FINISHED"), (RuntimeError(), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_the_status_of_the_run_follows_how_the_block_ends(store, run_id, outbox, error, status):
    try:
        with Recorder(store, run_id, outbox=outbox):
            if error:
                raise error
    except (RuntimeError, KeyboardInterrupt):
        pass
    assert store.get_run(run_id).info.status == status


def test_a_closed_recorder_takes_nothing_and_may_be_closed_again(store, run_id, outbox):
    recorder = Recorder(store, run_id, outbox=outbox)
    with pytest.raises(ValueError, match="not 'DONE'"):
        recorder.close("DONE")
    assert recorder.close("FINISHED", tags={"verdict": "holds"})
    assert recorder.close("FAILED")
    with pytest.raises(ValueError, match="closed"):
        recorder.log({"a": 1.0}, 0)
    with pytest.raises(ValueError, match="closed"):
        recorder.json("a", {})
    assert store.get_run(run_id).info.status == "FINISHED"
    assert store.get_run(run_id).data.tags["verdict"] == "holds"


def test_the_exception_of_a_listener_reaches_the_trial(store, run_id, outbox):
    def stop(metrics, step):
        raise StopIteration

    with Recorder(store, run_id, outbox=outbox, listeners=[stop]) as recorder, pytest.raises(StopIteration):
        recorder.log({"a": 1.0}, 0)
    assert _points(store, run_id, "a") == [(0, 1.0)]


def test_a_path_is_not_a_run_id(store, outbox):
    with pytest.raises(ValueError, match="not a run id"):
        Recorder(store, "../escape", outbox=outbox)
    assert not outbox.exists()
