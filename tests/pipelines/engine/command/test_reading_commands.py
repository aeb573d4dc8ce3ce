"""Commands that read leave what they read as it is: a store, an empty file, another program's database."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hostile import Commands, check_line

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.trial.record import open_run
from featurelab.tracking.store.connect import attach

NAME = "neural_feature_ansatz/init_scale"
READING = [
    ["compare", "0123", "4567"],
    ["judge", "0123"],
    ["rerun", "0123"],
    ["sweep", NAME, "--resume", "night"],
    ["report"],
]


@pytest.fixture
def commands(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for name in ("MLFLOW_TRACKING_URI", "FEATURELAB_OUTBOX"):
        monkeypatch.delenv(name, raising=False)
    return Commands(home)


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE experiments (experiment_id INTEGER, name TEXT)")
        database.execute("INSERT INTO experiments VALUES (1, 'mine')")
        database.commit()


@pytest.mark.parametrize("arguments", READING, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize("make", [foreign, Path.touch], ids=["foreign", "empty"])
def test_what_is_no_store_is_refused_and_left_as_it_is(commands, make, arguments):
    path = commands.home / "mlflow.db"
    make(path)
    before = path.read_bytes()
    answer = commands(*arguments)
    assert (answer.code, answer.out) == (2, "")
    check_line(answer.err)
    assert path.read_bytes() == before
    assert [found.name for found in commands.home.iterdir()] == ["mlflow.db"]


def content(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def test_comparing_reporting_and_being_refused_change_nothing_in_a_store(commands, template):
    path = commands.home / "mlflow.db"
    shutil.copy(template, path)
    store = attach(f"sqlite:///{path}")
    experiment = registry.find(NAME)
    plan = Plan.of(
        experiment, experiment.configs("laptop")[:2], experiment.varied("laptop"), "laptop", kind="reproduce"
    )
    sweep = open_sweep(plan, "night", store)
    tags = {"sweep": "night", "sweep_run_id": sweep, "trial": "0", "status": "finished"}
    options = {"scale": "laptop", "name": "", "axes": plan.axes}
    runs = [open_run(experiment, plan.config(index), store, tags=tags, **options) for index in range(2)]
    store.client.set_experiment_tag(store.experiment_id(NAME), "mlflow.experimentKind", "mine")
    before = content(path)
    assert commands("compare", *runs).code == 0
    assert commands("compare", runs[0][:12], runs[1][:12], "--json").code == 0
    for arguments in (["report"], ["judge", runs[0]], ["judge", "zz"], ["compare", runs[0], "zz"], ["rerun", "zz"]):
        assert commands(*arguments).code == 2, arguments
    assert content(path) == before


def test_a_copied_store_is_noticed(commands, template, tmp_path):
    shutil.copy(template, commands.home / "mlflow.db")
    store = attach(f"sqlite:///{commands.home / 'mlflow.db'}")
    runs = [store.start_run(NAME, str(number)) for number in range(2)]
    answer = commands("compare", *runs)
    told = [line for line in answer.err.splitlines() if "is a copy" in line]
    assert len(told) <= 1, "the template itself was copied here"
    with closing(sqlite3.connect(commands.home / "mlflow.db")) as database:
        database.execute("UPDATE experiments SET artifact_location = '/gone/mlruns/' || name WHERE experiment_id > 0")
        database.commit()
    answer = commands("compare", *runs)
    assert answer.code == 0
    assert "is a copy: artifacts of its experiments are read and written in /gone/mlruns" in answer.err
