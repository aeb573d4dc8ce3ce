"""What the report is told of a store: the newest sweep of each figure, its links, and earlier verdicts."""

import json
from dataclasses import replace
from datetime import datetime

import pytest
from madeup import results

from featurelab.pipelines.engine.experiment.bounds import above
from featurelab.pipelines.engine.experiment.catalogue import papers, registry
from featurelab.pipelines.engine.experiment.claims import Verdict
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.known import Known
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.records import TRIALS_OF
from featurelab.pipelines.engine.verdict import report
from featurelab.tracking.errors import StoreError
from featurelab.tracking.store.connect import connect


class Line(Config):
    slope: float = 1.0


def made(name="madeup/lines"):
    details = {"figures": ("Fig. 1",), "title": "lines", "laptop": Line(), "paper": Line(), "minutes": 1}
    figure = Experiment(name=name, grid={"seed": [0, 1]}, **details)
    figure.trial(lambda config, recorder: None)
    figure.claim("rises", says="lines rise", expect=above(0))(lambda runs: 1.0)
    return figure


@pytest.fixture
def figure(monkeypatch, request):
    """A figure of this test alone, in the store of all."""
    made_up = made(f"madeup/{request.node.name}")
    monkeypatch.setattr(registry, "systems", lambda: ["madeup"])
    monkeypatch.setattr(registry, "_load", lambda systems: ([made_up], {}))
    return made_up


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return connect(f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}")


def judged(store, figure, name, status):
    """A sweep whose verdict is this one, whatever its trials; its id."""
    plan = Plan.of(figure, figure.configs("laptop"), ["seed"], "laptop", kind="reproduce", metric="loss/test")
    sweep = open_sweep(plan, name, store)
    facts = {"statement": "lines rise", "origin": "paper", "documented": "holds", "reason": "", "seeds": 2}
    values = dict.fromkeys(["measured", "ci", "expected", "paper"], None)
    verdict = Verdict(id="rises", status=status, where="", **facts, **values)
    store.log_json(sweep, [verdict.model_dump()], "verdicts.json")
    store.set_tags(sweep, {"verdict": f"1 {status}"})
    return sweep


def test_the_newest_sweep_is_shown_with_what_came_of_its_claims_in_the_eight_before(store, figure):
    statuses = ["holds", "fails", "undecided", "untested"] * 3
    sweeps = [judged(store, figure, f"number-{index}", status) for index, status in enumerate(statuses)]
    (entry,) = report.report_entries(store)
    (claim,) = entry["claims"]
    assert (entry["sweep_run_id"], claim["status"]) == (sweeps[-1], "untested")
    past = list(zip(statuses, sweeps, strict=True))[-2:-10:-1]
    assert [(one["status"], one["sweep_run_id"]) for one in claim["history"]] == past
    assert all(datetime.strptime(one["date"], "%Y-%m-%d %H:%M") for one in claim["history"])
    assert claim["named_controls"] == []


def test_an_earlier_sweep_that_cannot_be_read_is_left_out_of_the_history(store, figure, monkeypatch):
    sweeps = [judged(store, figure, f"number-{index}", "holds") for index in range(4)]
    store.log_json(sweeps[0], {"not": "verdicts"}, "verdicts.json")
    store.log_json(sweeps[2], [{"id": "rises"}], "verdicts.json")
    (entry,) = report.report_entries(store)
    assert [one["sweep_run_id"] for one in entry["claims"][0]["history"]] == [sweeps[1]]
    read = store.read_json

    def gone(run_id, path):
        if run_id == sweeps[1]:
            raise StoreError("it is gone")
        return read(run_id, path)

    monkeypatch.setattr(type(store), "read_json", lambda self, run_id, path: gone(run_id, path))
    (entry,) = report.report_entries(store)
    assert entry["claims"][0]["history"] == []


def test_links_lead_to_the_address_that_is_given_and_there_are_none_without(store, figure):
    sweep = judged(store, figure, "mine", "holds")
    store.experiment_id(figure.name)
    (entry,) = report.report_entries(store)
    assert not {"url", "charts_url"} & set(entry)
    (entry,) = report.report_entries(store, base="https://server")
    experiments = {name: store.find_experiment(name) for name in ("verdicts", figure.name)}
    assert entry["url"].startswith(f"https://server/#/experiments/{experiments['verdicts']}/runs/{sweep}?")
    assert entry["charts_url"].startswith(f"https://server/#/experiments/{experiments[figure.name]}/runs?")
    assert "mine" in entry["charts_url"]


def test_a_figure_that_reads_the_trials_of_another_links_to_their_charts(store, figure, monkeypatch):
    reader = figure.variant("reader", figures=("Fig. 2",), title="the same lines", reads=figure)
    monkeypatch.setattr(registry, "_load", lambda systems: ([figure, reader], {}))
    theirs = judged(store, figure, "theirs", "holds")
    mine = judged(store, reader, "mine", "holds")
    store.set_tags(mine, {TRIALS_OF: theirs})
    first, second = report.report_entries(store, base="https://server")
    assert (first["sweep_run_id"], second["sweep_run_id"]) == (theirs, mine)
    assert second["charts_url"] == first["charts_url"]
    assert mine in second["url"]


def test_a_report_names_the_paper_and_its_address():
    found = registry.find("neural_feature_ansatz/init_scale")
    assert papers.address(found) == "https://arxiv.org/abs/2402.05271"
    assert "arXiv:2402.05271" in papers.paper(found)
    nowhere = registry.find("alignment_elasticity/scores")
    assert papers.address(nowhere) == ""
    assert papers.paper(nowhere)


def test_a_verdict_says_why_its_claim_may_hold_where_it_should_not():
    claim = replace(made().claims[0], recorded=lambda: Known(unspecific="all lines do"))
    verdict = claim.judge(results([{"seed": 0}, {"seed": 1}, {"seed": 2}], lambda config: {}))
    assert verdict.unspecific == "all lines do"
    early = {key: value for key, value in json.loads(verdict.model_dump_json()).items() if key != "unspecific"}
    assert Verdict.model_validate(early).unspecific == ""
