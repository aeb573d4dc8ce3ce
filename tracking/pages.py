"""What MLflow's pages (3.17) show: links into them, descriptions, and charts that are laid out beforehand.

The pages open as those of a GenAI project unless a link says otherwise, after its #; no tag does. A link either filters
the runs itself, or names a view that is kept as a tag of the experiment and brings its own filter; with both, the view
is not shown.
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
from featurelab.tracking.store.store import Store, sqlite_path

PORT = 5000
NOTE = "mlflow.note.content"
COLOUR = "mlflow.runColor"
VIEW = "mlflow.sharedViewState."
OURS = "sweep-"  # what the keys of our views begin with
MOST_VIEWS = 20  # of ours in an experiment: from 40 on MLflow lets nobody add one
PATIENCE = 1.0  # seconds for a server on this machine to answer
COLUMNS = "featurelab-columns"  # the key of the view of a table
UNNAMED = "Model metrics"  # MLflow's section of the metrics without a slash, its last
MODEL_TRAINING = "workflowType=machine_learning"
CHARTS = f"compareRunsMode=CHART&{MODEL_TRAINING}"


def served(store: Store, run_id: str) -> str:
    """The address at which the store's pages are served; empty where nothing on this machine serves those of a file.

    For a SQLite store, what answers at a port that `serving` noted, or at MLflow's own, is asked for the run.
    """
    if not store.uri.startswith("sqlite:"):
        return without_credentials(store.uri)
    ports = [PORT]
    with suppress(OSError, ValueError):
        ports.insert(0, int(_note(store).read_text()[:5]))
    for port in ports:
        address = f"http://127.0.0.1:{port}"
        with suppress(OSError, ValueError, KeyError, TypeError):
            asked = f"{address}/api/2.0/mlflow/runs/get?run_id={quote(run_id)}"
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                if json.load(answer)["run"]["info"]["run_id"] == run_id:
                    return address
    return ""


def serving(store: Store, port: int | None) -> None:
    """Note beside a SQLite store the port at which its pages are served from now on; None takes the note away."""
    note = _note(store)
    with suppress(OSError):
        if port is None:
            note.unlink(missing_ok=True)
        else:
            note.parent.mkdir(exist_ok=True)
            note.write_text(str(port))


def charts_link(experiment_id: str, sweep: str = "") -> str:
    """The page that draws the curves of an experiment's runs, of one sweep alone where it is named: from the # on."""
    wanted = f'tags.sweep="{sweep}"'
    chosen = f"searchFilter={quote(wanted)}" if sweep else "startTime=ALL"
    return f"/#/experiments/{experiment_id}/runs?{chosen}&{CHARTS}"


def view_link(experiment_id: str, key: str) -> str:
    """The page with the charts of a view that `keep_view` kept."""
    return f"/#/experiments/{experiment_id}/runs?{CHARTS}&viewStateShareKey={key}"


def table_link(experiment_id: str, key: str = "") -> str:
    """The page that lists an experiment's runs, with the columns that `keep_columns` kept under a key."""
    chosen = f"viewStateShareKey={key}" if key else "startTime=ALL"
    return f"/#/experiments/{experiment_id}/runs?{chosen}&{MODEL_TRAINING}"


def run_link(experiment_id: str, run_id: str) -> str:
    """The page of one run."""
    return f"/#/experiments/{experiment_id}/runs/{quote(run_id)}?{MODEL_TRAINING}"


def compare_link(run_ids: Sequence[str], experiment_ids: Sequence[str]) -> str:
    """The page that sets runs, of different experiments too, side by side."""
    runs, experiments = (quote(json.dumps(list(ids), separators=(",", ":"))) for ids in (run_ids, experiment_ids))
    return f"/#/compare-runs?runs={runs}&experiments={experiments}&{MODEL_TRAINING}"


def colour(index: int) -> str:
    """A colour for the index-th of any number of runs, unlike those before it; MLflow's own often coincide."""
    turn = index * 0.618033988749895
    return "#{:02x}{:02x}{:02x}".format(
        *(round(255 * part) for part in colorsys.hls_to_rgb(turn % 1, (0.42, 0.58, 0.34)[index % 3], 0.65))
    )


def source(command: str, commit: str = "") -> dict[str, str]:
    """Tags that fill the column `Source` of the pages: the command that makes a run, the commit it was made at."""
    named = {"mlflow.source.type": "LOCAL", "mlflow.source.name": command}
    return named | ({"mlflow.source.git.commit": commit} if commit else {})


def describe(store: Store, experiment_id: str, text: str, mark: str) -> None:
    """Give an experiment a description, unless somebody wrote one of their own: `mark` stands in all of ours."""
    known = store.patiently(store.client.get_experiment, experiment_id).tags.get(NOTE, mark)
    if mark in known and known != text:
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
    """Lay out the charts of a sweep, and return the key of the view.

    First come parallel coordinates whose axes are those of the sweep and then the metric that ranks it, beneath them
    the curves of all `metrics`, by prefix.
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
    _prune(store, experiment_id, key)
    store.patiently(store.client.set_experiment_tag, experiment_id, VIEW + key, _view(sweep, state))
    return key


def keep_columns(store: Store, experiment_id: str, name: str, metrics: Sequence[str], params: Sequence[str]) -> None:
    """Lay out the table of an experiment's runs, newest first: these metrics and params are its columns."""
    columns = [*(f"metrics.`{metric}`" for metric in metrics), *(f"params.`{param}`" for param in params)]
    state = {"orderByKey": "attributes.start_time", "orderByAsc": False, "startTime": "ALL", "selectedColumns": columns}
    known = store.patiently(store.client.get_experiment, experiment_id).tags.get(VIEW + COLUMNS, "")
    if json.dumps(json.dumps(state)) not in known:
        store.patiently(store.client.set_experiment_tag, experiment_id, VIEW + COLUMNS, _view(name, state))


def columns_of(store: Store, experiment_id: str) -> str:
    """The key of the view that `keep_columns` kept; empty where there is none."""
    tags = store.patiently(store.client.get_experiment, experiment_id).tags
    return COLUMNS if VIEW + COLUMNS in tags else ""


def _view(name: str, state: Mapping[str, Any]) -> str:
    """A view as MLflow keeps it in a tag of the experiment."""
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
    """The prefixes of metrics, as MLflow makes sections of them: that of `first` first, what has none last."""
    prefixes = {name.rpartition("/")[0] or UNNAMED for name in metrics}
    ours = first.rpartition("/")[0] or UNNAMED
    return sorted(prefixes, key=lambda name: (name != ours, name == UNNAMED, name))[:60]


def _prune(store: Store, experiment_id: str, key: str) -> None:
    """Take away the oldest of our views, so that there is room for one more."""
    tags: Mapping[str, str] = store.patiently(store.client.get_experiment, experiment_id).tags
    ours = [name for name in tags if name.startswith(VIEW + OURS) and name != VIEW + key]
    for name in sorted(ours, key=lambda name: _made(tags[name]))[: max(0, len(ours) + 1 - MOST_VIEWS)]:
        store.patiently(store.client.delete_experiment_tag, experiment_id, name)


def _made(value: str) -> float:
    try:
        return float(json.loads(value)["createdAt"])
    except (ValueError, KeyError, TypeError):
        return 0.0


def _note(store: Store) -> Path:
    return sqlite_path(store.uri).parent / ".featurelab" / "pages"
