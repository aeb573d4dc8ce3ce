from __future__ import annotations

import math
import random

import pandas as pd
import pytest
import requests
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from featurelab.tracking.errors import RunNotFound, StoreError
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import attach


@pytest.fixture(scope="module")
def both(server):
    """Return two stores of the same runs: the database, and the server over it."""
    database = attach(f"sqlite:///{server.home / 'mlflow.db'}")
    order = random.Random(0)
    for number in range(12):
        experiment = f"query/{'ab'[number % 2]}"
        tags = {"sweep": "it's" if number < 6 else 'a "b"', "seed": number}
        run_id = database.start_run(experiment, f"seed={number}", tags=tags, params={"lr": number / 10})
        steps = list(range(5 + number))
        order.shuffle(steps)
        for name in ("loss/train", "nfa/0", "best.loss.train", "final/loss/train")[: 2 + 2 * (number % 3)]:
            database.log_metrics(run_id, [Metric(name, math.sin(s + number), 1000 + s, s) for s in steps])
        if number == 3:
            strange = [Metric("nfa/0", math.nan, 2000, 99), Metric("only", 0.0, 1, -4), Metric("wide", math.inf, 1, 0)]
            database.log_metrics(run_id, strange, tags={"empty": ""}, params={"none": ""})
        if number != 4:
            database.end_run(run_id, "FINISHED" if number != 5 else "FAILED")
    return database, attach(server.uri)


def _ids(store):
    return query.runs(store, ["query/a", "query/b"])["run_id"].tolist()


def test_runs_are_the_same_from_database_and_server(both):
    tables = [query.runs(store, ["query/a", "query/b"]) for store in both]
    pd.testing.assert_frame_equal(*tables)
    table = tables[0]
    assert table["name"].tolist() == [f"seed={number}" for number in range(12)]
    assert table["tags.seed"].tolist() == [str(number) for number in range(12)]
    assert table["params.lr"].tolist() == [str(number / 10) for number in range(12)]
    assert table["metrics.loss/train"].tolist() == [math.sin(4 + 2 * number) for number in range(12)]
    assert table["end"].isna().tolist() == [number == 4 for number in range(12)]
    assert not [column for column in table if column.startswith("tags.mlflow.")]


@pytest.mark.parametrize("side", [0, 1])
def test_runs_are_chosen_by_experiment_tag_and_status(both, side):
    store = both[side]
    assert len(query.runs(store, "query/a")) == 6
    assert set(query.runs(store, "query/a")["experiment"]) == {"query/a"}
    assert len(query.runs(store, ["query/a", "query/b"], tags={"sweep": "it's"})) == 6
    assert query.runs(store, "query/b", tags={"sweep": 'a "b"', "seed": 7})["name"].tolist() == ["seed=7"]
    assert query.runs(store, "query/b", status="FAILED")["name"].tolist() == ["seed=5"]
    assert set(query.runs(store)["run_id"]) >= set(_ids(store))
    for nothing in (query.runs(store, "query/none"), query.runs(store, "query/a", status="KILLED")):
        assert nothing.empty
        assert list(nothing.columns) == query.COLUMNS
    with pytest.raises(ValueError, match="both kinds of quotes"):
        query.runs(store, tags={"sweep": "'\""})


def test_runs_beyond_one_page_are_all_read(both, monkeypatch):
    requested = []
    send = query.http_request_safe
    monkeypatch.setattr(
        query, "http_request_safe", lambda *args, **kwargs: requested.append(1) or send(*args, **kwargs)
    )
    at_once = query.runs(both[1], ["query/a", "query/b"], status="FINISHED")
    assert len(requested) == 1
    monkeypatch.setattr(query, "RUNS_PER_PAGE", 1)
    pd.testing.assert_frame_equal(query.runs(both[1], ["query/a", "query/b"], status="FINISHED"), at_once)
    assert len(requested) > 10


@pytest.mark.parametrize("metrics", [None, ["loss/train"], ["nfa/0", "only"], ["absent"], []])
@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("points_per_answer", [25_000, 20, 7])
def test_histories_from_database_and_server_are_what_was_recorded(
    both, metrics, derived, points_per_answer, monkeypatch
):
    monkeypatch.setattr(query, "POINTS_PER_ANSWER", points_per_answer)  # answers that are cut
    monkeypatch.setattr(query, "RUNS_PER_REQUEST", 5)
    monkeypatch.setattr(query, "RUNS_PER_QUERY", 5)
    database, server = both
    ids = _ids(database)
    read = query.histories(database, [*ids, ids[0], "0" * 32], metrics, derived=derived)
    pd.testing.assert_frame_equal(read, query.histories(server, [*ids, ids[0], "0" * 32], metrics, derived=derived))
    expected = set()
    for run_id in ids:
        for name in database.get_run(run_id).data.metrics:
            selected = name in metrics if metrics is not None else derived or not name.startswith(("final/", "best."))
            for m in database.client.get_metric_history(run_id, name) if selected else ():
                expected.add((run_id, name, m.step, repr(m.value), m.timestamp))
    points = [(r.run_id, r.metric, r.step, repr(float(r.value)), r.timestamp) for r in read.itertuples()]
    assert set(points) == expected
    assert len(points) == len(expected)
    assert list(read.columns) == query.HISTORY
    assert points == sorted(points, key=lambda row: (row[0], row[1], row[2], row[4]))


@pytest.mark.parametrize("side", [0, 1])
def test_runs_are_found_by_their_ids_in_the_order_asked_for(both, side, monkeypatch):
    monkeypatch.setattr(query, "RUNS_PER_REQUEST", 5)
    ids = _ids(both[0])[::-1]
    runs = query.named(both[side], [*ids, ids[3]])
    assert [run.info.run_id for run in runs] == [*ids, ids[3]]
    assert runs[0].data.metrics == both[side].get_run(ids[0]).data.metrics
    for unknown in ("0" * 32, "it's", ""):
        with pytest.raises(RunNotFound):
            query.named(both[side], [ids[0], unknown])


def test_histories_take_few_requests(both, monkeypatch):
    ids, requested = _ids(both[1]), []
    send = query.http_request_safe
    monkeypatch.setattr(
        query, "http_request_safe", lambda *args, **kwargs: requested.append(1) or send(*args, **kwargs)
    )
    query.histories(both[1], ids, ["loss/train", "nfa/0"])
    assert len(requested) == 2


def test_a_request_to_a_busy_server_is_repeated(both, monkeypatch):
    send, refused = query.http_request_safe, set()

    def busy(credentials, endpoint, *args, **kwargs):
        if endpoint not in refused:
            refused.add(endpoint)
            raise MlflowException("busy") from requests.exceptions.RetryError("too many 500 error responses")
        return send(credentials, endpoint, *args, **kwargs)

    monkeypatch.setattr(query, "http_request_safe", busy)
    assert len(query.runs(both[1], "query/a")) == 6
    assert len(query.histories(both[1], _ids(both[1]), ["only"])) == 1
    assert refused == {query.SEARCH_ENDPOINT, query.BULK_ENDPOINT}


def test_no_runs_give_an_empty_table_with_the_right_types(both):
    for store in both:
        table = query.histories(store, [])
        assert table.empty
        assert table.dtypes["value"] == "float64"


@pytest.mark.parametrize("kind", [0, 1], ids=["database", "server"])
def test_a_run_is_found_by_a_unique_prefix_of_its_id(both, kind):
    store = both[kind]
    ids = sorted(run.run_id for run in query.runs(store, ["query/a", "query/b"]).itertuples())
    for run_id in ids:
        assert query.whole_id(store, run_id) == run_id
        unique = next(n for n in range(1, 33) if sum(other.startswith(run_id[:n]) for other in ids) == 1)
        assert query.whole_id(store, run_id[: max(unique, 8)]) == run_id
    for unknown in ("zzzz", "_" * 8, "%", "", "0" * 32, "x" * 500, ids[0][:4] + "_" + ids[0][5:8]):
        with pytest.raises(RunNotFound):
            query.whole_id(store, unknown)


def test_an_ambiguous_prefix_is_refused_with_the_matching_ids(store):
    runs = [store.start_run("system/figure", str(number)) for number in range(40)]
    letter = next(run_id[0] for run_id in runs if sum(other[0] == run_id[0] for other in runs) > 1)
    with pytest.raises(StoreError, match=f"several runs begin with {letter}: {letter}") as caught:
        query.whole_id(store, letter)
    assert len(str(caught.value)) < 200
