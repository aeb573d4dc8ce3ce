"""The Python interface: experiments, runs, loaded networks, verdicts and errors through `import featurelab` alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import featurelab as fl
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.trial.run import run_trial
from featurelab.pipelines.engine.verdict.judge import judge

NAME = "neural_feature_ansatz/init_scale"
SMALL: dict[str, Any] = {"n_train": 16, "n_test": 8, "dim": 6, "width": 8, "steps": 20, "measure_every": 10}
HEAVY = ("torch", "ray", "mlflow", "pandas", "pytorch_lightning", "matplotlib", "pydantic", "typer")


@pytest.fixture
def here(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The store of this test, as the one that the interface finds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    monkeypatch.delenv("FEATURELAB_OUTBOX", raising=False)
    return store


def test_importing_featurelab_imports_nothing_heavy() -> None:
    code = f"import sys, featurelab; print(*[m for m in {HEAVY} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_every_name_of_the_interface_is_there_with_a_docstring() -> None:
    for name in fl.__all__:
        assert getattr(fl, name).__doc__, name


def test_an_experiment_says_what_it_is() -> None:
    table = fl.experiments("neural_feature_ansatz")
    assert list(table.columns) == ["name", "figure", "title", "paper", "minutes", "claims"]
    assert NAME in set(table.name)
    shown = fl.experiment(NAME)
    assert set(SMALL) <= set(shown.settings.name)
    assert {claim.id for claim in registry.find(NAME).claims} == set(shown.claims.id)
    assert shown.source.name == "init_scale.py"
    assert NAME in repr(shown)
    assert "<table" in shown._repr_html_()


def test_a_run_is_read_back_and_its_network_has_the_weights_that_it_stored(here: Any) -> None:
    run = fl.experiment(NAME).run(seed=3, **SMALL)
    assert (run.status, run.settings["seed"], run.settings["width"]) == ("finished", 3, 8)
    curves = run.curves()
    assert curves["loss/test"].iloc[-1] == run.metrics["loss/test"]
    assert list(fl.history(run, ["loss/test"]).value) == list(curves["loss/test"].dropna())
    assert run.figure()._repr_png_().startswith(b"\x89PNG")
    assert run.run_id in run._repr_html_()

    net = run.load()
    stored = torch.load(here.download(run.run_id, "checkpoints/last.ckpt"), weights_only=True)["state_dict"]
    assert net.state_dict().keys() == stored.keys()
    assert all(torch.equal(value, stored[name]) for name, value in net.state_dict().items())
    assert net(torch.zeros(2, 6, dtype=torch.float64)).shape[0] == 2
    assert not net.training
    again = fl.load(run.run_id[:10], fit=1)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in net.state_dict().items())
    assert len(fl.runs()) == 1  # loading recorded nothing

    assert list(fl.runs(where="width < 9 and `loss/test` > 0").run_id) == [run.run_id]
    assert fl.runs(experiment=NAME, where="width > 8").empty
    with pytest.raises(fl.RequestError, match="has 1 fit"):
        run.load(fit=2)
    with pytest.raises(fl.RequestError, match="loss/test"):
        run.curves(["loss/tset"])
    with pytest.raises(fl.RequestError, match="where"):
        fl.runs(where="lr <")


def test_weights_that_are_not_those_stored_are_not_returned(here: Any, tmp_path: Path) -> None:
    run = fl.experiment(NAME).run(**SMALL)
    content = torch.load(here.download(run.run_id, "checkpoints/last.ckpt"), weights_only=True)
    first = next(iter(content["state_dict"].values()))
    first += 1
    torch.save(content, tmp_path / "last.ckpt")
    here.client.log_artifact(run.run_id, str(tmp_path / "last.ckpt"), "checkpoints")
    with pytest.raises(fl.RunError, match="bit for bit"):
        run.load()


def test_a_wrong_request_is_refused_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    shown = fl.experiment(NAME)
    with pytest.raises(fl.RequestError, match="width"):
        shown.run(wdith=3)
    with pytest.raises(fl.RequestError, match="lr"):
        shown.sweep(over={"lrr": [0.1]})
    with pytest.raises(fl.RequestError, match="lr"):
        shown.sweep(over={"lr": "0.1,0.2"}, lr=0.3)
    with pytest.raises(fl.RequestError, match="decide"):
        shown.reproduce(most_seeds=4)
    with pytest.raises(fl.RequestError, match="did you mean lr"):
        shown.reproduce(lrr=0.1)
    with pytest.raises(fl.RequestError, match="seed = -1"):
        shown.reproduce(seed=-1)
    with pytest.raises(fl.RequestError, match="init_scale"):
        fl.experiment("neural_feature_ansatz/init_scal")
    with pytest.raises(fl.StoreError):
        fl.runs()
    assert list(tmp_path.iterdir()) == []


def test_the_verdicts_are_those_of_the_newest_reproduction(here: Any, tmp_path: Path) -> None:
    assert fl.verdicts().empty
    experiment = registry.find(NAME)
    configs = [experiment.laptop.but(seed=seed, **SMALL) for seed in (0, 1)]
    sweep_run_id = open_sweep(Plan.of(experiment, configs, ["seed"], "laptop", kind="reproduce"), "few", here)
    for index, config in enumerate(configs):
        tags = {"sweep": "few", "sweep_run_id": sweep_run_id, "trial": str(index)}
        run_trial(experiment, config, here, scale="laptop", outbox=tmp_path / "outbox", tags=tags)
    judged = judge(sweep_run_id, here)
    table = fl.verdicts("neural_feature_ansatz")
    assert list(table.id) == [verdict.id for verdict in judged.verdicts]
    assert list(table.status) == [verdict.status for verdict in judged.verdicts]
    assert set(table.sweep_run_id) == {sweep_run_id}
    assert fl.verdicts("gemfilter").empty
    points = fl.history(fl.runs(), ["loss/test"])
    assert isinstance(points, pd.DataFrame)
    assert set(points.run_id) == {trial.run_id for trial in judged.trials}
    assert fl.report(tmp_path / "out").is_file()


def test_a_map_over_what_the_grid_sets_or_a_law_is_refused_before_anything_is_written(
    tmp_path: Path, here: Any
) -> None:
    experiment = fl.experiment(NAME)
    for over, word in (
        ({"init_scale": [1.0]}, "grid"),
        ({"lr": "loguniform(1e-3,1)"}, "listed"),
        ({"widht": [8]}, "width"),
    ):
        with pytest.raises(fl.RequestError, match=word):
            experiment.map(over=over)
        with pytest.raises(fl.RequestError, match=word):
            fl.map(NAME, over=over, name="a-map")
    assert fl.runs(experiment=NAME).empty
