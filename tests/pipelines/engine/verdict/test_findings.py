"""The record of what was found, against stored verdicts."""

from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from featurelab.pipelines.engine.experiment import known
from featurelab.pipelines.engine.experiment.bounds import above
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.claims import Decided, Verdict
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.known import Finding, Known
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.verdict import findings
from featurelab.tracking.store.connect import connect


class Line(Config):
    slope: float = 1.0


numbers = count()


@pytest.fixture
def figure(tmp_path, monkeypatch):
    """A figure of this test alone, with two claims whose record lies in a folder of this test."""
    made = Experiment(
        name=f"madeup_{next(numbers)}/lines",
        figures=("Fig. 1",),
        title="lines",
        laptop=Line(),
        paper=Line(),
        minutes=1,
        grid={"seed": [0, 1]},
    )
    for claim in ("rises", "bends"):
        made.claim(claim, says=f"a line {claim} in every trial", expect=above(0))(lambda runs: 1.0)
    lookup = partial(known.known, tmp_path, made.name)
    made.claims = [replace(c, recorded=partial(lookup, c.id), folder=tmp_path) for c in made.claims]
    monkeypatch.setattr(registry, "systems", lambda: [made.system])
    monkeypatch.setattr(registry, "_load", lambda systems: ([made], {}))
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return connect(f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}")


def judged(store, figure, decided=None, **statuses):
    """Store the verdicts of a reproduction: measured 0.123456 on six seeds."""
    plan = Plan.of(figure, figure.configs("laptop"), ["seed"], "laptop", kind="reproduce", metric="loss/test")
    sweep = open_sweep(plan, "mine", store)
    facts = {"statement": "s", "origin": "paper", "documented": "holds", "reason": "", "seeds": 6, "where": "Fig. 1"}
    values = {"measured": 0.123456, "ci": [0.1, 0.2], "expected": "> 0", "paper": None, "decided": decided}
    verdicts = [Verdict(id=claim, status=status, **facts, **values) for claim, status in statuses.items()]
    store.log_json(sweep, [verdict.model_dump() for verdict in verdicts], "verdicts.json")
    store.set_tags(sweep, {"verdict": "judged"})


def test_a_stored_verdict_is_written_with_the_reason_that_is_on_record(store, figure, tmp_path):
    record = Known(unspecific="all do", laptop=Finding(status="fails", reason="too short", measured=0.5, seeds=3))
    known.write(tmp_path, {"lines": {"rises": record}, "dots": {"shine": Known(paper=Finding(status="holds"))}})
    judged(store, figure, rises="fails", bends="holds")
    (written,) = findings.write([figure], findings.compare([figure], store))
    rises, bends = (claim.recorded() for claim in figure.claims)
    expected = Finding(status="fails", reason="too short", measured=0.1235, ci=[0.1, 0.2], seeds=6)
    assert (rises.laptop, rises.unspecific) == (expected, "all do")
    assert bends.laptop == Finding(status="holds", measured=0.1235, ci=[0.1, 0.2], seeds=6)
    assert known.known(tmp_path, "madeup/dots", "shine").paper == Finding(status="holds"), "others stay"
    assert written == tmp_path / known.FILE
    assert findings.write([figure], findings.compare([figure], store)) == [], "nothing is left to write"


@pytest.mark.parametrize(
    ("recorded", "stored", "stay"),
    [("holds", "holds", True), ("undecided", "fails", True), ("holds", "undecided", True), ("holds", "fails", False)],
)
def test_what_controls_did_stays_on_record_until_the_claim_is_decided_otherwise(
    store, figure, tmp_path, recorded, stored, stay
):
    controls = {"permuted_labels": "broken", "untrained": "survives"}
    record = Known(laptop=Finding(status=recorded, specific=False, controls=controls))
    known.write(tmp_path, {"lines": {"rises": record}})
    judged(store, figure, rises=stored)
    findings.write([figure], findings.compare([figure], store))
    found = figure.claims[0].recorded().laptop
    assert (found.status, found.seeds) == (stored, 6)
    assert (found.specific, found.controls) == ((False, controls) if stay else (None, {}))


def test_a_verdict_on_fewer_seeds_replaces_nothing(store, figure, tmp_path):
    known.write(tmp_path, {"lines": {"rises": Known(laptop=Finding(status="holds", measured=0.5, seeds=16))}})
    judged(store, figure, rises="undecided")
    (comparison,) = findings.compare([figure], store)
    assert (comparison.replaces, comparison.contradicts) == (False, False)


@pytest.mark.parametrize(("level", "replaces"), [(None, True), (0.99, False)])
def test_a_verdict_that_few_seeds_decided_replaces_one_of_no_level(store, figure, tmp_path, level, replaces):
    record = Finding(status="holds", measured=0.5, deciding=level and [0.4, 0.6], level=level, seeds=16)
    known.write(tmp_path, {"lines": {"rises": Known(laptop=record)}})
    judged(store, figure, decided=Decided(level=0.98, seeds=6, ci=[0.05, 0.25]), rises="holds")
    (comparison,) = findings.compare([figure], store)
    assert comparison.replaces is replaces


@pytest.mark.parametrize(
    ("recorded", "stored", "contradicts"),
    [("holds", "fails", True), ("fails", "holds", True), ("holds", "undecided", False), ("undecided", "fails", False)],
)
def test_a_decided_verdict_contradicts_another_decided_one(store, figure, tmp_path, recorded, stored, contradicts):
    finding = Finding(status=recorded, reason="" if recorded == "holds" else "why")
    known.write(tmp_path, {"lines": {"rises": Known(laptop=finding)}})
    judged(store, figure, rises=stored)
    (comparison,) = findings.compare([figure], store)
    assert comparison.contradicts is contradicts


def test_a_new_failure_is_written_without_a_reason_and_asks_for_one(store, figure, tmp_path):
    judged(store, figure, rises="fails")
    findings.write([figure], findings.compare([figure], store))
    (comparison,) = findings.compare([figure], store)
    assert comparison.lacks_reason


def test_entries_of_claims_that_are_gone_are_named(figure, tmp_path):
    known.write(tmp_path, {"lines": {"rose": Known(laptop=Finding(status="holds"))}})
    assert findings.entries_without_claim([figure]) == [f"{tmp_path / known.FILE}: lines.rose"]
