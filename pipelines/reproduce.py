"""A figure again: run its grid, judge its claims, draw it; and judge or draw once more from what is stored."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd

from pipelines import registry, stored
from pipelines.claims import Verdict
from pipelines.conduct import keep_metrics
from pipelines.errors import RequestError, tell
from pipelines.experiment import SCALES, Experiment, Scale
from pipelines.links import reproduction_note, sweep_note
from pipelines.overview import overview
from pipelines.plan import require_data
from pipelines.plans import Finished, Plan
from pipelines.records import (
    JUDGING,
    VERDICTS,
    TrialRecord,
    end_sweep,
    how_trials_went,
    read_sweep,
    read_trials,
)
from pipelines.resources import Resources
from pipelines.results import Results
from pipelines.sweep import run_sweeps
from pipelines.unfinished import Found, begun, digest
from tracking import query
from tracking.connect import Store
from tracking.pages import NOTE


@dataclass(frozen=True)
class Judged:
    """A sweep with its drawing and, where its trials are those of the figure, the verdicts on the figure's claims."""

    experiment: Experiment
    sweep: str
    sweep_run_id: str
    trials: list[TrialRecord]
    seconds: float
    figure: str
    verdicts: list[Verdict]
    is_the_figure: bool = True

    @property
    def as_documented(self) -> bool:
        return not any(verdict.surprising for verdict in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.experiment.name,
            "sweep_run_id": self.sweep_run_id,
            "trials": len(self.trials),
            "seconds": round(self.seconds, 1),
            "figure": self.figure,
            "claims": [verdict.as_dict() for verdict in self.verdicts],
        }


def reproduce(
    experiments: Sequence[Experiment],
    scale: Scale,
    store: Store,
    *,
    outbox: Path,
    address: str | None = None,
    resources: Resources | None = None,
    show: Callable[[Judged], None] = lambda judged: None,
    fresh: bool = False,
) -> list[Judged]:
    """Run the grids of these figures; judge, draw and `show` each as soon as its trials are over.

    Where the same was begun before and interrupted, only what is missing of it is run, unless `fresh`.
    """
    plans = []
    for experiment in experiments:
        configs = experiment.configs(scale)
        require_data(experiment, configs)
        details: dict[str, Any] = {"metric": experiment.metric, "mode": experiment.mode, "kind": "reproduce"}
        details["resources"] = resources or Resources()
        plans.append(Plan(experiment, configs, experiment.varied(scale), scale, **details))
    judged: dict[str, Judged] = {}

    def ended(finished: Finished) -> None:
        judged[finished.sweep_run_id] = judge(finished.sweep_run_id, store)
        show(judged[finished.sweep_run_id])

    title = "" if len(experiments) == 1 else f"{len(experiments)} figures"
    found = Found([], [], plans) if fresh else begun(plans, store, outbox)
    for sweep_run_id in found.complete:
        judged[sweep_run_id] = judge(sweep_run_id, store)
        show(judged[sweep_run_id])
    command = found.command or uuid4().hex
    plans = [replace(plan, tags={"command": command, "plan_digest": digest(plan)}) for plan in found.missing]
    if plans or found.going_on:
        options: dict[str, Any] = {"outbox": outbox, "address": address, "title": title, "ended": ended}
        run_sweeps(plans, store, going_on=found.going_on, **options)
    order = [experiment.name for experiment in experiments]
    return sorted(judged.values(), key=lambda one: order.index(one.experiment.name))


def judge(sweep_run_id: str, store: Store) -> Judged:
    """Judge and draw from the store alone; verdicts and figure replace the earlier ones of this sweep.

    The claims of a figure are about its own grid: a sweep over anything else is drawn against its axes instead. Raises
    `RequestError` for a run that is not a sweep of ours.
    """
    experiment, plan, tags = read_sweep(store, sweep_run_id)
    trials = read_trials(store, experiment.name, sweep_run_id)
    seconds = stored.seconds(tags.get("seconds"))
    if not is_the_figure(experiment, plan):
        figure = draw_overview(experiment, plan, tags["sweep"], trials, sweep_run_id, store)
        return Judged(experiment, tags["sweep"], sweep_run_id, trials, seconds, figure, [], is_the_figure=False)
    results = collect(trials, store)
    verdicts = [claim.judge(results) for claim in experiment.claims]
    figure = draw(experiment, results, sweep_run_id, store) if experiment.drawing else ""
    counts = {status: sum(v.status == status for v in verdicts) for status in ("holds", "fails", "untested")}
    unexpected = sum(verdict.surprising for verdict in verdicts)
    store.log_json(sweep_run_id, [verdict.as_dict() for verdict in verdicts], "verdicts.json")
    if verdicts:
        store.log_mlflow_table(sweep_run_id, pd.DataFrame(map(_flat, verdicts)), "verdicts_table.json")
    keep_metrics(store, sweep_run_id, {f"claims/{s}": n for s, n in counts.items()} | {"claims/unexpected": unexpected})
    store.set_tags(
        sweep_run_id,
        {
            "verdict": ", ".join(f"{number} {status}" for status, number in counts.items() if number) or "no claims",
            NOTE: reproduction_note(experiment, verdicts, sweep_run_id),
        },
    )
    if tags.get("status") == JUDGING:
        end_sweep(store, sweep_run_id, how_trials_went(trials))
    return Judged(experiment, tags["sweep"], sweep_run_id, trials, seconds, figure, verdicts)


def is_the_figure(experiment: Experiment, plan: Mapping[str, Any]) -> bool:
    """Whether the trials of a stored plan are those that make the figure, so that its claims are about them."""
    if plan["kind"] == "reproduce":
        return True
    grid = [config.model_dump(mode="json") for config in experiment.configs(plan["scale"])]
    return sorted(map(_as_text, plan["configs"])) == sorted(map(_as_text, grid))


def draw_overview(
    experiment: Experiment,
    plan: Mapping[str, Any],
    name: str,
    trials: list[TrialRecord],
    sweep_run_id: str,
    store: Store,
) -> str:
    """Draw the metric that ranks a sweep against each of its axes, and describe the sweep on its page."""
    from pipelines.drawing import style

    store.set_tags(sweep_run_id, {NOTE: sweep_note(experiment, name, plan["axes"], len(trials))})
    title, metric = f"{experiment.name}: sweep {name}", plan["metric"] or experiment.metric
    with style():
        store.log_figure(sweep_run_id, overview(title, trials, plan["axes"], metric, plan["mode"]), "figure")
    return "figure.png"


def _as_text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def collect(trials: list[TrialRecord], store: Store) -> Results:
    """The results of these trials: a metric of all of them at once, and arrays, each when first asked for."""
    rows = [{"run_id": t.run_id, "status": t.status, **_tupled(t.config)} for t in trials]
    frame = pd.DataFrame(rows, dtype=object)  # so that none stays None, and a number the number it was

    @cache
    def read(metric: str) -> pd.DataFrame:
        return query.histories(store, [trial.run_id for trial in trials], [metric])

    @cache
    def load(run_id: str, name: str) -> Mapping[str, np.ndarray]:
        with np.load(store.download(run_id, f"arrays/{name}.npz"), allow_pickle=False) as file:
            return dict(file)

    return Results(frame, read, load)


def _tupled(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as JSON gives it, with lists as the tuples they were."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}


def draw(experiment: Experiment, results: Results, sweep_run_id: str, store: Store) -> str:
    """Draw the figure and keep it as PNG and SVG; returns the path of the PNG among the run's artifacts.

    A drawing that lacks trials says so in its place: the verdicts are worth having without it.
    """
    from matplotlib.figure import Figure

    from pipelines.claims import Missing
    from pipelines.drawing import style

    drawing = experiment.drawing
    assert drawing is not None
    with style():
        figure = Figure(figsize=drawing.size, layout="constrained")
        axes = figure.subplots(drawing.rows, drawing.cols, squeeze=False)
        try:
            drawing.draw(results, axes)
        except Missing as gap:
            figure.clear()
            figure.text(0.5, 0.5, f"cannot be drawn: {gap}", ha="center")
        figure.suptitle(f"{experiment.figure}. {experiment.title}")
        store.log_figure(sweep_run_id, figure, "figure")
    return "figure.png"


def report_entries(store: Store, scale: Scale | None = None) -> Iterator[dict[str, Any]]:
    """What the report shows: the newest judged sweep of each experiment, in the order of the registry.

    One whose record is not as we write it is left out, which is said; raises `RequestError` where all are such.
    """
    found = query.runs(store, VERDICTS, tags={"kind": "reproduce"})
    if not {"tags.verdict", "tags.experiment", "tags.scale"} <= set(found.columns):
        return
    found = found[found["tags.verdict"].notna()].sort_values("start", ascending=False)
    newest = found.drop_duplicates(["tags.experiment", "tags.scale"])
    broken: list[RequestError] = []
    whole = 0
    rows = newest.to_dict("records")
    for experiment in registry.experiments():
        for row in rows:
            if row["tags.experiment"] == experiment.name and scale in (None, row["tags.scale"]):
                try:
                    entry = _entry(experiment, row, store)
                except RequestError as error:
                    broken.append(error)
                    continue
                whole += 1
                yield entry
    if broken and not whole:
        raise broken[0]
    for trouble in broken:
        tell(f"left out: {trouble}")


def _entry(experiment: Experiment, row: Mapping[Any, Any], store: Store) -> dict[str, Any]:
    scale: Scale = row["tags.scale"]
    if scale not in SCALES:
        raise RequestError(f"run {row['run_id']} is of no scale that featurelab knows: {scale}")
    trials = read_trials(store, experiment.name, row["run_id"])
    png = None
    stand_in = experiment.stand_in if scale == "laptop" else ""
    if experiment.drawing:
        png = store.download(row["run_id"], "figure.png").read_bytes()
    return {
        "name": experiment.name,
        "system": experiment.system,
        "figure": experiment.figure,
        "title": experiment.title,
        "caption": " ".join(filter(None, [experiment.caption, stand_in and f"Laptop preset: {stand_in}."])),
        "scale": scale,
        "sweep_run_id": row["run_id"],
        "trial_run_ids": [trial.run_id for trial in trials],
        "trials": len(trials),
        "seconds": stored.seconds(row.get("tags.seconds")),
        "config": experiment.preset(scale).model_dump(mode="json") | experiment.grid_as_text(scale),
        "command": f"featurelab reproduce {experiment.name}" + (f" --scale {scale}" if scale != "laptop" else ""),
        "png": png,
        "claims": stored.verdicts(store.read_json(row["run_id"], "verdicts.json"), f"verdicts.json of {row['run_id']}"),
    }


def _flat(verdict: Verdict) -> dict[str, Any]:
    """A verdict whose cells are text or numbers, as a table wants them."""
    return {
        key: json.dumps(value) if isinstance(value, dict | list) else value for key, value in verdict.as_dict().items()
    }
