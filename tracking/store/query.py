"""Read many runs at once: a table of runs, or the curves of all of them, in a few requests."""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pandas as pd
from mlflow.entities import Run, ViewType
from mlflow.utils.rest_utils import http_request_safe

from featurelab.tracking.errors import StoreError
from featurelab.tracking.store import bookkeeping
from featurelab.tracking.store.addresses import RUN_ID
from featurelab.tracking.store.store import Store
from featurelab.tracking.values import DERIVED

COLUMNS = ["run_id", "experiment", "name", "status", "start", "end"]
KINDS = ("tags", "params", "metrics")
HISTORY = ["run_id", "metric", "step", "value", "timestamp"]
SEARCH_ENDPOINT = "/api/2.0/mlflow/runs/search"
BULK_ENDPOINT = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
RUNS_PER_PAGE = 1000
MOST_MATCHES = 4  # ids shown for an ambiguous prefix
WHOLE_ID = re.compile("[0-9a-f]{32}")
RUNS_PER_REQUEST = 100  # the server's bound
POINTS_PER_ANSWER = 25_000  # the server silently truncates an answer here
RUNS_PER_QUERY = 500
SERVER_PROCESSES = 4  # the default of `mlflow server`; each answers one request at a time
ROWS_PER_FETCH = 1000


def runs(
    store: Store,
    experiment: str | Sequence[str] | None = None,
    *,
    tags: Mapping[str, Any] | None = None,
    status: str | None = None,
) -> pd.DataFrame:
    """Return a table of the matching runs, one row each, oldest first.

    Columns: run_id, experiment, name, status, start, end, then `tags.*`, `params.*` and `metrics.*` (last values),
    without MLflow's own tags; without runs only the first six. `experiment` is a name, several, or None for all. Runs
    match if their tags and status equal those given. Raises ValueError for a value with both kinds of quotes.
    """
    table = list(rows(store, experiment, tags=tags, status=status))
    if not table:
        return pd.DataFrame(table, columns=COLUMNS)
    names = {name for row in table for name in row} - set(COLUMNS)
    order = sorted(names, key=lambda name: (KINDS.index(name.partition(".")[0]), name))
    return pd.DataFrame(table, columns=[*COLUMNS, *order]).sort_values(["start", "run_id"], ignore_index=True)


def rows(
    store: Store,
    experiment: str | Sequence[str] | None = None,
    *,
    tags: Mapping[str, Any] | None = None,
    status: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `runs` in no particular order, without holding all of them in memory."""
    names = [experiment] if isinstance(experiment, str) else experiment
    stored = _pages(store, store.client.search_experiments, view_type=ViewType.ALL)
    experiments = {e.experiment_id: e.name for e in stored if names is None or e.name in names}
    texts = {key: str(value) for key, value in (tags or {}).items()}
    quoted = [_quoted(value) for value in texts.values()]
    session_maker = _database(store)
    if session_maker:
        yield from _runs_in_database(session_maker, experiments, texts, status)
    elif experiments:
        # one search for each combination of names: MLflow's filters have no "or"
        for keys in product(*map(bookkeeping.names_of, texts)):
            clauses = [f"tags.`{key}` = {value}" for key, value in zip(keys, quoted, strict=True)]
            clauses += [f"attributes.status = {_quoted(status)}"] if status else []
            yield from _runs_on_server(store, experiments, clauses)


def named(store: Store, run_ids: Sequence[str]) -> list[Run]:
    """Return the runs with these ids, in this order, with one request for every hundred. Raises RunNotFound."""
    valid = [run_id for run_id in run_ids if RUN_ID.fullmatch(run_id)]
    by_id = {run.info.run_id: run for chunk in _chunks(valid, RUNS_PER_REQUEST) for run in _search_ids(store, chunk)}
    return [by_id.get(run_id) or store.get_run(run_id) for run_id in run_ids]


def whole_id(store: Store, prefix: str) -> str:
    """Return the id of the only run whose id begins with `prefix`.

    Raises RunNotFound if there is none, StoreError if there are several.
    """
    if WHOLE_ID.fullmatch(prefix) or not RUN_ID.fullmatch(prefix):
        return str(store.get_run(prefix).info.run_id)
    session_maker = _database(store)
    matches = _ids_in_database(session_maker, prefix) if session_maker else _ids_on_server(store, prefix)
    if len(matches) > 1 and prefix not in matches:
        shown = ", ".join(run_id[: len(prefix) + 8] + "..." for run_id in matches)
        raise StoreError(f"several runs begin with {prefix}: {shown}; write more of the id")
    return matches[0] if len(matches) == 1 else store.get_run(prefix).info.run_id


def histories(
    store: Store, run_ids: Sequence[str], metrics: Sequence[str] | None = None, *, derived: bool = False
) -> pd.DataFrame:
    """Return a table of all recorded points: run_id, metric, step, value, timestamp (milliseconds since the epoch).

    One row each, sorted by run, metric, step and time. `metrics` None means all, without those computed from others
    unless `derived`. An unknown run has no rows.
    """
    run_ids = list(dict.fromkeys(run_ids))
    session_maker = _database(store)
    if session_maker:
        table = _from_database(session_maker, run_ids, metrics)
    else:
        table = pd.DataFrame(_from_server(store, run_ids, metrics), columns=HISTORY)
    table = table.astype({"step": "int64", "value": "float64", "timestamp": "int64"})
    if metrics is None and not derived:
        table = table[~table["metric"].str.startswith(DERIVED)]
    return table.sort_values(["run_id", "metric", "step", "timestamp", "value"], ignore_index=True)


def _search_ids(store: Store, run_ids: list[str]) -> Iterator[Run]:
    condition = f"attributes.run_id IN ({', '.join(map(_quoted, run_ids))})"
    runs = _pages(store, store.client.search_runs, max_results=RUNS_PER_PAGE, **_everywhere(store, condition))
    return map(bookkeeping.with_plain_tags, runs)


def _everywhere(store: Store, condition: str) -> dict[str, Any]:
    """Return the arguments of a search in all experiments, deleted runs included."""
    experiments = [e.experiment_id for e in _pages(store, store.client.search_experiments, view_type=ViewType.ALL)]
    return {"experiment_ids": experiments, "filter_string": condition, "run_view_type": ViewType.ALL}


def _ids_in_database(session_maker: Any, prefix: str) -> list[str]:
    from mlflow.store.tracking.dbmodels.models import SqlRun
    from sqlalchemy import select

    query: Any = select(SqlRun.run_uuid).where(SqlRun.run_uuid.startswith(prefix, autoescape=True)).limit(MOST_MATCHES)
    with session_maker() as session:
        return [run_id for (run_id,) in session.execute(query)]


def _ids_on_server(store: Store, prefix: str) -> list[str]:
    query = _everywhere(store, f"attributes.run_id LIKE {_quoted(prefix + '%')}")
    runs = store.patiently(store.client.search_runs, max_results=MOST_MATCHES, **query)
    return [run.info.run_id for run in runs if run.info.run_id.startswith(prefix)]  # _ matches any character in LIKE


def _pages(store: Store, search: Any, **query: Any) -> Iterator[Any]:
    token = None
    while True:
        page = store.patiently(search, **query, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _runs_on_server(store: Store, experiments: Mapping[str, str], clauses: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of runs that meet all clauses, from JSON: MLflow's client would build an object for each value.

    If there is more than one page, search by the first digit of the ids, which are random, so that several of the
    server's processes work at once.
    """
    query: dict[str, Any] = {"experiment_ids": list(experiments), "max_results": RUNS_PER_PAGE}

    def page(clauses: list[str], token: str | None = None) -> tuple[list[dict[str, Any]], str | None]:
        request = query | {"filter": " and ".join(clauses)} | ({"page_token": token} if token else {})
        answer = _ask(store, SEARCH_ENDPOINT, "POST", json=request)
        return [_row(run, experiments) for run in answer.get("runs", [])], answer.get("next_page_token")

    def pages(digit: str) -> list[dict[str, Any]]:
        with_digit = [*clauses, f"attributes.run_id LIKE '{digit}%'"]
        rows, token = page(with_digit)
        while token:
            more, token = page(with_digit, token)
            rows += more
        return rows

    first, more = page(clauses)
    if not more:
        yield from first
        return
    with ThreadPoolExecutor(SERVER_PROCESSES) as pool:
        for rows in pool.map(pages, string.hexdigits[:16]):
            yield from rows


def _ask(store: Store, endpoint: str, method: str, **query: Any) -> Any:
    """Return the JSON that a server answers."""
    credentials = store.client._tracking_client.store.get_host_creds()
    return store.patiently(lambda: http_request_safe(credentials, endpoint, method, **query).json())


def _row(run: Mapping[str, Any], experiments: Mapping[str, str]) -> dict[str, Any]:
    info, data = run["info"], run["data"]
    times = int(info["start_time"]), int(info["end_time"]) if "end_time" in info else None
    row = _facts(info["run_id"], experiments[info["experiment_id"]], info.get("run_name", ""), info["status"], *times)
    for kind, convert in zip(KINDS, (str, str, float), strict=True):
        # converted: nan comes as a text, because JSON has no number for it
        row |= {f"{kind}.{each['key']}": convert(each["value"]) for each in data.get(kind, [])}
    row = bookkeeping.plain(row, "tags.")
    return {name: value for name, value in row.items() if not name.startswith("tags.mlflow.")}


def _facts(run_id: str, experiment: str, name: str, status: str, start: int, end: int | None) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "experiment": experiment,
        "name": name,
        "status": status,
        "start": pd.Timestamp(start, unit="ms", tz="UTC"),
        "end": pd.Timestamp(end, unit="ms", tz="UTC") if end else pd.NaT,
    }


def _database(store: Store) -> Any:
    """Return what opens a session with the store's database; None if the store is a server."""
    store.require_in_place()
    return getattr(store.client._tracking_client.store, "ManagedSessionMaker", None)


def _runs_in_database(
    session_maker: Any, experiments: Mapping[str, str], tags: Mapping[str, str], status: str | None
) -> Iterator[dict[str, Any]]:
    """Yield rows as `_row` does, from a query for each table: MLflow's own search builds an object for each value."""
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlParam, SqlRun, SqlTag
    from sqlalchemy import select

    columns = (SqlRun.run_uuid, SqlRun.experiment_id, SqlRun.name, SqlRun.status, SqlRun.start_time, SqlRun.end_time)
    matching: Any = select(*columns).where(SqlRun.experiment_id.in_([int(id_) for id_ in experiments]))
    matching = matching.where(SqlRun.lifecycle_stage == "active")
    for key, value in tags.items():
        keys = bookkeeping.names_of(key)
        tagged = select(SqlTag.run_uuid).where(SqlTag.key.in_(keys), SqlTag.value == value)
        matching = matching.where(SqlRun.run_uuid.in_(tagged))
    if status:
        matching = matching.where(SqlRun.status == status)
    with session_maker() as session:
        for chunk in _chunks(list(_tuples(session, matching)), RUNS_PER_QUERY):
            by_id = {run_id: _facts(run_id, experiments[str(of)], *rest) for run_id, of, *rest in chunk}
            for kind, table in zip(KINDS, (SqlTag, SqlParam, SqlLatestMetric), strict=True):
                flag = (SqlLatestMetric.is_nan,) if table is SqlLatestMetric else ()
                query = select(table.run_uuid, table.key, table.value, *flag).where(table.run_uuid.in_(list(by_id)))
                for run_id, key, value, *is_nan in _tuples(session, query):
                    if not (kind == "tags" and key.startswith("mlflow.") and not key.startswith(bookkeeping.PREFIX)):
                        # interned: thousands of runs have the same two dozen names
                        by_id[run_id][sys.intern(f"{kind}.{key}")] = float("nan") if any(is_nan) else value
            yield from (bookkeeping.plain(row, "tags.") for row in by_id.values())


def _tuples(session: Any, query: Any) -> Iterator[tuple[Any, ...]]:
    """Yield all rows as the database's driver gives them: wrapping each in SQLAlchemy's type takes most of the time."""
    cursor = session.connection().execute(query).cursor
    while rows := cursor.fetchmany(ROWS_PER_FETCH):
        yield from rows


def _from_database(session_maker: Any, run_ids: list[str], metrics: Sequence[str] | None) -> pd.DataFrame:
    """Read only the columns: MLflow's own bulk reader takes one metric a call and builds an object for each point."""
    from mlflow.store.tracking.dbmodels.models import SqlMetric as Point
    from sqlalchemy import select

    columns: tuple[Any, ...] = (Point.run_uuid, Point.key, Point.step, Point.value, Point.timestamp, Point.is_nan)
    tables = [pd.DataFrame([], columns=[*HISTORY, "is_nan"])]
    with session_maker() as session:
        for chunk in _chunks(run_ids, RUNS_PER_QUERY):
            query = select(*columns).where(Point.run_uuid.in_(chunk))
            if metrics is not None:
                query = query.where(Point.key.in_(metrics))
            rows = list(_tuples(session, query))
            tables += [pd.DataFrame(rows, columns=tables[0].columns)] if rows else []
    table = pd.concat(tables[1:] or tables, ignore_index=True)
    return table.assign(value=table["value"].mask(table["is_nan"].astype(bool))).drop(columns="is_nan")


def _from_server(store: Store, run_ids: list[str], metrics: Sequence[str] | None) -> list[tuple[Any, ...]]:
    requests = [
        (with_metric, metric)
        for chunk in _chunks(run_ids, RUNS_PER_REQUEST)
        for metric, with_metric in _runs_by_metric(store, chunk, metrics).items()
    ]
    with ThreadPoolExecutor(SERVER_PROCESSES) as pool:
        return [row for curves in pool.map(lambda request: _curves(store, *request), requests) for row in curves]


def _runs_by_metric(store: Store, run_ids: list[str], metrics: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the ids of the runs that may have each metric."""
    if metrics is not None:
        return dict.fromkeys(metrics, run_ids)
    by_metric: dict[str, list[str]] = {}
    for run in _search_ids(store, run_ids):
        for metric in run.data.metrics:
            by_metric.setdefault(metric, []).append(run.info.run_id)
    return by_metric


def _curves(store: Store, run_ids: list[str], metric: str) -> list[tuple[Any, ...]]:
    """Return one metric of up to 100 runs. A cut answer is complete but for its last run, which is asked for again."""
    rows: list[tuple[Any, ...]] = []
    missing = set(run_ids)
    while missing:
        query = {"run_id": sorted(missing), "metric_key": metric, "max_results": POINTS_PER_ANSWER}
        points = _ask(store, BULK_ENDPOINT, "GET", params=query)["metrics"]
        complete = set(missing)
        if len(points) >= POINTS_PER_ANSWER:
            last = points[-1]["run_id"]
            complete = {point["run_id"] for point in points} - {last}
            if not complete:  # a single run fills an answer
                rows += [
                    (last, metric, m.step, m.value, m.timestamp)
                    for m in store.patiently(store.client.get_metric_history, last, metric)
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


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _quoted(text: str) -> str:
    """Quote a value for MLflow's filters, which have no escapes. Raises ValueError for both kinds of quotes."""
    if "'" not in text:
        return f"'{text}'"
    if '"' not in text:
        return f'"{text}"'
    raise ValueError(f"MLflow cannot search for a value with both kinds of quotes: {text!r}")
