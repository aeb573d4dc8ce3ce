"""A full disk, simulated by a limit on the size of files: the kernel then refuses to let them grow."""

from __future__ import annotations

import errno
import json
import subprocess
import sys

import pytest

from featurelab.tracking.errors import disk_full
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store.connect import attach
from featurelab.tracking.store.store import Store

LIMIT = 20_000  # bytes
RECORDING = """
import json, resource, sys
from pathlib import Path
from featurelab.tracking.store.connect import attach
from featurelab.tracking.outbox.record import Recorder
uri, run_id, outbox, limit, room, patience = sys.argv[1:]
recorder = Recorder(attach(uri), run_id, outbox=Path(outbox), flush_seconds=0.05)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
failures = []
def recorded(step):
    try:
        recorder.log({"loss/train": 1 / (step + 1), "é" + "x" * (step % 50): 0.5}, step)
        return True
    except OSError as error:
        failures.append([error.errno, error.filename])
        return False
step = 0
while recorded(step):
    step += 1
if room == "again":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
recorded(step + 1)  # a trial that ignores the failure does not leave a gap
finished = recorder.close("FINISHED", tags={"status": "failed", "reason": "x" * 300}, timeout=float(patience))
print(json.dumps([step, failures, finished]))
"""


@pytest.fixture
def outbox(tmp_path):
    return tmp_path / "outbox"


@pytest.fixture
def run(server) -> tuple[Store, str]:
    """Start a run on a server, whose files grow in another process."""
    store = attach(server.uri)
    return store, store.start_run("system/full", "run")


def record(uri, run_id, outbox, room, patience=60.0):
    arguments = [uri, run_id, str(outbox), str(LIMIT), room, str(patience)]
    done = subprocess.run([sys.executable, "-c", RECORDING, *arguments], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)


def stored(store, run_id):
    return sorted((m.step, m.value) for m in store.client.get_metric_history(run_id, "loss/train"))


@pytest.mark.parametrize("room", ["never", "again"])
def test_what_was_recorded_before_the_disk_was_full_arrives_and_nothing_after_a_gap(run, outbox, room):
    store, run_id = run
    number, failures, finished = record(store.uri, run_id, outbox, room)
    assert number > 100
    assert (
        failures == [[errno.EFBIG, str(outbox / f"{run_id}.jsonl")]] * 2
        or failures == [[errno.ENOSPC, str(outbox / f"{run_id}.jsonl")]] * 2
    )
    assert finished
    assert stored(store, run_id) == [(step, 1 / (step + 1)) for step in range(number)]
    ended = store.get_run(run_id)
    assert (ended.info.status, ended.data.tags["status"]) == ("FAILED", "failed")
    assert ended.data.metrics["loss/train"] == 1 / number
    assert list(outbox.iterdir()) == []


def test_with_a_full_disk_and_no_store_the_journal_keeps_every_whole_line_for_sync(run, outbox):
    store, run_id = run
    number, _, finished = record("http://127.0.0.1:9", run_id, outbox, "never", patience=0.5)
    journal = outbox / f"{run_id}.jsonl"
    assert not finished
    assert LIMIT - 200 < journal.stat().st_size <= LIMIT
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["s"] for line in lines if "s" in line] == list(range(number))
    assert sync(outbox, store.uri).sent == [run_id]
    assert stored(store, run_id) == [(step, 1 / (step + 1)) for step in range(number)]
    assert store.get_run(run_id).info.status == "KILLED"
    assert list(outbox.iterdir()) == []


def test_a_full_disk_is_reported_in_one_line():
    assert disk_full(OSError(errno.ENOSPC, "No space left on device", "/data/x")) == "the disk is full: /data/x"
    assert disk_full(OSError(errno.EDQUOT, "Disk quota exceeded")) == "the disk is full"
    assert disk_full(OSError(errno.EACCES, "Permission denied", "/data/x")) == disk_full(ValueError()) == ""


LIMITED = """
import resource, sys
from pathlib import Path
from featurelab.tracking.store.connect import attach
from featurelab.tracking.errors import StoreError
store = attach(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    store.log_tree(sys.argv[2], Path(sys.argv[3]))
except StoreError as error:
    print(error)
"""


def test_artifacts_that_do_not_fit_on_the_disk_of_the_store_raise_a_store_error(store, tmp_path):
    run_id = store.start_run("system/full", "run")
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "long.txt").write_text("x" * 100_000)
    command = [sys.executable, "-c", LIMITED, store.uri, run_id, str(tmp_path / "long")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "the disk is full" in process.stdout, process.stderr
    assert process.stdout.count("\n") == 1
