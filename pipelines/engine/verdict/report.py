"""The content of the report: the newest judged sweep of each figure, and earlier verdicts on its claims."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import papers, registry
from featurelab.pipelines.engine.experiment.claims import Verdict
from featurelab.pipelines.engine.experiment.config import SCALES, Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep import schemas
from featurelab.pipelines.engine.sweep.records import TRIALS_OF, VERDICTS, read_stored_plan, read_trials_of
from featurelab.pipelines.engine.verdict import links
from featurelab.pipelines.engine.verdict.maps.entries import PNG, map_entries
from featurelab.tracking.errors import BadArtifact, StoreError
from featurelab.tracking.lines import line
from featurelab.tracking.report.page import render
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store

MOST_EARLIER = 8  # sweeps of a figure whose verdicts are read beside those of the newest

Row = Mapping[Any, Any]


def report_entries(store: Store, scale: Scale | None = None, *, base: str = "") -> Iterator[dict[str, Any]]:
    """Yield an entry of the report for the newest judged sweep of each experiment, in the order of the registry.

    For a figure whose record is damaged, `left_out` says why, and nothing else of the record is there. If only the
    drawing is damaged, `not_drawn` says why. With `base`, the address of MLflow's pages, entries have links.
    """
    runs = query.runs(store, VERDICTS, tags={"kind": "reproduce"})
    if not {"tags.verdict", "tags.experiment", "tags.scale"} <= set(runs.columns):
        return
    judged = runs[runs["tags.verdict"].notna()].sort_values("start", ascending=False)
    rows = judged.to_dict("records")
    sweeps: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        sweeps[row["tags.experiment"], row["tags.scale"]].append(row)
    names = {row["run_id"]: str(row.get("tags.sweep")) for row in rows}
    for experiment in registry.experiments():
        for (name, at), (newest, *earlier) in sweeps.items():
            if name == experiment.name and scale in (None, at):
                try:
                    entry = _entry(experiment, newest, earlier[:MOST_EARLIER], store)
                except (RequestError, BadArtifact) as error:
                    yield _facts(experiment) | {"left_out": line(str(error))}
                else:
                    yield entry | (_links(experiment, newest, names, store, base) if base else {})


@dataclass(frozen=True)
class Report:
    """A report that was written: its page, and what is not on it, each with the reason."""

    page: Path
    left_out: list[tuple[str, str]]
    not_drawn: list[tuple[str, str]]


def write_report(store: Store, out: Path, *, base: str = "") -> Report:
    """Write the report into the folder `out`, with links if `base` is the address of MLflow's pages.

    Raises `RequestError`, and writes nothing, if no judged sweep can be reported.
    """
    entries, maps = list(report_entries(store, base=base)), list(map_entries(store))
    if not entries and not maps:
        raise RequestError("there is nothing to report yet: run featurelab reproduce first")
    left_out = [(entry["name"], entry["left_out"]) for entry in [*entries, *maps] if "left_out" in entry]
    if len(left_out) == len(entries) + len(maps):
        raise RequestError(left_out[0][1])
    not_drawn = [(entry["name"], entry["not_drawn"]) for entry in entries if "not_drawn" in entry]
    return Report(render(entries, out, maps), left_out, not_drawn)


def _entry(experiment: Experiment, row: Row, earlier: Sequence[Row], store: Store) -> dict[str, Any]:
    scale: Scale = row["tags.scale"]
    if scale not in SCALES:
        raise RequestError(f"run {row['run_id']} is of no scale that featurelab knows: {scale}")
    plan, of = read_stored_plan(store, row["run_id"], experiment), row.get(f"tags.{TRIALS_OF}")
    trials = read_trials_of(store, experiment, row["run_id"], plan, {TRIALS_OF: of})
    verdicts, past = _verdicts(store, row["run_id"]), _history(store, earlier)
    named = {claim.id: list(claim.controls) for claim in experiment.claims}
    return {
        **_facts(experiment),
        **(_drawing(store, row["run_id"]) if experiment.drawing else {}),
        "caption": " ".join(filter(None, [experiment.caption, experiment.difference(scale)])),
        "scale": scale,
        "sweep_run_id": row["run_id"],
        "trial_run_ids": [trial.run_id for trial in trials],
        "trials": len(trials),
        "seconds": schemas.seconds(row.get("tags.seconds")),
        "config": experiment.preset(scale).model_dump(mode="json") | experiment.grid_as_text(scale),
        "command": f"featurelab reproduce {experiment.name}" + (f" --scale {scale}" if scale != "laptop" else ""),
        "source": papers.paper(experiment).partition("\n\n")[0],
        "source_url": papers.address(experiment),
        "claims": [
            verdict.model_dump() | {"history": past.get(verdict.id, []), "named_controls": named.get(verdict.id)}
            for verdict in verdicts
        ],
    }


def _facts(experiment: Experiment) -> dict[str, Any]:
    names = ("name", "system", "figure", "title")
    return {name: getattr(experiment, name) for name in names}


def _drawing(store: Store, sweep_run_id: str) -> dict[str, Any]:
    """Return the picture of a figure, with its PDF where one is stored, or why it cannot be shown."""
    try:
        png = store.read_bytes(sweep_run_id, "figure.png")
        if not png.startswith(PNG):
            raise BadArtifact(f"artifact 'figure.png' of run {sweep_run_id} is not a PNG picture")
    except BadArtifact as error:
        return {"not_drawn": line(str(error))}
    with suppress(BadArtifact):  # sweeps of an earlier version have none
        return {"png": png, "pdf": store.read_bytes(sweep_run_id, "figure.pdf")}
    return {"png": png}


def _links(experiment: Experiment, row: Row, names: Mapping[str, str], store: Store, base: str) -> dict[str, str]:
    """Return links to the run with a figure's verdicts, and to the curves of the trials by which it was judged."""
    other_sweep = row.get(f"tags.{TRIALS_OF}")
    if experiment.reads and isinstance(other_sweep, str):
        ran, sweep = experiment.reads.name, names.get(other_sweep, "")
    else:
        ran, sweep = experiment.name, names[row["run_id"]]
    return {
        "url": links.of_verdicts(store, base, row["run_id"]),
        "charts_url": links.of_charts(store, base, ran, sweep),
    }


def _history(store: Store, earlier: Sequence[Row]) -> dict[str, list[dict[str, str]]]:
    """Return the earlier verdicts on each claim, newest first; a sweep that cannot be read is left out."""
    past: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in earlier:
        try:
            verdicts = _verdicts(store, row["run_id"])
        except (RequestError, StoreError):
            continue
        date = row["start"].strftime("%Y-%m-%d %H:%M")
        for verdict in verdicts:
            past[verdict.id].append({"status": verdict.status, "date": date, "sweep_run_id": row["run_id"]})
    return past


def _verdicts(store: Store, sweep_run_id: str) -> list[Verdict]:
    return schemas.verdicts(store.read_json(sweep_run_id, "verdicts.json"), f"verdicts.json of {sweep_run_id}")
