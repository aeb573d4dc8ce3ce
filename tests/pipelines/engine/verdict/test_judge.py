"""What judging draws and judges; a mistake in one claim or in the drawing costs no other verdict."""

from dataclasses import replace
from typing import Any

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.sweep.begin import open_sweep
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.trial.run import run_trial
from featurelab.pipelines.engine.verdict.check import performed
from featurelab.pipelines.engine.verdict.judge import drawn, judge

NAME = "neural_feature_ansatz/init_scale"
SMALL: dict[str, Any] = {"n_train": 16, "n_test": 8, "dim": 6, "width": 8, "steps": 20, "measure_every": 10}


def broken(*_: Any) -> Any:
    return [][1]


def test_a_mistake_in_a_claim_or_in_the_drawing_is_named_and_the_other_claims_are_judged(
    store: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = registry.find(NAME)
    first, *others = experiment.claims
    configs = [experiment.laptop.but(seed=seed, **SMALL) for seed in (0, 1, 2)]
    sweep_run_id = open_sweep(Plan.of(experiment, configs, ["seed"], "laptop", kind="reproduce"), "few", store)
    for index, config in enumerate(configs):
        tags = {"sweep": "few", "sweep_run_id": sweep_run_id, "trial": str(index)}
        run_trial(experiment, config, store, scale="laptop", outbox=tmp_path / "outbox", tags=tags)
    whole = judge(sweep_run_id, store)

    assert experiment.drawing is not None
    monkeypatch.setattr(experiment, "claims", [replace(first, measure=broken), *others])
    monkeypatch.setattr(experiment, "drawing", replace(experiment.drawing, draw=broken))
    judged = judge(sweep_run_id, store)
    assert (judged.verdicts[0].status, judged.verdicts[0].measured, judged.verdicts[0].seeds) == ("untested", None, 0)
    assert "IndexError" in judged.verdicts[0].reason
    assert "test_judge.py" in judged.verdicts[0].reason
    assert judged.verdicts[1:] == whole.verdicts[1:]
    said = capsys.readouterr().err
    assert NAME in said
    assert "IndexError" in said
    assert "Traceback" not in said
    picture = store.download(sweep_run_id, judged.figure).read_bytes()
    assert picture.startswith(b"\x89PNG")


def test_a_picture_says_what_takes_the_place_of_the_papers_data_at_the_settings_of_the_preset() -> None:
    experiment = registry.find("neural_feature_ansatz/street_numbers")
    configs = experiment.small_configs()[:1]
    results = performed(experiment, configs)
    plan = Plan.of(experiment, configs, ["seed"], "laptop", kind="reproduce")
    texts = [text.get_text().replace("\n", " ") for text in drawn(experiment, results, plan).texts]
    assert any(experiment.stand_in in text for text in texts)
    others = plan.model_copy(update={"kind": "at_settings", "settings": {"lr": 0.1}})
    texts = [text.get_text().replace("\n", " ") for text in drawn(experiment, results, others).texts]
    assert not any(experiment.stand_in in text for text in texts)
