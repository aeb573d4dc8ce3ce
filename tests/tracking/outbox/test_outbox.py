"""The outbox stays within its bound, at the cost of artifacts and never of points; and its locks."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import numpy as np
import pytest
from store_workers import at_once, exit_code, lock, lock_and_die

from featurelab.tracking.outbox.bound import Bound, limit_from, size_of
from featurelab.tracking.outbox.journal import Busy
from featurelab.tracking.outbox.locks import exclusive_lock, in_use
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store.connect import attach

M = 2**20


@pytest.fixture
def outbox(tmp_path):
    return tmp_path / "outbox"


@pytest.fixture
def run_id(store):
    return store.start_run("system/figure", "run")


@pytest.fixture
def away(store):
    """Return the store at an address where no server listens."""
    return replace(attach("http://127.0.0.1:9"), patience=0.0)


@pytest.mark.parametrize(
    ("text", "size"), [("500M", 500 * M), ("1.5GiB", 1536 * M), ("1000000", 10**6), ("2 kb", 2048), ("1T", 2**40)]
)
def test_a_size_is_read_as_it_is_written(text, size):
    assert limit_from(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1M", "many", "1X", "1e9", "nan", "9" * 40, "1M; rm -rf /"])
def test_an_invalid_size_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match="FEATURELAB_OUTBOX_LIMIT") as caught:
        limit_from(text)
    assert "\n" not in str(caught.value)


def test_the_bound_is_a_share_of_the_disk_unless_it_is_set(outbox, monkeypatch):
    def disk(free):
        monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free})())
        return Bound(outbox).limit

    assert disk(10 * 2**30) == 2 * 2**30
    assert disk(2**40) == 2**40 // 20
    assert disk(2**30) == 2**29
    monkeypatch.setenv("FEATURELAB_OUTBOX_LIMIT", "7M")
    assert Bound(outbox).limit == 7 * M
    assert Bound(outbox, 5).limit == 5


def test_a_full_outbox_takes_points_but_no_artifacts_and_warns_twice(store, away, run_id, outbox, monkeypatch, caplog):
    monkeypatch.setenv("FEATURELAB_OUTBOX_LIMIT", "4M")
    monkeypatch.setattr("featurelab.tracking.outbox.bound.MEASURED_FOR", 0.0)
    recorder = Recorder(away, run_id, outbox=outbox)
    with caplog.at_level(logging.WARNING, logger="featurelab.tracking.outbox.record"):
        for number in range(10):
            recorder.log({"loss/train": 1 / (number + 1)}, number)
            with recorder.files() as root:
                (root / f"{number}.bin").write_bytes(np.random.default_rng(number).bytes(M - 2**14))
            assert size_of(outbox) <= 4 * M
        for step in range(10, 3000):
            recorder.log({"loss/train": 1 / (step + 1)}, step)
        assert not recorder.close(timeout=0.5)
    warnings = [
        record.message for record in caplog.records if "outbox" in record.message and "at most 4 MiB" in record.message
    ]
    assert len(warnings) == 2
    assert warnings[0].endswith("that the store has not received; once the outbox is full, artifacts are dropped")
    assert warnings[1].endswith("artifacts and checkpoints are dropped, metrics are still recorded")

    assert sync(outbox, store.uri).sent == [run_id]
    history = store.client.get_metric_history(run_id, "loss/train")
    assert sorted((m.step, m.value) for m in history) == [(step, 1 / (step + 1)) for step in range(3000)]
    sent = {path for path in store.artifact_paths(run_id, "") if path.endswith(".bin")}
    assert sent == {"0.bin", "1.bin", "2.bin", "3.bin"}
    assert store.get_run(run_id).data.tags["not_kept"] == ", ".join(f"{number}.bin" for number in range(4, 10))
    assert list(outbox.iterdir()) == []


def test_checkpoints_of_a_store_that_is_away_do_not_fill_the_outbox(away, run_id, outbox, monkeypatch):
    monkeypatch.setattr("featurelab.tracking.outbox.sender.LONGEST_PAUSE", 0.05)
    recorder = Recorder(away, run_id, outbox=outbox, flush_seconds=0.01)
    for number in range(30):
        with recorder.files() as root:
            (root / "training").mkdir()
            (root / "training" / f"{number % 2}.ckpt").write_bytes(bytes(M))
        ends = time.monotonic() + 60  # what takes earlier ones away needs the processor too
        while size_of(outbox) >= 12 * M:
            assert time.monotonic() < ends, "earlier checkpoints stay"
            time.sleep(0.05)
    recorder.close("KILLED", timeout=0.2)


def test_a_lock_excludes_other_processes(outbox):
    with exclusive_lock(outbox, "sweep"):
        assert in_use(outbox, "sweep")
        (refused,) = at_once(1, lock, str(outbox))
        assert "is in use by another process" in refused
        with pytest.raises(Busy), exclusive_lock(outbox, "sweep"):
            pass
    assert not in_use(outbox, "sweep")
    assert list(outbox.iterdir()) == []


def test_the_lock_of_a_killed_process_is_free(outbox):
    assert exit_code(lock_and_die, str(outbox)) == -9
    assert [path.name for path in outbox.iterdir()] == ["sweep.lock"]
    assert not in_use(outbox, "sweep")
    with exclusive_lock(outbox, "sweep"):
        pass
    assert list(outbox.iterdir()) == []
