"""Compare runs side by side: the settings that differ, and the last values of metrics."""

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
    """Return the settings that differ, the last value of every metric, and a link to the comparison in MLflow.

    An id may be an unambiguous prefix. Raises `RequestError` for fewer than two runs.
    """
    runs = query.named(store, list(dict.fromkeys(query.whole_id(store, run_id) for run_id in run_ids)))
    if len(runs) < 2:
        raise RequestError(f"compare needs at least two different runs, got {len(runs)}")
    configs = [parsed(run.data.tags.get("config", "{}"), f"the config of run {run.info.run_id}") for run in runs]
    fields = list(dict.fromkeys(name for config in configs for name in config))
    values = {field: [config.get(field) for config in configs] for field in fields}
    differing = {field: row for field, row in values.items() if len(set(map(json.dumps, row))) > 1}
    experiments = [run.data.tags.get("experiment") for run in runs]
    if len(set(experiments)) > 1:
        differing = {"experiment": experiments, **differing}
    metrics = {name for run in runs for name in last_values(run.data.metrics)}
    ids = [run.info.run_id for run in runs]
    return {
        "runs": ids,
        "names": [run.info.run_name for run in runs],
        "settings": differing,
        "metrics": {name: [run.data.metrics.get(name) for run in runs] for name in sorted(metrics)},
        "url": of_runs(store, ids, list(dict.fromkeys(run.info.experiment_id for run in runs))),
    }
