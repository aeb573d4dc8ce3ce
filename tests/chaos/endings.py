"""An episode with one sweep whose trials each end in a different way, one of them well."""

import re
import time
from collections import deque

from tests.chaos import audit, processes
from tests.chaos.audit import Run
from tests.chaos.faults import Fault
from tests.chaos.faults.trials import ENDINGS, TRIAL_TIMEOUT
from tests.chaos.home import shown
from tests.chaos.lab import closed_form
from tests.chaos.sweeper import Sweeper

POINTS = 5  # recorded by each trial before it ends
PATIENCE = 300.0  # seconds


class EndingsSweeper(Sweeper):
    """Runs the sweep, and checks what each of its runs says and holds."""

    def run_sweeps(self, pending: deque[Fault]) -> None:
        home, outcome = self.home, self.outcome
        endings = [fault.name.removeprefix("trial_") for fault in pending]
        earlier = audit.all_ids(self.store)
        request = ["sweep", "chaos/endings", "--over", f"ending={','.join([*endings, 'well'])}", "--name", self.name()]
        request += ["--trial-timeout", str(TRIAL_TIMEOUT)]
        outcome.sweeps += 1
        self.driver = home.start(*request)
        while self.driver.runs and not self.stop.is_set() and time.monotonic() < self.driver.began + PATIENCE:
            time.sleep(0.2)
        result = self.driver.ended(1)
        if self.stop.is_set():
            return
        if result.code != 1 or "Traceback" in result.err:
            self.notice(f"status {result.code}: {shown(result)}")
        outcome.lines += self.messages(result)
        synced = home.run("sync")
        if synced.code != 0:
            self.notice(f"sync ended with {synced.code}: {shown(synced)}")
        runs = {run.tags.get("mlflow.runName", ""): run for run in audit.new_runs(self.store, earlier)}
        for fault, ending in zip(pending, endings, strict=True):
            self.met(fault)
            self._check_ending(ending, runs.get(f"ending={ending}"))
        for run_id in home.runs_in_outbox():
            self.notice(f"a journal is left of {run_id}")
        processes.end_all(home.folder, patience=15)
        pending.clear()

    def _check_ending(self, ending: str, run: Run | None) -> None:
        outcome = self.outcome
        if run is None:
            self.notice(f"trial_{ending}: the trial has no run")
            return
        status, pattern = ENDINGS[ending]
        reason = run.tags.get("reason", "")
        outcome.reasons.append(reason)
        if run.tags.get("status") != status or not re.search(pattern, reason) or "Traceback" in reason:
            actual = f"{run.tags.get('status')}, {reason[:300]!r}"
            self.notice(f"trial_{ending}: {actual}, instead of {status}, {pattern!r}")
        values = {step: run.points.get(("loss/val", step), []) for step in range(1, POINTS + 1)}
        wrong = [step for step, stored in values.items() if stored and set(stored) != {closed_form(0.0, 0, step)}]
        outcome.expected += POINTS
        outcome.running += run.status == "RUNNING"
        outcome.lost += sum(not stored for stored in values.values())
        outcome.doubled += sum(len(stored) > 1 for stored in values.values())
        outcome.different += len(wrong)
        if wrong or not all(values.values()) or run.status == "RUNNING":
            self.notice(f"trial_{ending}: {run.status}, points {values}")
