"""Read many runs at once: a table of runs, and the curves of all of them in a few requests."""

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
from featurelab.tracking.store.store import RUN_ID, Store
from featurelab.tracking.values import DERIVED

COLUMNS = ["run_id", "experiment", "name", "status", "start", "end"]
KINDS = ("tags", "params", "metrics")
HISTORY = ["run_id", "metric", "step", "value", "timestamp"]
SEARCH_ENDPOINT = "/api/2.0/mlflow/runs/search"
BULK_ENDPOINT = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
RUNS_PER_PAGE = 1000
SEVERAL = 4  # ids are shown where a beginning is that of more than one
WHOLE_ID = re.compile("[0-9a-f]{32}")
RUNS_PER_REQUEST = 100  # the server's bound
POINTS_PER_ANSWER = 25_000  # the server cuts an answer here without saying so
RUNS_PER_QUERY = 500
SERVER_PROCESSES = 4  # of `mlflow server`, unless it is told otherwise: each answers one request at a time
ROWS_AT_ONCE = 1000


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
    found = list(rows(store, experiment, tags=tags, status=status))
    if not found:
        return pd.DataFrame(found, columns=COLUMNS)
    names = {name for row in found for name in row} - set(COLUMNS)
    order = sorted(names, key=lambda name: (KINDS.index(name.partition(".")[0]), name))
    return pd.DataFrame(found, columns=[*COLUMNS, *order]).sort_values(["start", "run_id"], ignore_index=True)


def rows(
    store: Store,
    experiment: str | Sequence[str] | None = None,
    *,
    tags: Mapping[str, Any] | None = None,
    status: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `runs` as they come, each with what its run has: not all of them are held at once."""
    names = [experiment] if isinstance(experiment, str) else experiment
    known = _pages(store, store.client.search_experiments, view_type=ViewType.ALL)
    chosen = {e.experiment_id: e.name for e in known if names is None or e.name in names}
    wanted = {key: str(value) for key, value in (tags or {}).items()}
    quoted = [_quoted(value) for value in wanted.values()]
    session_maker = _database(store)
    if session_maker:
        yield from _runs_in_database(session_maker, chosen, wanted, status)
    elif chosen:
        # a filter of MLflow's knows no "or"
        for keys in product(*map(bookkeeping.names_of, wanted)):
            clauses = [f"tags.`{key}` = {value}" for key, value in zip(keys, quoted, strict=True)]
            clauses += [f"attributes.status = {_quoted(status)}"] if status else []
            yield from _runs_on_server(store, chosen, clauses)


def named(store: Store, run_ids: Sequence[str]) -> list[Run]:
    """Return the runs of these ids, in this order, from a request for every hundred. Raises RunNotFound."""
    known = [run_id for run_id in run_ids if RUN_ID.fullmatch(run_id)]
    found = {run.info.run_id: run for some in _chunks(known, RUNS_PER_REQUEST) for run in _found(store, some)}
    return [found.get(run_id) or store.get_run(run_id) for run_id in run_ids]


def whole_id(store: Store, begins: str) -> str:
    """Return the id of the only run whose id begins so. Raises RunNotFound for none, StoreError for several."""
    if WHOLE_ID.fullmatch(begins) or not RUN_ID.fullmatch(begins):
        return str(store.get_run(begins).info.run_id)
    session_maker = _database(store)
    found = _ids_in_database(session_maker, begins) if session_maker else _ids_on_server(store, begins)
    if len(found) > 1 and begins not in found:
        several = ", ".join(run_id[: len(begins) + 8] + "..." for run_id in found)
        raise StoreError(f"several runs begin with {begins}: {several}")
    return found[0] if len(found) == 1 else store.get_run(begins).info.run_id


def histories(
    store: Store, run_ids: Sequence[str], metrics: Sequence[str] | None = None, *, derived: bool = False
) -> pd.DataFrame:
    """Return every recorded value, one a row: run_id, metric, step, value, timestamp (milliseconds), sorted by these.

    `metrics` None means all of them, without those made from others unless `derived`. An unknown run has no rows.
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


def _found(store: Store, run_ids: list[str]) -> Iterator[Run]:
    condition = f"attributes.run_id IN ({', '.join(map(_quoted, run_ids))})"
    found = _pages(store, store.client.search_runs, max_results=RUNS_PER_PAGE, **_everywhere(store, condition))
    return map(bookkeeping.with_plain_tags, found)


def _everywhere(store: Store, condition: str) -> dict[str, Any]:
    """A search of all experiments, for deleted runs too."""
    experiments = [e.experiment_id for e in _pages(store, store.client.search_experiments, view_type=ViewType.ALL)]
    return {"experiment_ids": experiments, "filter_string": condition, "run_view_type": ViewType.ALL}


def _ids_in_database(session_maker: Any, begins: str) -> list[str]:
    from mlflow.store.tracking.dbmodels.models import SqlRun
    from sqlalchemy import select

    wanted: Any = select(SqlRun.run_uuid).where(SqlRun.run_uuid.startswith(begins, autoescape=True)).limit(SEVERAL)
    with session_maker() as session:
        return [run_id for (run_id,) in session.execute(wanted)]


def _ids_on_server(store: Store, begins: str) -> list[str]:
    wanted = _everywhere(store, f"attributes.run_id LIKE {_quoted(begins + '%')}")
    runs = store.patiently(store.client.search_runs, max_results=SEVERAL, **wanted)
    return [run.info.run_id for run in runs if run.info.run_id.startswith(begins)]  # _ stands for any letter


def _pages(store: Store, search: Any, **query: Any) -> Iterator[Any]:
    token = None
    while True:
        page = store.patiently(search, **query, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _runs_on_server(store: Store, experiments: Mapping[str, str], clauses: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of the runs for which all clauses hold; MLflow's client would build an object for each value.

    Where one page does not hold them, they are asked for by the first digit of their ids, which are random, so that
    several of the server's processes look at once.
    """
    query: dict[str, Any] = {"experiment_ids": list(experiments), "max_results": RUNS_PER_PAGE}

    def page(clauses: list[str], token: str | None = None) -> tuple[list[dict[str, Any]], str | None]:
        asked = query | {"filter": " and ".join(clauses)} | ({"page_token": token} if token else {})
        answer = _ask(store, SEARCH_ENDPOINT, "POST", json=asked)
        return [_row(run, experiments) for run in answer.get("runs", [])], answer.get("next_page_token")

    def pages(digit: str) -> list[dict[str, Any]]:
        of_digit = [*clauses, f"attributes.run_id LIKE '{digit}%'"]
        rows, token = page(of_digit)
        while token:
            more, token = page(of_digit, token)
            rows += more
        return rows

    first, more = page(clauses)
    if not more:
        yield from first
        return
    with ThreadPoolExecutor(SERVER_PROCESSES) as pool:
        for found in pool.map(pages, string.hexdigits[:16]):
            yield from found


def _ask(store: Store, endpoint: str, method: str, **query: Any) -> Any:
    """What a server answers, as the JSON that it is."""
    credentials = store.client._tracking_client.store.get_host_creds()
    return store.patiently(lambda: http_request_safe(credentials, endpoint, method, **query).json())


def _row(run: Mapping[str, Any], experiments: Mapping[str, str]) -> dict[str, Any]:
    info, data = run["info"], run["data"]
    times = int(info["start_time"]), int(info["end_time"]) if "end_time" in info else None
    row = _facts(info["run_id"], experiments[info["experiment_id"]], info.get("run_name", ""), info["status"], *times)
    for kind, convert in zip(KINDS, (str, str, float), strict=True):
        # a metric that is nan comes as a text: JSON has no number for it
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
    """What opens a session with the store's database, None where the store is a server."""
    store.require_in_place()
    return getattr(store.client._tracking_client.store, "ManagedSessionMaker", None)


def _runs_in_database(
    session_maker: Any, experiments: Mapping[str, str], tags: Mapping[str, str], status: str | None
) -> Iterator[dict[str, Any]]:
    """Rows as `_row` makes them, from a query for each table; MLflow's own search builds an object for each value."""
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlParam, SqlRun, SqlTag
    from sqlalchemy import select

    columns = (SqlRun.run_uuid, SqlRun.experiment_id, SqlRun.name, SqlRun.status, SqlRun.start_time, SqlRun.end_time)
    wanted: Any = select(*columns).where(SqlRun.experiment_id.in_([int(id_) for id_ in experiments]))
    wanted = wanted.where(SqlRun.lifecycle_stage == "active")
    for key, value in tags.items():
        keys = bookkeeping.names_of(key)
        tagged = select(SqlTag.run_uuid).where(SqlTag.key.in_(keys), SqlTag.value == value)
        wanted = wanted.where(SqlRun.run_uuid.in_(tagged))
    if status:
        wanted = wanted.where(SqlRun.status == status)
    with session_maker() as session:
        for some in _chunks(list(_tuples(session, wanted)), RUNS_PER_QUERY):
            found = {run_id: _facts(run_id, experiments[str(of)], *rest) for run_id, of, *rest in some}
            for kind, table in zip(KINDS, (SqlTag, SqlParam, SqlLatestMetric), strict=True):
                flag = (SqlLatestMetric.is_nan,) if table is SqlLatestMetric else ()
                query = select(table.run_uuid, table.key, table.value, *flag).where(table.run_uuid.in_(list(found)))
                for run_id, key, value, *is_nan in _tuples(session, query):
                    if not (kind == "tags" and key.startswith("mlflow.") and not key.startswith(bookkeeping.PREFIX)):
                        # one string for all runs: thousands of them have the same two dozen names
                        found[run_id][sys.intern(f"{kind}.{key}")] = float("nan") if any(is_nan) else value
            yield from (bookkeeping.plain(row, "tags.") for row in found.values())


def _tuples(session: Any, query: Any) -> Iterator[tuple[Any, ...]]:
    """All rows, as the database's driver gives them: what SQLAlchemy wraps each in takes longer than all else."""
    cursor = session.connection().execute(query).cursor
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        yield from rows


def _from_database(session_maker: Any, run_ids: list[str], metrics: Sequence[str] | None) -> pd.DataFrame:
    """Read just the columns; MLflow's own bulk reader takes one metric a call and builds an object for each point."""
    from mlflow.store.tracking.dbmodels.models import SqlMetric as Point
    from sqlalchemy import select

    columns: tuple[Any, ...] = (Point.run_uuid, Point.key, Point.step, Point.value, Point.timestamp, Point.is_nan)
    tables = [pd.DataFrame([], columns=[*HISTORY, "is_nan"])]
    with session_maker() as session:
        for some in _chunks(run_ids, RUNS_PER_QUERY):
            query = select(*columns).where(Point.run_uuid.in_(some))
            if metrics is not None:
                query = query.where(Point.key.in_(metrics))
            rows = list(_tuples(session, query))
            tables += [pd.DataFrame(rows, columns=tables[0].columns)] if rows else []
    table = pd.concat(tables[1:] or tables, ignore_index=True)
    return table.assign(value=table["value"].mask(table["is_nan"].astype(bool))).drop(columns="is_nan")


def _from_server(store: Store, run_ids: list[str], metrics: Sequence[str] | None) -> list[tuple[Any, ...]]:
    asked = [
        (having, metric)
        for some in _chunks(run_ids, RUNS_PER_REQUEST)
        for metric, having in _recorded(store, some, metrics).items()
    ]
    with ThreadPoolExecutor(SERVER_PROCESSES) as pool:
        return [row for curves in pool.map(lambda what: _curves(store, *what), asked) for row in curves]


def _recorded(store: Store, run_ids: list[str], metrics: Sequence[str] | None) -> dict[str, list[str]]:
    """Which of these runs have which metric."""
    if metrics is not None:
        return dict.fromkeys(metrics, run_ids)
    having: dict[str, list[str]] = {}
    for run in _found(store, run_ids):
        for metric in run.data.metrics:
            having.setdefault(metric, []).append(run.info.run_id)
    return having


def _curves(store: Store, run_ids: list[str], metric: str) -> list[tuple[Any, ...]]:
    """One metric of up to 100 runs. A cut answer is complete for all its runs but the last; ask on from there."""
    rows: list[tuple[Any, ...]] = []
    missing = set(run_ids)
    while missing:
        query = {"run_id": sorted(missing), "metric_key": metric, "max_results": POINTS_PER_ANSWER}
        points = _ask(store, BULK_ENDPOINT, "GET", params=query)["metrics"]
        complete = set(missing)
        if len(points) >= POINTS_PER_ANSWER:
            last = points[-1]["run_id"]
            complete = {point["run_id"] for point in points} - {last}
            if not complete:  # this one run alone fills an answer
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
    """Quote a value for MLflow's filters, which know no escapes."""
    if "'" not in text:
        return f"'{text}'"
    if '"' not in text:
        return f'"{text}"'
    raise ValueError(f"MLflow cannot search for a text with both kinds of quotes: {text!r}")
