"""Trials that could not say how they ended, brought into a final state."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from featurelab.pipelines.engine.sweep.cluster import on_other_nodes
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.reasons import why
from featurelab.pipelines.engine.sweep.records import read_trials
from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store.connect import Store

LEAVING = 20.0  # seconds that worker processes get to let go of their journals when a sweep is ended
DELETED = "its run was deleted from the store"
STOPPED = "stopped early by the scheduler"


@dataclass
class Told:
    """What Ray says of the trials of a sweep, by index, which their own runs may not."""

    errors: dict[int, str] = field(default_factory=dict)  # of those that it could not run to their end
    stopped: set[int] = field(default_factory=set)  # by the scheduler
    reasons: dict[int, str] = field(default_factory=dict)  # of those that ended otherwise than well, and said why


def settle(
    plan: Plan, sweep_run_id: str, store: Store, outbox: Path, told: Told, *, broken_off: str = ""
) -> list[TrialRecord]:
    """Bring every run of a sweep into a final state, with all that its journal still holds.

    `broken_off` says why the whole sweep ended early, if it did: what still runs is recorded as killed then.
    Returns all trials of the plan; one that never came to open a run has an empty run id.
    """

    def read() -> list[TrialRecord]:
        return read_trials(store, plan.experiment, sweep_run_id)

    found = read()
    if left := {trial.run_id for trial in found if _goes_on(trial)}:
        unsent = send_rest(outbox, left, LEAVING, store.uri)
        for answer in on_other_nodes(send_rest, outbox, left, LEAVING, store.uri, patience=2 * LEAVING):
            unsent |= answer
        for trial in filter(_goes_on, read()):
            _end(trial, store, told, broken_off, unsent.get(trial.run_id, ""))
        found = read()
    trials = {trial.index: trial for trial in found}
    for index, config in enumerate(plan.configs):
        if index not in trials:
            if broken_off:
                status, reason = "killed", f"{broken_off} before it began"
            else:
                status, reason = "failed", told.reasons.get(index, DELETED)
                reason = why(told.errors[index]) if index in told.errors else reason
            trials[index] = TrialRecord(
                experiment=plan.experiment,
                config=config,
                scale=plan.scale,
                index=index,
                name=plan.label(index),
                status=status,
                reason=reason,
            )
    return [trials[index] for index in sorted(trials)]


def _end(trial: TrialRecord, store: Store, told: Told, broken_off: str, unsent: str) -> None:
    """End the run of a trial whose process did not come to it."""
    mlflow_status = "KILLED" if broken_off else "FAILED"
    if trial.status == "running":
        tags = {"status": mlflow_status.lower(), "cut_short": "true"}
        if trial.index in told.stopped and not unsent:
            mlflow_status = "FINISHED"
            tags = {"status": "stopped", "reason": STOPPED}
        elif unsent:
            tags["reason"] = f"what it recorded could not be sent: {unsent}"
        else:
            own = told.reasons.get(trial.index) or why(told.errors.get(trial.index, ""))
            tags["reason"] = broken_off or own
        store.set_tags(trial.run_id, tags)
    elif trial.went_well:
        mlflow_status = "FINISHED"
    store.end_run(trial.run_id, mlflow_status)


def _goes_on(trial: TrialRecord) -> bool:
    return trial.status == "running" or trial.mlflow_status == "RUNNING"


def send_rest(outbox: Path, run_ids: Collection[str], patience: float, uri: str) -> dict[str, str]:
    """Send what is in the journals of this machine, once those of these runs are let go of or patience is at an end.

    Returns why some could not be sent, by run. `uri` is the store's address as those who may write to it know it.
    """
    deadline = time.monotonic() + patience
    while set(run_ids) & set((sent := sync(outbox, known=uri)).busy) and time.monotonic() < deadline:
        time.sleep(0.2)
    return sent.failed
