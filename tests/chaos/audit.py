"""Compare what a store holds of some sweeps with what their trials had to record."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.lab import closed_form
from tests.chaos.stores import SqliteStore

Point = tuple[str, int]  # metric and step
Points = dict[Point, list[float]]
Trial = tuple[str, float, int]  # kind, level, seed

DERIVED = ("final.", "best.")  # what a recorder computes from the others


@dataclass
class Run:
    """A run as read from the tables of the store."""

    run_id: str
    status: str
    began: int  # in milliseconds
    tags: dict[str, str]
    points: Points = field(default_factory=lambda: defaultdict(list))

    @property
    def trial(self) -> Trial | None:
        if "config" not in self.tags or "level" not in (config := json.loads(self.tags["config"])):
            return None
        return config["kind"], float(config["level"]), int(config["seed"])

    @property
    def replaced(self) -> bool:
        return self.tags.get("sweep_run_id", "").startswith("superseded")

    @property
    def damaged(self) -> bool:
        return any(name == "damaged" or name.startswith("damaged/") for name in self.tags)


@dataclass
class Counts:
    """The counts of one audit; `notes` says where each was found."""

    expected: int = 0
    lost: int = 0
    lost_and_tagged: int = 0  # destroyed by the fault itself, in a run that is tagged as damaged
    doubled: int = 0
    different: int = 0
    running: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.different or self.running)


def all_ids(store: SqliteStore) -> set[str]:
    return {row[0] for row in store.rows("SELECT run_uuid FROM runs")}


def new_runs(store: SqliteStore, earlier: Collection[str]) -> list[Run]:
    """Return every run that is not among `earlier`, with all rows of its points."""
    active = store.rows("SELECT run_uuid, status, start_time FROM runs WHERE lifecycle_stage = 'active'")
    facts = {run_id: (status, int(began or 0)) for run_id, status, began in active}
    new = set(facts) - set(earlier)
    if not new:
        return []
    condition = f"run_uuid IN ({', '.join(repr(run_id) for run_id in sorted(new))})"
    tags: dict[str, dict[str, str]] = defaultdict(dict)
    for run_id, name, value in store.rows(f"SELECT run_uuid, key, value FROM tags WHERE {condition}"):
        tags[run_id][name] = value
    runs = {run_id: Run(run_id, *facts[run_id], tags[run_id]) for run_id in new}
    query = f"SELECT run_uuid, key, step, value, is_nan FROM metrics WHERE {condition}"
    for run_id, name, step, value, is_nan in store.rows(query):
        if not name.startswith(DERIVED):
            runs[run_id].points[name, int(step)].append(float("nan") if is_nan else float(value))
    return list(runs.values())


def expected_points(trial: Trial, points: int, undisturbed: Mapping[Trial, Points]) -> dict[Point, float]:
    """Return what a trial had to record: a closed form, or what an undisturbed sweep recorded."""
    kind, level, seed = trial
    if kind == "trained":
        return {point: values[0] for point, values in undisturbed[trial].items()}
    values = {step: closed_form(level, seed, step) for step in range(1, points + 1)}
    return {("loss/val", step): value for step, value in values.items()} | {
        ("twice", step): 2 * value for step, value in values.items()
    }


def audit(runs: Collection[Run], trials: Collection[Trial], points: int, undisturbed: Mapping[Trial, Points]) -> Counts:
    """Compare the runs of a sweep with the trials that it had to run, each once and to its end.

    If there are several sweeps, the earlier ones failed and were started again: their runs must hold every point up to
    where they ended, and only the latest sweep must be complete.
    """
    counts = Counts()
    latest_sweep = max(runs, key=lambda run: run.began).tags.get("sweep_run_id") if runs else None
    earlier_runs = [run for run in runs if not run.replaced and run.tags.get("sweep_run_id") != latest_sweep]
    for run in earlier_runs:
        if run.trial:
            _compare(run, expected_points(run.trial, points, undisturbed), counts, to_its_end=False)
    by_trial: dict[Any, list[Run]] = defaultdict(list)
    for run in runs:
        if not run.replaced and run not in earlier_runs:
            by_trial[run.trial].append(run)
    for trial in trials:
        expected = expected_points(trial, points, undisturbed)
        trial_runs = by_trial.get(trial, [])
        if len(trial_runs) != 1:
            counts.notes.append(f"trial {trial} has {len(trial_runs)} runs")
        if not trial_runs:
            counts.expected += len(expected)
            counts.lost += len(expected)
        for number, run in enumerate(trial_runs):
            if number:
                counts.doubled += sum(map(len, run.points.values()))
            _compare(run, expected, counts)
    for run in runs:
        if run.status == "RUNNING":
            counts.running += 1
            counts.notes.append(f"run {run.run_id} is RUNNING ({run.tags.get('status')})")
    return counts


def _compare(run: Run, expected: Mapping[Point, float], counts: Counts, *, to_its_end: bool = True) -> None:
    if (
        run.tags.get("status") == "stopped" or not to_its_end
    ):  # stopped by the scheduler: at any step, but without a gap
        last = max((step for _, step in run.points), default=0)
        expected = {point: value for point, value in expected.items() if point[1] <= last}
    counts.expected += len(expected)
    missing = sorted(set(expected) - set(run.points))
    if missing and run.damaged:
        counts.lost_and_tagged += len(missing)
    elif missing:
        counts.lost += len(missing)
        counts.notes.append(f"run {run.run_id} {run.trial} {run.status} lacks {len(missing)}, first {missing[:3]}")
    doubled = sum(len(values) - 1 for values in run.points.values())
    if doubled:
        counts.doubled += doubled
        counts.notes.append(f"run {run.run_id} {run.trial} has {doubled} points twice")
    wrong = [point for point, values in run.points.items() if point not in expected or set(values) != {expected[point]}]
    if wrong:
        counts.different += len(wrong)
        counts.notes.append(f"run {run.run_id} {run.trial} has other values at {wrong[:3]}, {len(wrong)} in all")


def missing_steps(runs: Collection[Run], noted: Mapping[str, set[int]]) -> dict[str, set[int]]:
    """Return, for each trial of a closed form, the steps whose log() returned and that the store lacks."""
    stored: dict[str, set[int]] = defaultdict(set)
    for run in runs:
        if run.trial:
            kind, level, seed = run.trial
            stored[f"{kind}-{level}-{seed}"] |= {step for name, step in run.points if name == "loss/val"}
    missing = {name: steps - stored[name] for name, steps in noted.items() if name.startswith("closed")}
    return {name: steps for name, steps in missing.items() if steps}
