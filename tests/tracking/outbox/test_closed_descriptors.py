"""A trial closes file descriptors that are not its own, among them those of the journal and of the store."""

from __future__ import annotations

import subprocess
import sys

CLOSING = """
import os, sys
from pathlib import Path
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.store.connect import attach
recorder = Recorder(attach(sys.argv[1]), sys.argv[2], outbox=Path(sys.argv[3]), flush_seconds=0.1)
for step in range(5):
    recorder.log({"loss": 0.5}, step)
os.closerange(3, 4096)
try:
    recorder.check()
except OSError as error:
    print(error)
print(recorder.close("FAILED", tags={"reason": "closed"}))
"""


def test_earlier_points_are_sent_and_the_reason_is_reported(store, tmp_path):
    run_id, outbox = store.start_run("system/figure", "run"), tmp_path / "outbox"
    command = [sys.executable, "-c", CLOSING, store.uri, run_id, str(outbox)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["the trial closed file descriptors that it had not opened", "True"], done.stderr
    run = store.get_run(run_id)
    assert (run.info.status, run.data.tags["reason"]) == ("FAILED", "closed")
    assert len(store.client.get_metric_history(run_id, "loss")) == 5
    assert list(outbox.iterdir()) == []
