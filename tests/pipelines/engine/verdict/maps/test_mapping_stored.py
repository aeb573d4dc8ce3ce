"""Maps and figures at other settings, from the trials that a store holds of them."""

import pytest

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.axes import parse_axes
from featurelab.pipelines.engine.experiment.bounds import above
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.face.maps import Map
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.trial.run import run_trial
from featurelab.pipelines.engine.verdict import findings
from featurelab.pipelines.engine.verdict.judge import judge
from featurelab.pipelines.engine.verdict.maps.entries import map_entries
from featurelab.pipelines.engine.verdict.maps.mapping import judge_map, plan_map
from featurelab.pipelines.engine.verdict.report import report_entries
from featurelab.tracking.report.page import render
from featurelab.tracking.store.connect import connect


class Line(Config):
    slope: float = 1.0
    lr: float = 0.1


@pytest.fixture
def figure(monkeypatch):
    details = {"figures": ("Fig. 1",), "title": "lines", "laptop": Line(), "paper": Line(), "minutes": 1}
    made = Experiment(name="madeup/stored_map", grid={"seed": [0, 1, 2]}, **details)
    made.trial(lambda config, recorder: recorder.log({"loss/test": config.slope + 1e-3 * config.seed}, step=0))
    made.claim("positive", says="the slope is positive", expect=above(0), kind="identity")(
        lambda runs: runs.final("loss/test")
    )
    monkeypatch.setattr(registry, "systems", lambda: ["madeup"])
    monkeypatch.setattr(registry, "_load", lambda systems: ([made], {}))
    return made


def ran(plan, name, store, outbox):
    sweep = open_sweep(plan, name, store)
    for index in range(len(plan.configs)):
        tags = {"sweep": name, "sweep_run_id": sweep} | plan.marks
        place = {"index": index, "workers": 1, "gpus": 0}
        details = {"axes": plan.axes, "tags": tags, "place": place, "name": plan.label(index)}
        run_trial(plan.declared, plan.config(index), store, scale="laptop", outbox=outbox, **details)
    return sweep


def test_a_map_and_a_figure_at_other_settings_are_judged_apart_from_the_figure(figure, tmp_path):
    store = connect(f"sqlite:///{tmp_path / 'mlflow.db'}")
    plan = plan_map(figure, parse_axes(["slope=-1,2", "lr=0.1,0.2"], Line), "laptop")
    sweep = ran(plan, "mine", store, tmp_path / "outbox")
    judged = judge_map(sweep, store)
    shown = Map(judged)
    assert list(shown.cells()[["slope", "lr", "status"]].itertuples(index=False, name=None)) == [
        (cell.config["slope"], cell.config["lr"], cell.verdicts[0].status) for cell in judged.cells
    ]
    assert "2 fails" in repr(shown)
    assert "the slope is positive" in shown.figure("positive").figure.get_suptitle()
    assert "data:image/png" in shown._repr_html_()
    with pytest.raises(RequestError, match="positive"):
        shown.figure("positiv")
    mapped = judged.as_dict()
    assert mapped["figures"] == ["map_positive.png"]
    found = {tuple(cell["config"].values()): cell["claims"][0] for cell in mapped["cells"]}
    assert {place: claim["status"] for place, claim in found.items()} == {
        (-1.0, 0.1): "fails",
        (-1.0, 0.2): "fails",
        (2.0, 0.1): "holds",
        (2.0, 0.2): "holds",
    }
    assert found[2.0, 0.1]["measured"] == pytest.approx(2.001)
    assert store.get_run(sweep).data.tags["verdict"] == "2 holds, 2 fails"

    configs = figure.configs("laptop", {"slope": -1.0})
    details = {"kind": "at_settings", "settings": {"slope": -1.0}}
    at = ran(Plan.of(figure, configs, ["slope", "seed"], "laptop", **details), "at", store, tmp_path / "outbox")
    judged = judge(at, store)
    assert [(verdict.status, verdict.documented) for verdict in judged.verdicts] == [("fails", None)]
    assert judged.as_documented
    assert store.get_run(at).data.tags["settings"] == "slope=-1"

    assert list(report_entries(store)) == []
    assert findings.compare([figure], store) == []
    (entry,) = map_entries(store)
    page = render([], tmp_path / "report", [entry]).read_text()
    assert page.count("data:image/png;base64") == 1
    assert "2 holds, 2 fails" in page


def test_a_figure_on_fresh_seeds_is_judged_and_drawn_by_these_and_apart_from_the_figure(figure, tmp_path):
    drawn = []
    figure.draw()(lambda runs, axes: drawn.extend(runs.trials.seed))
    store = connect(f"sqlite:///{tmp_path / 'mlflow.db'}")
    configs = figure.configs("laptop", {"seed": 100})
    details = {"kind": "at_settings", "settings": {"seed": 100}}
    sweep = ran(Plan.of(figure, configs, ["seed"], "laptop", **details), "fresh", store, tmp_path / "outbox")
    judged = judge(sweep, store)
    assert [(verdict.status, verdict.documented) for verdict in judged.verdicts] == [("holds", "holds")]
    assert judged.verdicts[0].measured == pytest.approx(1.1, abs=0.002)
    assert drawn == [100, 101, 102]
    assert store.get_run(sweep).data.tags["settings"] == "seed=100"
    assert findings.compare([figure], store) == []
