"""Runs side by side: what differs in their settings, and their last values."""

import json
from collections.abc import Sequence
from typing import Any

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.sweep.records import last_values
from featurelab.pipelines.engine.sweep.schemas import parsed
from featurelab.pipelines.engine.verdict.links import of_runs
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store


def compare(run_ids: Sequence[str], store: Store) -> dict[str, Any]:
    """The settings that differ, the last value of every metric, and where MLflow shows the runs side by side.

    Ids may be cut short where they are still those of one run. Raises `RequestError` for fewer than two runs.
    """
    runs = query.named(store, list(dict.fromkeys(query.whole_id(store, run_id) for run_id in run_ids)))
    if len(runs) < 2:
        raise RequestError("compare needs two different runs")
    configs = [parsed(run.data.tags.get("config", "{}"), f"the config of run {run.info.run_id}") for run in runs]
    fields = list(dict.fromkeys(name for config in configs for name in config))
    differing = {f: [c.get(f) for c in configs] for f in fields if len({json.dumps(c.get(f)) for c in configs}) > 1}
    if len({run.data.tags.get("experiment") for run in runs}) > 1:
        differing = {"experiment": [run.data.tags.get("experiment") for run in runs], **differing}
    metrics = {name for run in runs for name in last_values(run.data.metrics)}
    ids = [run.info.run_id for run in runs]
    return {
        "runs": ids,
        "names": [run.info.run_name for run in runs],
        "settings": differing,
        "metrics": {name: [run.data.metrics.get(name) for run in runs] for name in sorted(metrics)},
        "url": of_runs(store, ids, list(dict.fromkeys(run.info.experiment_id for run in runs))),
    }
