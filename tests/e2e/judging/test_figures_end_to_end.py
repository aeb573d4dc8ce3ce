"""A figure from its name to its verdicts: reproduce, judge, report; and the commands that only tell."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commandline import CommandLine, Said, ended

from featurelab.pipelines.engine.experiment.catalogue import registry

NAME = "stranger/curves"
VERDICT = {
    "id",
    "statement",
    "origin",
    "status",
    "documented",
    "reason",
    "measured",
    "ci",
    "expected",
    "paper",
    "where",
    "seeds",
    "kind",
    "about",
    "decided",
    "worst",
    "controls",
    "specific",
    "unspecific",
}


@pytest.fixture(scope="module")
def reproduced(lab: CommandLine) -> Said:
    return lab("reproduce", NAME, "--json")


def test_reproducing_says_every_claim_with_its_numbers(reproduced: Said) -> None:
    assert set(reproduced.document) == {"experiments", "scale"}
    assert reproduced.document["scale"] == "laptop"
    (said,) = reproduced.document["experiments"]
    assert set(said) == {"name", "sweep_run_id", "trials", "seconds", "figure", "claims"}
    assert (said["name"], said["trials"], said["figure"]) == (NAME, 6, "figure.png")
    apart, zero = said["claims"]
    assert set(apart) == set(zero) == VERDICT
    assert (apart["id"], apart["status"], apart["documented"]) == ("levels_are_apart", "holds", "holds")
    assert apart["measured"] == pytest.approx(-1.0)
    assert apart["ci"] == pytest.approx([-1.0, -1.0])
    assert apart["seeds"] == 3
    assert (zero["status"], zero["documented"], zero["origin"]) == ("fails", "fails", "ours")
    assert zero["measured"] == pytest.approx(1 + 1 / 12)


def test_reproducing_tells_its_progress_in_lines_and_nothing_else(reproduced: Said) -> None:
    first, done, verdicts = reproduced.err.splitlines()
    assert first.startswith("1 figure")
    assert NAME in done
    assert "1 holds, 1 fails" in verdicts


def test_the_verdicts_run_holds_the_figure_and_the_verdicts(lab: CommandLine, reproduced: Said) -> None:
    (said,) = reproduced.document["experiments"]
    run = lab.client.get_run(said["sweep_run_id"])
    assert lab.client.get_experiment(run.info.experiment_id).name == "verdicts"
    paths = {entry.path for entry in lab.client.list_artifacts(said["sweep_run_id"])}
    assert paths >= {
        "plan.json",
        "results.csv",
        "figure.png",
        "figure.svg",
        "figure.pdf",
        "verdicts.json",
        "verdicts_table.json",
    }
    counts = {name: value for name, value in run.data.metrics.items() if name.startswith("claims/")}
    nothing = {"claims/undecided": 0, "claims/untested": 0, "claims/unexpected": 0}
    assert counts == {"claims/holds": 1, "claims/fails": 1} | nothing
    assert run.data.tags["verdict"] == "1 holds, 1 fails"
    kept = json.loads(Path(lab.client.download_artifacts(said["sweep_run_id"], "verdicts.json")).read_text())
    assert kept == said["claims"]
    picture = Path(lab.client.download_artifacts(said["sweep_run_id"], "figure.png")).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert {trial.data.tags["sweep_run_id"] for trial in lab.runs(NAME)} == {said["sweep_run_id"]}


def test_the_pages_describe_the_figure_its_sweep_and_where_they_come_from(lab: CommandLine, reproduced: Said) -> None:
    sweep = reproduced.document["experiments"][0]["sweep_run_id"]
    tags = lab.client.get_run(sweep).data.tags
    note = tags["mlflow.note.content"]
    assert "**Fig. 1: losses that are known beforehand.**" in note
    assert "| the level-1 curve ends below the level-2 curve (difference) | holds | -1 | ≤ -0.9 |" in note
    assert f"`featurelab reproduce {NAME}`" in note
    assert f"`featurelab judge {sweep}`" in note
    assert tags["mlflow.source.name"] == f"featurelab reproduce {NAME}"
    run = lab.runs(NAME)[0]
    trial = run.data.tags
    assert trial["mlflow.source.name"] == f"featurelab run {NAME}"
    assert "mlflow.source.git.commit" not in trial  # its author's package is in no repository, whatever ours is in
    page = lab.client.get_experiment_by_name(NAME).tags["mlflow.note.content"]
    assert page.startswith("Fig. 1: losses that are known beforehand. [Charts](#/experiments/")
    assert page.endswith(f"`featurelab reproduce {NAME}`")
    verdicts = lab.client.get_experiment_by_name("verdicts").tags["mlflow.note.content"]
    assert verdicts.startswith("One run for each sweep")


def test_judging_again_says_the_same_without_running_anything(lab: CommandLine, reproduced: Said) -> None:
    (said,) = reproduced.document["experiments"]
    before = {run.info.run_id for run in lab.runs(NAME)}
    judged = lab("judge", said["sweep_run_id"], "--json")
    assert judged.document == reproduced.document
    assert {run.info.run_id for run in lab.runs(NAME)} == before
    table = lab("judge", said["sweep_run_id"])
    assert "levels_are_apart" in table.out
    charts, axes, served, counts, verdicts = table.err.splitlines()
    sweep = lab.client.get_run(said["sweep_run_id"]).data.tags["sweep"]
    assert re.search(r" http://127.0.0.1:5000/#/experiments/\d+/runs\?searchFilter=.*" + sweep, charts)
    assert re.search(r" http.*&viewStateShareKey=sweep-\w+$", axes)
    assert all("workflowType=machine_learning" in link and len(link) < 250 for link in (charts, axes))
    assert "featurelab ui" in served
    assert "1 holds, 1 fails" in counts
    assert re.search(r" http://127.0.0.1:5000/#/experiments/\d+/runs\?viewStateShareKey=\S+$", verdicts)


def test_a_figure_that_reads_the_trials_of_another_trains_none(lab: CommandLine) -> None:
    here = lab.desk("reading")
    said = here("reproduce", "stranger/lower", NAME, "--json").document["experiments"]
    assert [(one["name"], one["trials"]) for one in said] == [("stranger/lower", 3), (NAME, 6)]
    lower, whole = said
    assert [claim["status"] for claim in lower["claims"]] == ["holds"]
    assert lower["claims"][0]["measured"] == pytest.approx(1 + 1 / 12)
    assert here.runs("stranger/lower") == []
    assert len(here.runs(NAME)) == 6
    sweep = here.client.get_run(lower["sweep_run_id"])
    assert (sweep.data.tags["trials_of"], sweep.data.tags["status"]) == (whole["sweep_run_id"], "finished")
    again = here("judge", lower["sweep_run_id"], "--json").document["experiments"]
    assert again == [lower]
    assert f"its trials are those of {NAME}, sweep {whole['sweep_run_id']}" in here("judge", lower["sweep_run_id"]).err
    here("report", "--out", "report")
    assert "the lower of them" in (here.home / "report" / "index.html").read_text()
    repeated = here("rerun", lower["sweep_run_id"], "--json").document
    assert repeated["identical"]
    assert len(here.runs("stranger/lower")) == 3


@pytest.fixture(scope="module")
def apart(lab: CommandLine) -> tuple[CommandLine, dict[str, Any]]:
    """Two figures without the one that the first could read; a trial of the second fails."""
    here = lab.desk("apart")
    said = here("reproduce", "stranger/lower", "stranger/troubles", "--json").document["experiments"]
    return here, {one["name"]: one for one in said}


def test_without_the_other_it_trains_its_own(apart: tuple[CommandLine, dict[str, Any]]) -> None:
    here, said = apart
    assert [claim["status"] for claim in said["stranger/lower"]["claims"]] == ["holds"]
    assert len(here.runs("stranger/lower")) == 3


def test_failed_trials_leave_claims_untested_not_wrong(apart: tuple[CommandLine, dict[str, Any]]) -> None:
    here, said = apart
    figure = said["stranger/troubles"]
    assert (figure["claims"], figure["figure"], figure["trials"]) == ([], "", 2)
    assert sorted(run.data.tags["status"] for run in here.runs("stranger/troubles")) == ["failed", "finished"]


def test_a_sweep_that_claims_to_read_what_is_none_is_refused(apart: tuple[CommandLine, dict[str, Any]]) -> None:
    here, said = apart
    sweep = said["stranger/lower"]["sweep_run_id"]
    here.client.set_tag(sweep, "trials_of", "../../x")
    assert "no trials of '../../x'" in here("judge", sweep, code=2).err.replace("../../x", "'../../x'")


def test_a_verdict_other_than_documented_exits_1_and_is_named(lab: CommandLine, reproduced: Said) -> None:
    here = lab.desk("worse")
    said = here("reproduce", "stranger/surprise", "--json", code=1)
    (claim,) = said.document["experiments"][0]["claims"]
    assert (claim["status"], claim["documented"]) == ("fails", "holds")
    assert "otherwise than documented: stranger/surprise too_good fails" in said.err
    sweep = said.document["experiments"][0]["sweep_run_id"]
    assert here("judge", sweep, "--json", code=1).document["experiments"][0]["claims"] == [claim]


def test_a_sweep_that_is_not_the_figure_s_grid_is_drawn_against_its_axes_and_not_judged(
    lab: CommandLine, reproduced: Said
) -> None:
    here = lab.desk("free")
    command = ["sweep", NAME, "--over", "level=1,1.5", "--over", "seed=0,1,2", "--name", "mine", "--json"]
    sweep = here(*command).document["sweep_run_id"]
    drawn = Path(here.client.download_artifacts(sweep, "figure.svg")).read_text()
    assert "stranger/curves: sweep mine" in drawn
    assert all(word in drawn for word in ("level", "seed", "loss/val", "median"))
    assert "losses that are known beforehand" not in drawn, "the figure's title"
    note = here.client.get_run(sweep).data.tags["mlflow.note.content"]
    assert note.startswith("Sweep `mine`: 6 trials over level, seed, in the setting of Fig. 1: losses that are known")
    judged = here("judge", sweep, "--json")
    (one,) = judged.document["experiments"]
    assert (one["claims"], one["figure"], one["trials"]) == ([], "figure.png", 6)
    assert "not the figure's grid" in here("judge", sweep).err
    assert "verdict" not in here.client.get_run(sweep).data.tags
    here("report", code=2)


def test_a_sweep_over_just_the_figure_s_grid_is_the_figure(lab: CommandLine) -> None:
    here = lab.desk("same")
    sweep = here("sweep", NAME, "--over", "level=1,2", "--over", "seed=0,1,2", "--json").document["sweep_run_id"]
    (judged,) = here("judge", sweep, "--json").document["experiments"]
    assert [claim["status"] for claim in judged["claims"]] == ["holds", "fails"]


def test_judging_a_trial_names_its_sweep_and_a_beginning_of_an_id_is_enough(lab: CommandLine, reproduced: Said) -> None:
    (said,) = reproduced.document["experiments"]
    sweep = said["sweep_run_id"]
    trials = [run.info.run_id for run in lab.runs(NAME) if run.data.tags["sweep_run_id"] == sweep]
    name = lab.client.get_run(sweep).data.tags["sweep"]
    refused = lab("judge", trials[0], code=2).err
    assert all(named in refused for named in (trials[0], name, f"featurelab judge {sweep}"))
    assert lab("judge", sweep[:10], "--json").document == reproduced.document
    compared = lab("compare", trials[0][:12], trials[1], "--json").document
    assert compared["runs"] == trials[:2]
    assert "there is no run" in lab("compare", "ffffff", trials[0], code=2).err


def test_the_report_is_one_page_with_every_verdict(lab: CommandLine, reproduced: Said) -> None:
    said = lab("report", "--out", "pages/report")
    page = (lab.home / "pages" / "report" / "index.html").read_text()
    assert said.out == ""
    assert "pages/report/index.html" in said.err
    assert NAME in page
    assert "losses that are known beforehand" in page
    assert page.count("data:image/png;base64,") == 1
    assert not re.search(r'(src|href)="https?://(?!127|localhost)', page), "the page loads something from elsewhere"


def test_listing_says_what_the_contract_says(lab: CommandLine) -> None:
    said = lab("list", "--json").document
    keys = {"name", "system", "figure", "title", "scales", "claims", "headline"}
    assert all(set(experiment) == keys for experiment in said)
    assert all(set(e["scales"]["laptop"]) == {"minutes"} for e in said)
    desktop = [e["scales"]["desktop"] for e in said if "desktop" in e["scales"]]
    assert desktop
    assert all(set(scale) == {"minutes"} and 0 < scale["minutes"] <= 20 for scale in desktop)
    assert all(set(e["scales"]["paper"]) == {"gpu_hours", "needs"} for e in said)
    assert [*registry.systems(), "patient", "stranger"] == list(dict.fromkeys(e["system"] for e in said))
    assert sum(experiment["headline"] for experiment in said) >= 1
    assert [e for e in said if e["system"] == "stranger"] == lab("list", "stranger", "--json").document
    assert NAME in lab("list", "stranger").out


def test_showing_an_experiment_says_fields_grid_axes_and_claims(lab: CommandLine) -> None:
    said = lab("show", NAME, "--scale", "paper", "--json").document
    values = {field["name"]: field["value"] for field in said["fields"]}
    assert (values["steps"], said["grid"]) == (1000, {"level": [1.0, 2.0], "seed": [0, 1, 2]})
    assert said["sweep_axes"] == {"lr": "loguniform(0.1,10.0)", "level": "choice(1.0,2.0)"}
    assert [claim["id"] for claim in said["claims"]] == ["levels_are_apart", "never_true"]
    assert "what the loss falls to" in lab("show", NAME).out


def test_the_doctor_checks_this_machine(lab: CommandLine, reproduced: Said) -> None:
    said = ended(lab.start("doctor", "--json"), timeout=300)
    assert all(set(check) == {"name", "ok", "detail"} for check in said.document)
    checks = {check["name"]: check for check in said.document}
    wrong = {name for name, check in checks.items() if not check["ok"]}
    assert wrong <= {"tested versions"}  # these tests also run with others
    assert said.code == len(wrong)
    assert {"python", "packages", "store", "disk", "compute", "outbox"} <= set(checks)
    assert checks["store"]["ok"]
    assert checks["store"]["detail"].endswith("mlflow.db")
    sick = lab.elsewhere(lab.home / "sick", MLFLOW_TRACKING_URI="http://127.0.0.1:1")
    found = {check["name"]: check["ok"] for check in sick("doctor", "--json", code=1).document}
    assert not found["store"]


def test_public_data_are_listed_and_checked(lab: CommandLine) -> None:
    said = lab("data", "list", "--json").document
    names = {source["name"] for source in said}
    assert {"celeba", "svhn"} <= names
    absent = next(source["name"] for source in said if not source["here"])
    checked = lab("data", "check", absent, "--json", code=2)
    assert checked.document["present"] is False
    assert f"featurelab data fetch {absent}" in checked.err


@pytest.mark.heavy
def test_commands_that_start_cold_do_what_those_with_their_imports_made_do(lab: CommandLine, reproduced: Said) -> None:
    (figure,) = reproduced.document["experiments"]
    sweep = figure["sweep_run_id"]
    trial = next(run.info.run_id for run in lab.runs(NAME) if run.data.tags["sweep_run_id"] == sweep)
    judged = ended(lab.start_cold("judge", sweep, "--json"))
    assert (judged.code, judged.document["experiments"][0]["claims"]) == (0, figure["claims"])
    again = ended(lab.start_cold("rerun", trial, "--json"))
    assert (again.code, again.document["identical"]) == (0, True)
    for arguments in (["report", "--out", "cold"], ["sync"]):
        assert ended(lab.start_cold(*arguments)).code == 0
    assert (lab.home / "cold" / "index.html").stat().st_size > 10_000
