from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import requests
from matplotlib.figure import Figure
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from store_workers import at_once, write_points

from featurelab.tracking.errors import RunNotFound, StoreError
from featurelab.tracking.store.answers import is_transient
from featurelab.tracking.store.connect import attach


@pytest.fixture(params=["sqlite", "server"])
def any_store(request):
    """Return a store of each kind, because they keep artifacts in different ways."""
    return (
        request.getfixturevalue("store") if request.param == "sqlite" else attach(request.getfixturevalue("server").uri)
    )


def test_an_experiment_is_created_once_tagged_and_restored(store):
    first = store.experiment_id("system/figure")
    assert store.experiment_id("system/figure") == first
    assert store.client.get_experiment(first).tags["mlflow.experimentKind"] == "custom_model_development"
    store.client.delete_experiment(first)
    assert store.experiment_id("system/figure") == first
    assert store.client.get_experiment(first).lifecycle_stage == "active"


def test_a_run_is_started_in_an_experiment_that_was_deleted_since_the_last_one(store):
    first = store.start_run("system/figure", "first")
    experiment_id = store.get_run(first).info.experiment_id
    store.client.delete_experiment(experiment_id)
    second = store.start_run("system/figure", "second")
    assert store.get_run(second).info.experiment_id == experiment_id
    assert store.client.get_experiment(experiment_id).lifecycle_stage == "active"


def test_an_experiment_created_elsewhere_gets_the_tag(store):
    made = store.client.create_experiment("system/figure")
    assert store.experiment_id("system/figure") == made
    assert store.client.get_experiment(made).tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_run_carries_its_name_tags_and_any_number_of_params(store):
    params = {f"p{i}": i for i in range(150)}
    run_id = store.start_run("system/figure", "lr=0.1", tags={"system": "system", "seed": 3}, params=params)
    run = store.get_run(run_id)
    assert run.info.run_name == "lr=0.1"
    assert run.data.tags["seed"] == "3"
    assert run.data.params == {key: str(value) for key, value in params.items()}
    store.set_tags(run_id, {"seed": 4})
    store.end_run(run_id, "FAILED", 2_000_000_000_000)
    ended = store.get_run(run_id)
    assert (ended.info.status, ended.info.end_time, ended.data.tags["seed"]) == ("FAILED", 2_000_000_000_000, "4")


@pytest.mark.parametrize("run_id", ["0" * 32, "nope", "not a run id", "../../etc", "", "a" * 999])
def test_an_unknown_or_impossible_run_id_is_not_found_in_one_line(any_store, run_id):
    with pytest.raises(RunNotFound) as caught:
        any_store.get_run(run_id)
    assert "\n" not in str(caught.value)


def test_a_lost_answer_does_not_create_a_second_run(store, monkeypatch):
    create, calls = store.client.create_run, []

    def create_but_lose_the_answer(*args, **kwargs):
        calls.append(create(*args, **kwargs))
        raise requests.ConnectionError("connection reset")

    monkeypatch.setattr(store.client, "create_run", create_but_lose_the_answer)
    run_id = store.start_run("system/figure", "only")
    assert [run.info.run_id for run in calls] == [run_id]


def test_transient_failures_are_repeated_and_others_are_not(store):
    failures = [requests.Timeout("slow"), MlflowException("(sqlite3.OperationalError) database is locked")]

    def busy() -> str:
        if failures:
            raise failures.pop()
        return "done"

    calls = []

    def wrong() -> None:
        calls.append(1)
        raise MlflowException("bad", INVALID_PARAMETER_VALUE)

    assert store.patiently(busy) == "done"
    with pytest.raises(MlflowException, match="bad"):
        store.patiently(wrong)
    assert len(calls) == 1


def test_a_store_that_stays_away_raises_store_error_once_patience_ends():
    away = replace(attach("http://127.0.0.1:9"), patience=0.5)
    with pytest.raises(StoreError, match="cannot be reached: connection refused"):
        away.set_tags("0" * 32, {"a": "b"})


def test_a_full_disk_is_not_waited_for():
    full = MlflowException("(sqlite3.OperationalError) database or disk is full", error_code=8)
    assert not is_transient(full)


def test_an_experiment_tag_set_by_two_processes_at_once_is_set_again(store):
    experiment = store.client.create_experiment("at once")
    tags, again = [], store.client.set_experiment_tag

    def raced(*args):
        tags.append(args)
        if len(tags) == 1:
            again(*args)
            raise MlflowException(
                "(sqlite3.IntegrityError) UNIQUE constraint failed: experiment_tags.key", error_code=1
            )
        again(*args)

    store.patiently(raced, experiment, "mlflow.note.content", "what it shows")
    assert len(tags) == 2
    assert store.client.get_experiment(experiment).tags["mlflow.note.content"] == "what it shows"


def test_artifacts_are_read_back_as_they_were_stored(any_store, tmp_path):
    run_id = any_store.start_run("system/artifacts", "artifacts")
    data = {"a": [1, 2.5, None], "array": np.arange(3), "nan": math.nan, "text": "<ß>"}
    any_store.log_json(run_id, data, "deep/er/data.json")
    read = any_store.read_json(run_id, "deep/er/data.json")
    assert math.isnan(read.pop("nan"))
    assert read == {"a": [1, 2.5, None], "array": [0, 1, 2], "text": "<ß>"}

    any_store.log_text(run_id, "hello", "notes.txt")
    assert any_store.download(run_id, "notes.txt").read_text() == "hello"

    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "leaf").write_bytes(b"\0\1")
    any_store.log_file(run_id, tmp_path / "tree", "kept")
    any_store.log_file(run_id, tmp_path / "tree" / "inner" / "leaf")
    assert any_store.download(run_id, "kept/tree/inner/leaf").read_bytes() == b"\0\1"
    assert any_store.download(run_id, "leaf").read_bytes() == b"\0\1"

    table = pd.DataFrame({"x": [0.1, 1 / 3, 1e-300], "name": ["a", "b,c", '"']})
    for path, read_table in (("t/x.csv", pd.read_csv), ("t/x.parquet", pd.read_parquet)):
        any_store.log_table(run_id, table, path)
        pd.testing.assert_frame_equal(read_table(any_store.download(run_id, path)), table, check_exact=True)

    figure = Figure()
    figure.subplots().plot([0, 1])
    any_store.log_figure(run_id, figure, "figures/panel")
    assert any_store.download(run_id, "figures/panel.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in any_store.download(run_id, "figures/panel.svg").read_text()


def test_an_mlflow_table_is_read_by_mlflow_and_replaced_when_logged_again(any_store, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", any_store.uri)  # the only way to tell MLflow's reader
    run_id = any_store.start_run("system/tables", "table")
    for value in (1.5, 2.5):
        any_store.log_mlflow_table(run_id, pd.DataFrame({"claim": ["a", "b"], "value": [value, 0.0]}), "verdicts.json")
    read = any_store.client.load_table(any_store.experiment_id("system/tables"), "verdicts.json", [run_id])
    assert read.to_dict("list") == {"claim": ["a", "b"], "value": [2.5, 0.0]}


def test_impossible_artifacts_are_refused(store, tmp_path):
    run_id = store.start_run("system/figure", "run")
    with pytest.raises(StoreError, match=r"no artifact 'absent\.json'"):
        store.read_json(run_id, "absent.json")
    store.log_text(run_id, "{", "broken.json")
    with pytest.raises(StoreError, match="is not JSON"):
        store.read_json(run_id, "broken.json")
    for path in ("../out.json", "/etc/out.json", ""):
        with pytest.raises(ValueError, match="inside the run"):
            store.log_json(run_id, {}, path)
    with pytest.raises(ValueError, match="stored as"):
        store.log_table(run_id, pd.DataFrame(), "table.xlsx")
    with pytest.raises(FileNotFoundError):
        store.log_file(run_id, tmp_path / "absent")
    with pytest.raises(TypeError, match="cannot write object as JSON"):
        store.log_json(run_id, object(), "object.json")


def test_artifacts_lie_beside_the_database_wherever_the_process_runs(store, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run_id = store.start_run("system/../figure", "run")
    store.log_text(run_id, "x", "x.txt")
    assert (tmp_path / "store" / "mlruns" / "system" / "_" / "figure" / run_id / "artifacts" / "x.txt").is_file()
    assert list(elsewhere.iterdir()) == []


def test_the_dataset_of_a_run_is_named_with_digest_and_profile(any_store):
    run_id = any_store.start_run("system/data", "data")
    any_store.log_dataset(run_id, "chain", "abc123", {"n": np.int64(7)}, context="test")
    (dataset_input,) = any_store.get_run(run_id).inputs.dataset_inputs
    assert (dataset_input.dataset.name, dataset_input.dataset.digest, json.loads(dataset_input.dataset.profile)) == (
        "chain",
        "abc123",
        {"n": 7},
    )
    assert [(tag.key, tag.value) for tag in dataset_input.tags] == [("mlflow.data.context", "test")]


def test_eight_processes_write_to_one_store_and_lose_nothing(store, tmp_path):
    run_ids = at_once(8, write_points, store.uri)
    with sqlite3.connect(tmp_path / "store" / "mlflow.db") as database:
        rows = database.execute("SELECT run_uuid, key, step, value FROM metrics").fetchall()
        names = dict(database.execute("SELECT run_uuid, name FROM runs WHERE status = 'FINISHED'").fetchall())
    assert set(run_ids) == set(names)
    written = {(names[run], key, step, value) for run, key, step, value in rows}
    expected = {(f"writer {n}", f"m{i}", step, n + i / 7) for n in range(8) for i in range(20) for step in range(10)}
    assert len(rows) == len(expected)
    assert written == expected
