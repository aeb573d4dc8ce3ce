"""`featurelab report` over a store where one figure is damaged, and what a report says of where MLflow's pages are."""

import base64
import json
import os
import shutil
from pathlib import Path

import pytest
from hostile import Commands, check_line

from featurelab.pipelines.engine.experiment.bounds import above
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.claims import Verdict
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.tracking.store.connect import attach

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Line(Config):
    slope: float = 1.0


def made(name):
    details = {"figures": ("Fig. 1",), "title": f"title of {name}", "laptop": Line(), "paper": Line(), "minutes": 1}
    figure = Experiment(name=f"madeup/{name}", grid={"seed": [0, 1]}, **details)
    figure.trial(lambda config, recorder: None)
    figure.claim("rises", says=f"{name} rises", expect=above(0))(lambda runs: 1.0)
    figure.draw(size=(1, 1))(lambda runs, axes: None)
    return figure


def judged(store, figure, home):
    """A judged sweep of a figure; the folder of its artifacts."""
    plan = Plan.of(figure, figure.configs("laptop"), ["seed"], "laptop", kind="reproduce", metric="loss/test")
    sweep = open_sweep(plan, figure.name.partition("/")[2], store)
    store.experiment_id(figure.name)
    (claim,) = figure.claims
    facts = {"statement": claim.says, "origin": "paper", "documented": "holds", "reason": "", "seeds": 2}
    values = dict.fromkeys(["measured", "ci", "expected", "paper"], None)
    verdict = Verdict(id="rises", status="holds", where="", **facts, **values)
    store.log_json(sweep, [verdict.model_dump()], "verdicts.json")
    (home / "figure.png").write_bytes(PNG)
    store.log_file(sweep, home / "figure.png")
    store.set_tags(sweep, {"verdict": "1 holds"})
    return Path(store.get_run(sweep).info.artifact_uri)


@pytest.fixture
def lab(tmp_path, monkeypatch, template):
    """The command line, and where the artifacts of two figures lie: `whole` and `other`."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for name in ("MLFLOW_TRACKING_URI", "FEATURELAB_OUTBOX"):
        monkeypatch.delenv(name, raising=False)
    figures = [made("whole"), made("other")]
    monkeypatch.setattr(registry, "systems", lambda: ["madeup"])
    monkeypatch.setattr(registry, "_load", lambda systems: (figures, {}))
    shutil.copy(template, home / "mlflow.db")
    store = attach(f"sqlite:///{home / 'mlflow.db'}")
    return Commands(home), *(judged(store, figure, tmp_path) for figure in figures)


def page_of(commands):
    return (commands.home / "page" / "index.html").read_text()


GARBLED = {
    "garbled": "[" * 4,
    "nested deep": "[" * 100_000,
    "of other types": json.dumps([{"id": "rises", "status": [[1]]}]),
    "no list": "7",
    "not text": "\udcff\udcfe",
    "empty": "",
}


@pytest.mark.parametrize("file", ["verdicts.json", "plan.json"])
@pytest.mark.parametrize("text", GARBLED.values(), ids=GARBLED)
def test_a_garbled_record_leaves_out_its_figure_and_no_other(lab, file, text):
    commands, _, damaged = lab
    (damaged / file).write_text(text, errors="surrogateescape")
    answer = commands("report", "--out", "page")
    assert answer.code == 1
    said = [line for line in answer.err.splitlines() if line.startswith("left out: madeup/other: ")]
    assert len(said) == 1, answer.err
    assert file in said[0]
    page = page_of(commands)
    assert "whole rises" in page
    assert "other rises" not in page
    assert f"Left out: {said[0].removeprefix('left out: madeup/other: ')}".replace("'", "&#39;") in page
    assert "title of other" in page


def fifo(path):
    os.mkfifo(path)


def secret_link(path):
    secret = path.parents[4] / "secret.png"
    secret.write_bytes(PNG + b"secret")
    path.symlink_to(secret)


PICTURES = {
    "missing": lambda path: None,
    "a link": secret_link,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": fifo,
    "a folder": Path.mkdir,
    "no picture": lambda path: path.write_text("<script>alert(1)</script>"),
}


@pytest.mark.parametrize("make", PICTURES.values(), ids=PICTURES)
def test_a_damaged_drawing_is_left_out_and_its_verdicts_stay(lab, make):
    commands, _, damaged = lab
    (damaged / "figure.png").unlink()
    make(damaged / "figure.png")
    answer = commands("report", "--out", "page")
    assert answer.code == 1
    said = [line for line in answer.err.splitlines() if line.startswith("without its drawing: madeup/other: ")]
    assert len(said) == 1, answer.err
    page = page_of(commands)
    assert "whole rises" in page
    assert "other rises" in page
    assert page.count("<img ") == 1
    assert "No drawing: " in page
    assert base64.b64encode(PNG + b"secret").decode() not in page


@pytest.mark.parametrize("make", [fifo, secret_link], ids=["a pipe", "a link"])
def test_verdicts_that_are_no_plain_file_are_not_read(lab, make):
    commands, _, damaged = lab
    (damaged / "verdicts.json").unlink()
    make(damaged / "verdicts.json")
    answer = commands("report", "--out", "page")
    assert answer.code == 1
    assert "left out: madeup/other: " in answer.err
    assert "whole rises" in page_of(commands)


def test_a_report_of_nothing_whole_is_refused_and_not_written(lab):
    commands, first, second = lab
    for damaged in (first, second):
        (damaged / "verdicts.json").unlink()
    answer = commands("report", "--out", "page")
    assert answer.code == 2
    check_line(answer.err)
    assert not (commands.home / "page").exists()


def test_a_report_links_to_mlflow_only_where_it_is_told_to(lab):
    commands, *_ = lab
    assert commands("report", "--out", "page").code == 0
    assert not any(word in page_of(commands) for word in ("127.0.0.1", "localhost", "http://", "In MLflow"))
    assert commands("report", "--out", "page", "--store-url", "https://ml.example.org/lab/").code == 0
    page = page_of(commands)
    assert page.count('href="https://ml.example.org/lab/#/experiments/') == 6  # two of each figure, and of its run id
    assert not any(word in page for word in ("127.0.0.1", "localhost"))


WRONG = ["ftp://x", "ml.example.org", "https://", "http://[::1", "http://x:y", "https://x/?a=b", "https://x/#/y"]
WRONG += ["javascript:alert(1)", "https://me:hunter2-hunter2@x/", "https://x y", 'https://x"onload=', "https://x\n/"]
WRONG += ["https://x:99999", "https://" + "x" * 5000, "https://é.org"]


def test_what_is_no_address_of_pages_is_refused(lab):
    commands, *_ = lab
    for url in WRONG:
        said = commands.refusal("report", "--out", "page", "--store-url", url)
        assert said is not None, url
        assert "--store-url" in said
