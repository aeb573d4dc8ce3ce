"""Bring every run of a sweep into a final state, also those whose processes have died."""

import time
from collections.abc import Collection
from pathlib import Path

from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.ray.cluster import on_other_nodes
from featurelab.pipelines.engine.sweep.ray.reasons import why
from featurelab.pipelines.engine.sweep.records import read_trials
from featurelab.pipelines.engine.sweep.reports import Reports
from featurelab.pipelines.engine.trial.record import STOPPED, TrialRecord
from featurelab.tracking.outbox.sync import sync
from featurelab.tracking.store.connect import Store

LEAVING = 20.0  # seconds that worker processes get to close their journals when a sweep ends
DELETED = "its run was deleted from the store"


def settle(
    plan: Plan, sweep_run_id: str, store: Store, outbox: Path, reports: Reports, *, ended_early: str = ""
) -> list[TrialRecord]:
    """Bring every run of a sweep into a final state, and send what the journals still hold.

    `ended_early` says why the whole sweep ended early, if it did: trials that still run are then recorded as killed.
    Returns all trials of the plan; a trial that never opened a run has an empty run id.
    """
    recorded = read_trials(store, plan.experiment, sweep_run_id)
    if still_open := {trial.run_id for trial in recorded if _is_open(trial)}:
        unsent = send_rest(outbox, still_open, LEAVING, store.uri)
        for answer in on_other_nodes(send_rest, outbox, still_open, LEAVING, store.uri, patience=2 * LEAVING):
            unsent |= answer
        for trial in filter(_is_open, read_trials(store, plan.experiment, sweep_run_id)):
            _end(trial, store, reports, ended_early, unsent.get(trial.run_id, ""))
        recorded = read_trials(store, plan.experiment, sweep_run_id)
    trials = {trial.index: trial for trial in recorded}
    for index in range(len(plan.configs)):
        if index not in trials:
            trials[index] = _without_run(plan, index, reports, ended_early)
    return [trials[index] for index in sorted(trials)]


def _without_run(plan: Plan, index: int, reports: Reports, ended_early: str) -> TrialRecord:
    """The record of a trial that has no run."""
    if ended_early:
        status, reason = "killed", f"{ended_early} before it began"
    elif index in reports.errors:
        status, reason = "failed", why(reports.errors[index])
    else:
        status, reason = "failed", reports.reasons.get(index, DELETED)
    return TrialRecord(
        experiment=plan.experiment,
        config=plan.configs[index],
        scale=plan.scale,
        index=index,
        name=plan.label(index),
        status=status,
        reason=reason,
    )


def _end(trial: TrialRecord, store: Store, reports: Reports, ended_early: str, unsent: str) -> None:
    """End the run of a trial whose process did not end it."""
    mlflow_status = "KILLED" if ended_early else "FAILED"
    if trial.status == "running":
        tags = {"status": mlflow_status.lower(), "cut_short": "true"}
        if trial.index in reports.stopped and not unsent:
            mlflow_status = "FINISHED"
            tags = {"status": "stopped", "reason": STOPPED}
        elif unsent:
            tags["reason"] = f"what it recorded could not be sent: {unsent}"
        else:
            own_reason = reports.reasons.get(trial.index) or why(reports.errors.get(trial.index, ""))
            tags["reason"] = ended_early or own_reason
        store.set_tags(trial.run_id, tags)
    elif trial.went_well:
        mlflow_status = "FINISHED"
    store.end_run(trial.run_id, mlflow_status)


def _is_open(trial: TrialRecord) -> bool:
    return trial.status == "running" or trial.mlflow_status == "RUNNING"


def send_rest(outbox: Path, run_ids: Collection[str], patience: float, uri: str) -> dict[str, str]:
    """Send what the journals on this machine hold, once those of these runs are closed or `patience` seconds are over.

    Returns, by run id, why a journal could not be sent. `uri` is the address of the store with its credentials.
    """
    deadline = time.monotonic() + patience
    while set(run_ids) & set((sent := sync(outbox, known=uri)).busy) and time.monotonic() < deadline:
        time.sleep(0.2)
    return sent.failed
