"""What the report shows: the newest judged sweep of each figure."""

from collections.abc import Iterator, Mapping
from typing import Any

from featurelab.pipelines.engine.errors import RequestError, tell
from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.experiment.claims import Verdict
from featurelab.pipelines.engine.experiment.config import SCALES, Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep import schemas
from featurelab.pipelines.engine.sweep.records import TRIALS_OF, VERDICTS, read_stored_plan, read_trials_of
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store


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
    plan, of = read_stored_plan(store, row["run_id"], experiment), row.get(f"tags.{TRIALS_OF}")
    trials = read_trials_of(store, experiment, row["run_id"], plan, {TRIALS_OF: of})
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
        "seconds": schemas.seconds(row.get("tags.seconds")),
        "config": experiment.preset(scale).model_dump(mode="json") | experiment.grid_as_text(scale),
        "command": f"featurelab reproduce {experiment.name}" + (f" --scale {scale}" if scale != "laptop" else ""),
        "png": png,
        "claims": [verdict.model_dump() for verdict in _verdicts(store, row["run_id"])],
    }


def _verdicts(store: Store, sweep_run_id: str) -> list[Verdict]:
    return schemas.verdicts(store.read_json(sweep_run_id, "verdicts.json"), f"verdicts.json of {sweep_run_id}")
