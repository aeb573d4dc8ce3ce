"""`featurelab export` prints what the store has of a sweep or an experiment, for other programs."""

import csv
import io
import json
import shutil

import pytest
from hostile import Commands, check_line

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.records import log_values
from featurelab.pipelines.engine.trial.record import open_run
from featurelab.tracking.store.connect import attach

NAME = "neural_feature_ansatz/init_scale"


@pytest.fixture
def commands(tmp_path, monkeypatch, template):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for name in ("MLFLOW_TRACKING_URI", "FEATURELAB_OUTBOX"):
        monkeypatch.delenv(name, raising=False)
    shutil.copy(template, home / "mlflow.db")
    return Commands(home)


@pytest.fixture
def sweep(commands):
    """A stored sweep of two trials, whose second one failed before it measured anything, and a run without a sweep."""
    store, experiment = attach(f"sqlite:///{commands.home / 'mlflow.db'}"), registry.find(NAME)
    plan = Plan.of(experiment, experiment.configs("laptop")[:2], experiment.varied("laptop"), "laptop")
    sweep = open_sweep(plan, "night", store)
    place = {"sweep": "night", "sweep_run_id": sweep}
    places = [place | {"trial": "0", "status": "finished"}, place | {"trial": "1", "status": "failed"}]
    options = {"scale": "laptop", "name": "", "axes": plan.axes}
    runs = [open_run(experiment, plan.config(index), store, tags=tags, **options) for index, tags in enumerate(places)]
    runs.append(open_run(experiment, plan.config(0), store, tags={"status": "finished"}, **options))
    log_values(store, runs[0], {"loss/test": 0.25})
    return sweep, runs, plan


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_sweep_is_exported_by_its_name_and_by_its_id_in_the_order_of_its_plan(commands, sweep):
    sweep_run_id, runs, plan = sweep
    answer = commands("export", "night")
    assert answer.code == 0
    rows = table(answer.out)
    assert [(row["run_id"], row["status"]) for row in rows] == [(runs[0], "finished"), (runs[1], "failed")]
    assert [row["metrics.loss/test"] for row in rows] == ["0.25", ""]
    assert [float(row["params.lr"]) for row in rows] == [config["lr"] for config in plan.configs]
    assert commands("export", sweep_run_id[:12], "--csv").out == answer.out


def test_json_has_the_settings_and_metrics_with_their_types(commands, sweep):
    _, runs, plan = sweep
    first, second = json.loads(commands("export", "night", "--json").out)
    assert (first["run_id"], first["sweep"], first["params"]) == (runs[0], "night", plan.configs[0])
    assert (first["metrics"], second["metrics"]) == ({"loss/test": 0.25}, {})


def test_an_experiment_is_exported_with_runs_that_are_in_no_sweep(commands, sweep):
    rows = table(commands("export", NAME).out)
    assert {row["run_id"]: row["sweep"] for row in rows} == dict(zip(sweep[1], ["night", "night", ""], strict=True))


@pytest.mark.parametrize("name", ["nigth", "neural_feature_ansatz/init_scal", "0123abcd"])
def test_an_unknown_name_gives_one_line(commands, sweep, name):
    answer = commands("export", name)
    assert (answer.code, answer.out) == (2, "")
    check_line(answer.err)


def test_the_line_on_a_misspelt_sweep_names_the_nearest_one(commands, sweep):
    assert "did you mean night?" in commands("export", "nigth").err


def test_two_formats_at_once_are_refused(commands, sweep):
    assert commands("export", "night", "--csv", "--json").code == 2
