"""Links into MLflow's pages (3.17), descriptions of experiments, and saved views of their charts and tables.

The pages open in MLflow's GenAI layout unless the link asks for another after its #; no tag changes that. A link either
filters the runs itself or names a view, which is stored as a tag of the experiment and has its own filter. If a link
does both, MLflow ignores the view.
"""

from __future__ import annotations

import colorsys
import json
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from featurelab.tracking.lines import without_credentials
from featurelab.tracking.store.addresses import sqlite_path
from featurelab.tracking.store.store import Store

PORT = 5000
NOTE = "mlflow.note.content"
COLOUR = "mlflow.runColor"
VIEW = "mlflow.sharedViewState."
OURS = "sweep-"  # begins the keys of our views
MOST_VIEWS = 20  # of ours in one experiment: MLflow allows 40 views, including those of users
MOST_SECTIONS = 60  # of one view
PATIENCE = 1.0  # seconds for a server on this machine to answer
COLUMNS = "featurelab-columns"  # the key of the view that selects the columns of a table
UNNAMED = "Model metrics"  # MLflow's section for metrics without a slash, its last
MODEL_TRAINING = "workflowType=machine_learning"
CHARTS = f"compareRunsMode=CHART&{MODEL_TRAINING}"


def served(store: Store, run_id: str) -> str:
    """Return the address of the store's pages; an empty text if no server on this machine serves a SQLite store.

    A server counts if it knows the run. Tries the port that `serving` noted and MLflow's default port.
    """
    if not store.uri.startswith("sqlite:"):
        return without_credentials(store.uri)
    ports = [PORT]
    with suppress(OSError, ValueError):
        ports.insert(0, int(_note(store).read_text()[:5]))
    for port in ports:
        address = f"http://127.0.0.1:{port}"
        with suppress(OSError, ValueError, KeyError, TypeError):
            endpoint = f"{address}/api/2.0/mlflow/runs/get?run_id={quote(run_id)}"
            with urllib.request.urlopen(endpoint, timeout=PATIENCE) as answer:
                if json.load(answer)["run"]["info"]["run_id"] == run_id:
                    return address
    return ""


def serving(store: Store, port: int | None) -> None:
    """Note beside a SQLite store the port that serves its pages, for `served`; None deletes the note."""
    note = _note(store)
    with suppress(OSError):
        if port is None:
            note.unlink(missing_ok=True)
        else:
            note.parent.mkdir(exist_ok=True)
            note.write_text(str(port))


def charts_link(experiment_id: str, sweep: str = "") -> str:
    """Return the link, after the address, to the charts of an experiment's runs, or of one sweep if it is named."""
    condition = f'tags.sweep="{sweep}"'
    selection = f"searchFilter={quote(condition)}" if sweep else "startTime=ALL"
    return f"/#/experiments/{experiment_id}/runs?{selection}&{CHARTS}"


def view_link(experiment_id: str, key: str) -> str:
    """Return the link to the charts of a view that `keep_view` saved under `key`."""
    return f"/#/experiments/{experiment_id}/runs?{CHARTS}&viewStateShareKey={key}"


def table_link(experiment_id: str, key: str = "") -> str:
    """Return the link to the table of an experiment's runs, with the columns of the view `key` if given."""
    selection = f"viewStateShareKey={key}" if key else "startTime=ALL"
    return f"/#/experiments/{experiment_id}/runs?{selection}&{MODEL_TRAINING}"


def run_link(experiment_id: str, run_id: str) -> str:
    """Return the link to the page of one run."""
    return f"/#/experiments/{experiment_id}/runs/{quote(run_id)}?{MODEL_TRAINING}"


def compare_link(run_ids: Sequence[str], experiment_ids: Sequence[str]) -> str:
    """Return the link to the page that compares runs, possibly of different experiments."""
    runs, experiments = (quote(json.dumps(list(ids), separators=(",", ":"))) for ids in (run_ids, experiment_ids))
    return f"/#/compare-runs?runs={runs}&experiments={experiments}&{MODEL_TRAINING}"


def colour(index: int) -> str:
    """Return a colour (`#rrggbb`) for the index-th run that differs from those before; MLflow's own often coincide."""
    hue = index * 0.618033988749895 % 1  # steps of the golden ratio never repeat
    lightness = (0.42, 0.58, 0.34)[index % 3]
    return "#{:02x}{:02x}{:02x}".format(*(round(255 * part) for part in colorsys.hls_to_rgb(hue, lightness, 0.65)))


def source(command: str, commit: str = "") -> dict[str, str]:
    """Return the tags of the column `Source`: the command that creates a run, and the commit of the source."""
    tags = {"mlflow.source.type": "LOCAL", "mlflow.source.name": command}
    return tags | ({"mlflow.source.git.commit": commit} if commit else {})


def describe(store: Store, experiment_id: str, text: str, mark: str) -> None:
    """Set the description of an experiment unless a user wrote it: all of ours contain `mark`."""
    current = store.patiently(store.client.get_experiment, experiment_id).tags.get(NOTE, mark)
    if mark in current and current != text:
        store.patiently(store.client.set_experiment_tag, experiment_id, NOTE, text)


def keep_view(
    store: Store,
    experiment_id: str,
    sweep_run_id: str,
    sweep: str,
    axes: Sequence[str],
    metric: str,
    *,
    lower_first: bool,
    metrics: Iterable[str] = (),
) -> str:
    """Save a view of the charts of a sweep, and return its key.

    It shows parallel coordinates of the sweep's axes and of the metric that ranks it, and below these the curves of all
    `metrics` in sections by prefix. `lower_first` sorts runs by the metric in ascending order.
    """
    key = f"{OURS}{sweep_run_id[:12]}"
    state = {
        "searchFilter": f'tags.sweep="{sweep}"',
        "orderByKey": f"metrics.`{metric}`",
        "orderByAsc": lower_first,
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,
        "selectedColumns": [f"metrics.`{metric}`", *(f"params.`{axis}`" for axis in axes)],
        "compareRunSections": [
            _section("sweep", columns=1, cardHeight=400),
            *(_section(name) for name in _sections(metrics, metric)),
        ],
        "compareRunCharts": [
            {
                "uuid": "parallel",
                "type": "PARALLEL",
                "metricSectionId": "section sweep",
                "deleted": False,
                "isGenerated": False,
                "selectedParams": list(axes),
                "selectedMetrics": [metric],
                "showAllRuns": False,
            }
        ],
    }
    _delete_oldest_views(store, experiment_id, key)
    store.patiently(store.client.set_experiment_tag, experiment_id, VIEW + key, _view(sweep, state))
    return key


def keep_columns(store: Store, experiment_id: str, name: str, metrics: Sequence[str], params: Sequence[str]) -> None:
    """Save a view of the table of an experiment's runs, newest first, with these metrics and params as columns."""
    columns = [*(f"metrics.`{metric}`" for metric in metrics), *(f"params.`{param}`" for param in params)]
    state = {"orderByKey": "attributes.start_time", "orderByAsc": False, "startTime": "ALL", "selectedColumns": columns}
    saved = store.patiently(store.client.get_experiment, experiment_id).tags.get(VIEW + COLUMNS, "")
    if json.dumps(json.dumps(state)) not in saved:
        store.patiently(store.client.set_experiment_tag, experiment_id, VIEW + COLUMNS, _view(name, state))


def columns_of(store: Store, experiment_id: str) -> str:
    """Return the key of the view that `keep_columns` saved; an empty text if there is none."""
    tags = store.patiently(store.client.get_experiment, experiment_id).tags
    return COLUMNS if VIEW + COLUMNS in tags else ""


def _view(name: str, state: Mapping[str, Any]) -> str:
    """Return a view as MLflow stores it in a tag of the experiment."""
    return json.dumps({"name": name, "createdAt": time.time_ns() // 1_000_000, "state": json.dumps(state)})


def _section(name: str, **more: Any) -> dict[str, Any]:
    return {
        "uuid": f"section {name}",
        "name": name,
        "display": True,
        "isReordered": False,
        "deleted": False,
        "columns": 2,
        **more,
    }


def _sections(metrics: Iterable[str], first: str) -> list[str]:
    """Return the prefixes of metrics, which name MLflow's sections: that of `first` first, the unnamed section last."""
    prefixes = {name.rpartition("/")[0] or UNNAMED for name in metrics}
    first_prefix = first.rpartition("/")[0] or UNNAMED
    return sorted(prefixes, key=lambda name: (name != first_prefix, name == UNNAMED, name))[:MOST_SECTIONS]


def _delete_oldest_views(store: Store, experiment_id: str, key: str) -> None:
    """Delete the oldest of our views, to make room for the view `key`."""
    tags: Mapping[str, str] = store.patiently(store.client.get_experiment, experiment_id).tags
    views = [name for name in tags if name.startswith(VIEW + OURS) and name != VIEW + key]
    for name in sorted(views, key=lambda name: _created(tags[name]))[: max(0, len(views) + 1 - MOST_VIEWS)]:
        store.patiently(store.client.delete_experiment_tag, experiment_id, name)


def _created(value: str) -> float:
    try:
        return float(json.loads(value)["createdAt"])
    except (ValueError, KeyError, TypeError):
        return 0.0


def _note(store: Store) -> Path:
    return sqlite_path(store.uri).parent / ".featurelab" / "pages"
