"""Trials and sweeps as the store holds them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines import registry
from pipelines.errors import RequestError
from pipelines.experiment import Experiment
from tracking import query
from tracking.connect import Store

VERDICTS = "verdicts"
DERIVED = ("final/", "best/")


@dataclass(frozen=True)
class TrialRecord:
    """One trial of a sweep. `status` is ours (finished, stopped, diverged, failed, killed, running); `metrics` are the
    last values, without the derived ones."""

    run_id: str
    index: int
    name: str
    config: dict[str, Any]
    status: str
    reason: str
    mlflow_status: str
    metrics: dict[str, float]

    @property
    def went_well(self) -> bool:
        return self.status in ("finished", "stopped")

    def as_dict(self) -> dict[str, Any]:
        return {"run_id": self.run_id or None, "config": self.config, "status": self.status, "metrics": self.metrics}


def read_trials(store: Store, experiment: str, sweep_run_id: str) -> list[TrialRecord]:
    """The trials of a sweep in the order of its plan."""
    found = query.runs(store, experiment, tags={"sweep_run_id": sweep_run_id})
    records = [_record(row) for row in found.to_dict("records")]
    return sorted(records, key=lambda record: record.index)


def read_sweep(store: Store, sweep_run_id: str) -> tuple[Experiment, dict[str, Any], Mapping[str, str]]:
    """The experiment, the plan and the tags of a sweep; raises `RequestError` for a run that is no sweep."""
    tags = store.get_run(sweep_run_id).data.tags
    if "sweep" not in tags or "sweep_run_id" in tags:
        raise RequestError(f"{sweep_run_id} is no sweep: their runs are in the MLflow experiment {VERDICTS}")
    return registry.find(tags["experiment"]), store.read_json(sweep_run_id, "plan.json"), tags


def compare_link(store: Store, experiment: str, run_ids: Sequence[str]) -> str:
    """The MLflow page that compares these runs; a hundred of them at most, beyond which it hardly loads."""
    return store.compare_url([run_id for run_id in run_ids if run_id][:100], [store.experiment_id(experiment)])


def last_values(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a run without those derived from others, by name."""
    return {name: value for name, value in sorted(metrics.items()) if not name.startswith(DERIVED)}


def _record(row: Mapping[Any, Any]) -> TrialRecord:
    metrics = {key.removeprefix("metrics."): value for key, value in row.items() if key.startswith("metrics.")}
    reason = row.get("tags.reason")
    return TrialRecord(
        run_id=row["run_id"],
        index=int(row["tags.trial"]),
        name=row["name"],
        config=json.loads(row["tags.config"]),
        status=row["tags.status"],
        reason=reason if isinstance(reason, str) else "",
        mlflow_status=row["status"],
        metrics=last_values({key: value for key, value in metrics.items() if value == value}),
    )
