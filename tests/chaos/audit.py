"""What a store holds of some sweeps, compared with what their trials had to record."""

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
    """A run as the tables of the store hold it."""

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
class Found:
    """Counts of one audit; `notes` says where."""

    expected: int = 0
    lost: int = 0
    lost_and_said: int = 0  # destroyed by the fault itself, and the run is tagged as damaged
    doubled: int = 0
    different: int = 0
    running: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.different or self.running)


def all_ids(store: SqliteStore) -> set[str]:
    return {row[0] for row in store.rows("SELECT run_uuid FROM runs")}


def runs_beside(store: SqliteStore, earlier: Collection[str]) -> list[Run]:
    """Every run that the store holds now and did not hold before, with all rows of its points."""
    active = store.rows("SELECT run_uuid, status, start_time FROM runs WHERE lifecycle_stage = 'active'")
    facts = {run_id: (status, int(began or 0)) for run_id, status, began in active}
    new = set(facts) - set(earlier)
    if not new:
        return []
    among = f"run_uuid IN ({', '.join(repr(run_id) for run_id in sorted(new))})"
    tags: dict[str, dict[str, str]] = defaultdict(dict)
    for run_id, name, value in store.rows(f"SELECT run_uuid, key, value FROM tags WHERE {among}"):
        tags[run_id][name] = value
    runs = {run_id: Run(run_id, *facts[run_id], tags[run_id]) for run_id in new}
    query = f"SELECT run_uuid, key, step, value, is_nan FROM metrics WHERE {among}"
    for run_id, name, step, value, is_nan in store.rows(query):
        if not name.startswith(DERIVED):
            runs[run_id].points[name, int(step)].append(float("nan") if is_nan else float(value))
    return list(runs.values())


def expected_points(trial: Trial, points: int, undisturbed: Mapping[Trial, Points]) -> dict[Point, float]:
    """What a trial had to record: a closed form, or what an undisturbed sweep has recorded."""
    kind, level, seed = trial
    if kind == "trained":
        return {point: values[0] for point, values in undisturbed[trial].items()}
    values = {step: closed_form(level, seed, step) for step in range(1, points + 1)}
    return {("loss/val", step): value for step, value in values.items()} | {
        ("twice", step): 2 * value for step, value in values.items()
    }


def audit(runs: Collection[Run], trials: Collection[Trial], points: int, undisturbed: Mapping[Trial, Points]) -> Found:
    """Compare the runs of a sweep with the trials that it had to run, each once and to its end.

    Of several sweeps it is the latest that had to: the runs of those before, which failed and were begun anew, shall
    hold everything up to where they ended.
    """
    found = Found()
    latest = max(runs, key=lambda run: run.began).tags.get("sweep_run_id") if runs else None
    before = [run for run in runs if not run.replaced and run.tags.get("sweep_run_id") != latest]
    for run in before:
        if run.trial:
            _compare(run, expected_points(run.trial, points, undisturbed), found, to_its_end=False)
    by_trial: dict[Any, list[Run]] = defaultdict(list)
    for run in runs:
        if not run.replaced and run not in before:
            by_trial[run.trial].append(run)
    for trial in trials:
        wanted = expected_points(trial, points, undisturbed)
        here = by_trial.get(trial, [])
        if len(here) != 1:
            found.notes.append(f"trial {trial} has {len(here)} runs")
        if not here:
            found.expected += len(wanted)
            found.lost += len(wanted)
        for number, run in enumerate(here):
            if number:
                found.doubled += sum(map(len, run.points.values()))
            _compare(run, wanted, found)
    for run in runs:
        if run.status == "RUNNING":
            found.running += 1
            found.notes.append(f"run {run.run_id} is RUNNING ({run.tags.get('status')})")
    return found


def _compare(run: Run, wanted: Mapping[Point, float], found: Found, *, to_its_end: bool = True) -> None:
    if run.tags.get("status") == "stopped" or not to_its_end:  # by the scheduler: at any step, but without a gap
        last = max((step for _, step in run.points), default=0)
        wanted = {point: value for point, value in wanted.items() if point[1] <= last}
    found.expected += len(wanted)
    missing = sorted(set(wanted) - set(run.points))
    if missing and run.damaged:
        found.lost_and_said += len(missing)
    elif missing:
        found.lost += len(missing)
        found.notes.append(f"run {run.run_id} {run.trial} {run.status} lacks {len(missing)}, first {missing[:3]}")
    doubled = sum(len(values) - 1 for values in run.points.values())
    if doubled:
        found.doubled += doubled
        found.notes.append(f"run {run.run_id} {run.trial} has {doubled} points twice")
    wrong = [point for point, values in run.points.items() if point not in wanted or set(values) != {wanted[point]}]
    if wrong:
        found.different += len(wrong)
        found.notes.append(f"run {run.run_id} {run.trial} has other values at {wrong[:3]}, {len(wrong)} in all")


def lacking(runs: Collection[Run], noted: Mapping[str, set[int]]) -> dict[str, set[int]]:
    """Steps whose log() has returned, and which the store has not got, by trial of a closed form."""
    stored: dict[str, set[int]] = defaultdict(set)
    for run in runs:
        if run.trial:
            kind, level, seed = run.trial
            stored[f"{kind}-{level}-{seed}"] |= {step for name, step in run.points if name == "loss/val"}
    missing = {name: steps - stored[name] for name, steps in noted.items() if name.startswith("closed")}
    return {name: steps for name, steps in missing.items() if steps}
