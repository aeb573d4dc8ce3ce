"""The maps that the report shows: the newest of each experiment, scale and choice of axes."""

from collections.abc import Iterator
from typing import Any

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep.records import VERDICTS, read_sweep
from featurelab.pipelines.engine.verdict.maps.mapping import cells_of, picture_name
from featurelab.tracking.errors import BadArtifact
from featurelab.tracking.lines import line
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store

PNG = b"\x89PNG\r\n\x1a\n"  # the first bytes of a PNG file


def map_entries(store: Store) -> Iterator[dict[str, Any]]:
    """Yield an entry of the report for each judged map; `left_out` says why if its record is damaged."""
    runs = query.runs(store, VERDICTS, tags={"kind": "map"})
    if not {"tags.verdict", "tags.experiment", "tags.scale", "tags.map"} <= set(runs.columns):
        return
    judged = runs[runs["tags.verdict"].notna()].sort_values("start", ascending=False)
    judged = judged.drop_duplicates(["tags.experiment", "tags.scale", "tags.map"])
    names = registry.names()
    for row in judged.sort_values("tags.experiment").to_dict("records"):
        if row["tags.experiment"] in names:
            try:
                yield _entry(row["run_id"], store)
            except (RequestError, BadArtifact) as error:
                yield {"name": row["tags.experiment"], "left_out": line(str(error))}


def _entry(run_id: str, store: Store) -> dict[str, Any]:
    experiment, plan, tags = read_sweep(store, run_id)
    pictures = []
    for claim in experiment.claims:
        png = store.read_bytes(run_id, f"{picture_name(claim.id)}.png")
        if not png.startswith(PNG):
            raise BadArtifact(f"the picture of {claim.id} in run {run_id} is not a PNG picture")
        pictures.append((claim.says, png))
    return {
        "name": experiment.name,
        "figure": experiment.figure,
        "title": experiment.title,
        "scale": plan.scale,
        "map": tags["sweep"],
        "over": plan.over,
        "cells": len(cells_of(plan)),
        "sweep_run_id": run_id,
        "verdict": tags["verdict"],
        "pictures": pictures,
    }
