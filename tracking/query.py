"""Read many runs at once: a table of runs, and the curves of all of them in a few requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from mlflow.entities import Run, ViewType
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request_safe

from .journal import DERIVED
from .store import Store

COLUMNS = ["run_id", "experiment", "name", "status", "start", "end"]
HISTORY = ["run_id", "metric", "step", "value", "timestamp"]
BULK_ENDPOINT = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
RUNS_PER_REQUEST = 100  # the server's bound
POINTS_PER_ANSWER = 25_000  # the server cuts an answer here without saying so
RUNS_PER_QUERY = 500


def runs(
    store: Store,
    experiment: str | Sequence[str] | None = None,
    *,
    tags: Mapping[str, Any] | None = None,
    status: str | None = None,
) -> pd.DataFrame:
    """Return one row a run, oldest first: run_id, experiment, name, status, start, end, `tags.*`, `params.*`,
    `metrics.*` (last values).

    `experiment` is a name, several, or None for all; `tags` and `status` must be equal. MLflow's own tags are left out.
    Nothing found gives an empty table with the first six columns.
    """
    names = [experiment] if isinstance(experiment, str) else experiment
    known = {e.experiment_id: e.name for e in _pages(store.client.search_experiments, view_type=ViewType.ALL)}
    chosen = [id_ for id_, name in known.items() if names is None or name in names]
    clauses = [f"tags.`{key}` = {_quoted(str(value))}" for key, value in (tags or {}).items()]
    if status:
        clauses.append(f"attributes.status = {_quoted(status)}")
    rows = [_row(run, known) for run in _search(store, chosen, " and ".join(clauses))]
    table = pd.DataFrame(rows, columns=None if rows else COLUMNS)
    return table.sort_values(["start", "run_id"], ignore_index=True) if rows else table


def histories(
    store: Store, run_ids: Sequence[str], metrics: Sequence[str] | None = None, *, derived: bool = False
) -> pd.DataFrame:
    """Return every recorded value, one a row: run_id, metric, step, value, timestamp (milliseconds), sorted by these.

    `metrics` None means all of them, without `final/` and `best/` unless `derived`. An unknown run has no rows.
    """
    run_ids = list(dict.fromkeys(run_ids))
    session_maker = getattr(store.client._tracking_client.store, "ManagedSessionMaker", None)
    rows = _from_database(session_maker, run_ids, metrics) if session_maker else _from_server(store, run_ids, metrics)
    table = pd.DataFrame(rows, columns=HISTORY).astype({"step": "int64", "value": "float64", "timestamp": "int64"})
    if metrics is None and not derived:
        table = table[~table["metric"].str.startswith(DERIVED)]
    return table.sort_values(["run_id", "metric", "step", "timestamp", "value"], ignore_index=True)


def _search(store: Store, experiment_ids: list[str], condition: str, view: int = ViewType.ACTIVE_ONLY) -> Iterator[Run]:
    if experiment_ids:
        query = {"experiment_ids": experiment_ids, "filter_string": condition, "run_view_type": view}
        yield from _pages(store.client.search_runs, max_results=1000, **query)


def _pages(search: Any, **query: Any) -> Iterator[Any]:
    token = None
    while True:
        page = search(**query, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _row(run: Run, experiments: Mapping[str, str]) -> dict[str, Any]:
    info = run.info
    return {
        "run_id": info.run_id,
        "experiment": experiments[info.experiment_id],
        "name": info.run_name,
        "status": info.status,
        "start": pd.Timestamp(info.start_time, unit="ms", tz="UTC"),
        "end": pd.Timestamp(info.end_time, unit="ms", tz="UTC") if info.end_time else pd.NaT,
        **{f"tags.{key}": value for key, value in run.data.tags.items() if not key.startswith("mlflow.")},
        **{f"params.{key}": value for key, value in run.data.params.items()},
        **{f"metrics.{key}": value for key, value in run.data.metrics.items()},
    }


def _from_database(session_maker: Any, run_ids: list[str], metrics: Sequence[str] | None) -> list[tuple[Any, ...]]:
    """Read just the columns; MLflow's own bulk reader takes one metric a call and builds an object for each point."""
    from mlflow.store.tracking.dbmodels.models import SqlMetric as Point
    from sqlalchemy import select

    rows: list[tuple[Any, ...]] = []
    columns: tuple[Any, ...] = (Point.run_uuid, Point.key, Point.step, Point.value, Point.timestamp, Point.is_nan)
    with session_maker() as session:
        for some in _chunks(run_ids, RUNS_PER_QUERY):
            query = select(*columns).where(Point.run_uuid.in_(some))
            if metrics is not None:
                query = query.where(Point.key.in_(metrics))
            for run_id, key, step, value, timestamp, is_nan in session.execute(query):
                rows.append((run_id, key, step, float("nan") if is_nan else value, timestamp))
    return rows


def _from_server(store: Store, run_ids: list[str], metrics: Sequence[str] | None) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for some in _chunks(run_ids, RUNS_PER_REQUEST):
        for metric, having in _recorded(store, some, metrics).items():
            rows += _curves(store, having, metric)
    return rows


def _recorded(store: Store, run_ids: list[str], metrics: Sequence[str] | None) -> dict[str, list[str]]:
    """Which of these runs have which metric."""
    if metrics is not None:
        return dict.fromkeys(metrics, run_ids)
    experiments = [e.experiment_id for e in _pages(store.client.search_experiments, view_type=ViewType.ALL)]
    condition = f"attributes.run_id IN ({', '.join(map(_quoted, run_ids))})"
    having: dict[str, list[str]] = {}
    for run in _search(store, experiments, condition, ViewType.ALL):
        for metric in run.data.metrics:
            having.setdefault(metric, []).append(run.info.run_id)
    return having


def _curves(store: Store, run_ids: list[str], metric: str) -> list[tuple[Any, ...]]:
    """One metric of up to 100 runs. A cut answer is complete for all its runs but the last; ask on from there."""
    rows: list[tuple[Any, ...]] = []
    missing = set(run_ids)
    while missing:
        query = {"run_id": sorted(missing), "metric_key": metric, "max_results": POINTS_PER_ANSWER}
        answer = http_request_safe(get_default_host_creds(store.uri), BULK_ENDPOINT, "GET", params=query)
        points = answer.json()["metrics"]
        complete = set(missing)
        if len(points) >= POINTS_PER_ANSWER:
            last = points[-1]["run_id"]
            complete = {point["run_id"] for point in points} - {last}
            if not complete:  # this one run alone fills an answer
                rows += [
                    (last, metric, m.step, m.value, m.timestamp) for m in store.client.get_metric_history(last, metric)
                ]
                missing.discard(last)
                continue
        rows += [
            (point["run_id"], metric, point["step"], point["value"], point["timestamp"])
            for point in points
            if point["run_id"] in complete
        ]
        missing -= complete
    return rows


def _chunks(items: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _quoted(text: str) -> str:
    """Quote a value for MLflow's filters, which know no escapes."""
    if "'" not in text:
        return f"'{text}'"
    if '"' not in text:
        return f'"{text}"'
    raise ValueError(f"MLflow cannot search for a text with both kinds of quotes: {text!r}")
