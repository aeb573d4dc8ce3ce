"""One sweep each of whose trials ends in a way of its own, beside one that ends well."""

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.chaos import audit, processes
from tests.chaos.audit import Run
from tests.chaos.faults import Fault
from tests.chaos.faults.trials import ENDINGS, TRIAL_TIMEOUT
from tests.chaos.home import shown
from tests.chaos.lab import closed_form

if TYPE_CHECKING:
    from tests.chaos.sweeper import Sweeper

POINTS = 5  # that each trial records before it ends
PATIENCE = 300.0


def trials_end(sweeper: "Sweeper", faults: Sequence[Fault]) -> None:
    """Run the sweep, and look at what each of its runs says and holds."""
    home, outcome = sweeper.home, sweeper.outcome
    endings = [fault.name.removeprefix("trial_") for fault in faults]
    earlier = audit.all_ids(sweeper.store)
    request = ["sweep", "chaos/endings", "--over", f"ending={','.join([*endings, 'well'])}", "--name", sweeper.name()]
    request += ["--trial-timeout", str(TRIAL_TIMEOUT)]
    outcome.sweeps += 1
    sweeper.driver = home.start(*request)
    while sweeper.driver.runs and not sweeper.stop.is_set() and time.monotonic() < sweeper.driver.began + PATIENCE:
        time.sleep(0.2)
    said = sweeper.driver.ended(1)
    if sweeper.stop.is_set():
        return
    if said.code != 1 or "Traceback" in said.err:
        sweeper.notice(f"status {said.code}: {shown(said)}")
    outcome.lines += sweeper.own_lines(said)
    synced = home.run("sync")
    if synced.code != 0:
        sweeper.notice(f"sync ended with {synced.code}: {shown(synced)}")
    runs = {run.tags.get("mlflow.runName", ""): run for run in audit.runs_beside(sweeper.store, earlier)}
    for fault, ending in zip(faults, endings, strict=True):
        sweeper.met(fault)
        _check(sweeper, ending, runs.get(f"ending={ending}"))
    for run_id in home.kept():
        sweeper.notice(f"a journal is left of {run_id}")
    processes.end_all(home.folder, patience=15)


def _check(sweeper: "Sweeper", ending: str, run: Run | None) -> None:
    outcome = sweeper.outcome
    if run is None:
        sweeper.notice(f"trial_{ending}: the trial has no run")
        return
    status, pattern = ENDINGS[ending]
    reason = run.tags.get("reason", "")
    outcome.reasons.append(reason)
    if run.tags.get("status") != status or not re.search(pattern, reason) or "Traceback" in reason:
        said = f"{run.tags.get('status')}, {reason[:300]!r}"
        sweeper.notice(f"trial_{ending}: {said}, instead of {status}, {pattern!r}")
    values = {step: run.points.get(("loss/val", step), []) for step in range(1, POINTS + 1)}
    wrong = [step for step, found in values.items() if found and set(found) != {closed_form(0.0, 0, step)}]
    outcome.expected += POINTS
    outcome.running += run.status == "RUNNING"
    outcome.lost += sum(not found for found in values.values())
    outcome.doubled += sum(len(found) > 1 for found in values.values())
    outcome.different += len(wrong)
    if wrong or not all(values.values()) or run.status == "RUNNING":
        sweeper.notice(f"trial_{ending}: {run.status}, points {values}")
