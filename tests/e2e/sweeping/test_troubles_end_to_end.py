"""Trials that break, diverge, die or hang, and commands that are interrupted: what was recorded stays, and is said."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from commandline import CommandLine, Said, ended

SOURCE = (Path(__file__).parents[1] / "stranger_lab.py").read_text().splitlines()
BROKE = next(number for number, line in enumerate(SOURCE, 1) if "the trial broke" in line)
RECORDED = [(0, 1.0), (1, 1 / 2), (2, 1 / 3)]


@pytest.fixture(scope="module")
def troubled(lab: CommandLine) -> Said:
    """A sweep of a trial for each way to end."""
    endings = "ending=raise,well,nan,die,exit,hang"
    options = ["--trial-timeout", "8", "--name", "troubled", "--json"]
    return lab("sweep", "stranger/troubles", "--over", endings, *options, code=1)


def by_ending(said: Said) -> dict[str, dict[str, Any]]:
    return {trial["config"]["ending"]: trial for trial in said.document["trials"]}


def test_a_sweep_goes_on_past_trials_that_end_badly(troubled: Said) -> None:
    statuses = {ending: trial["status"] for ending, trial in by_ending(troubled).items()}
    assert statuses == {
        "raise": "failed",
        "well": "finished",
        "nan": "diverged",
        "die": "failed",
        "exit": "failed",
        "hang": "failed",
    }
    assert troubled.document["best"]["config"]["ending"] == "well"


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("raise", f"ZeroDivisionError: the trial broke (stranger_lab.py:{BROKE} in trouble)"),
        ("nan", "loss/val is nan at step 3"),
        ("die", "its worker process died"),
        ("exit", "exit 3"),
        ("hang", "did not end within 8 s"),
        ("well", ""),
    ],
)
def test_each_run_says_how_it_ended_and_keeps_its_points(
    lab: CommandLine, troubled: Said, ending: str, reason: str
) -> None:
    trial = by_ending(troubled)[ending]
    run = lab.client.get_run(trial["run_id"])
    assert run.data.tags["reason"] == reason
    assert run.data.tags["status"] == trial["status"]
    assert run.info.status == ("FINISHED" if ending == "well" else "FAILED")
    assert lab.history(trial["run_id"], "loss/val")[:3] == RECORDED
    assert run.data.metrics["best.loss.val"] == pytest.approx(0.0 if ending == "well" else 1 / 3)


def test_a_divergence_is_marked_where_it_happened(lab: CommandLine, troubled: Said) -> None:
    assert lab.client.get_run(by_ending(troubled)["nan"]["run_id"]).data.tags["nonfinite/loss/val"] == "3"


def test_the_traceback_of_a_failed_trial_is_kept(lab: CommandLine, troubled: Said) -> None:
    path = lab.client.download_artifacts(by_ending(troubled)["raise"]["run_id"], "traceback.txt")
    with open(path) as file:
        assert "ZeroDivisionError: the trial broke\nin two lines" in file.read()


def test_the_run_of_a_sweep_with_failures_counts_them(lab: CommandLine, troubled: Said) -> None:
    run = lab.client.get_run(troubled.document["sweep_run_id"])
    counts = {name: value for name, value in run.data.metrics.items() if name.startswith("trials/")}
    assert counts == {"trials/failed": 4, "trials/finished": 1, "trials/diverged": 1}
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "incomplete")


def test_resuming_runs_only_what_failed(lab: CommandLine, troubled: Said) -> None:
    before = by_ending(troubled)
    resumed = lab("sweep", "stranger/troubles", "--resume", "troubled", "--json", code=1)
    after = by_ending(resumed)
    assert resumed.document["sweep_run_id"] == troubled.document["sweep_run_id"]
    kept = {ending for ending in before if before[ending]["run_id"] == after[ending]["run_id"]}
    assert kept == {"well", "nan", "die", "hang"}, "those that were cut short go on in the same run"
    for ending in ("die", "hang"):
        assert lab.client.get_run(after[ending]["run_id"]).data.tags["attempt"] == "2"
        assert lab.history(after[ending]["run_id"], "loss/val") == RECORDED
    assert {ending: trial["status"] for ending, trial in after.items()} == {
        ending: trial["status"] for ending, trial in before.items()
    }


def test_a_run_that_breaks_exits_1_and_one_that_diverges_too(lab: CommandLine) -> None:
    for ending, status in (("raise", "failed"), ("nan", "diverged")):
        said = lab("run", "stranger/troubles", f"ending={ending}", "--json", code=1)
        assert said.document["status"] == status
        assert lab.history(said.document["run_id"], "loss/val")[:3] == RECORDED
        assert "Traceback" not in said.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_its_points_and_is_marked_killed(
    featurelab: CommandLine, number: int, code: int
) -> None:
    here = featurelab.desk("endless")
    name, endless = (
        "neural_feature_ansatz/init_scale",
        ["n_train=32", "n_test=16", "dim=8", "width=16", "steps=9999999"],
    )
    process = here.start("run", name, *endless, "measure_every=10", "--json")
    here.wait_for_point(name, "loss/train")
    process.send_signal(number)
    said = ended(process)
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("featurelab: ")
    assert said.err.count("\n") == 1
    (run,) = here.runs(name)
    assert (run.info.status, run.data.tags["status"]) == ("KILLED", "killed")
    points = here.history(run.info.run_id, "loss/train")
    assert [step for step, _ in points] == list(range(0, 10 * len(points), 10))
    assert run.data.metrics["loss/train"] == points[-1][1]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.heavy)]
)
def test_an_interrupted_sweep_keeps_its_points_and_can_be_resumed(lab: CommandLine, number: int, code: int) -> None:
    here = lab.desk(f"signal-{number}")
    axes = ["--over", "level=1,2,3,4,5,6", "--over", "steps=40", "--over", "pause=0.1"]
    process = here.start("sweep", "stranger/curves", *axes, "--name", "cut", "--json")
    here.wait_for_point("stranger/curves", "loss/val", runs=3)
    process.send_signal(number)
    said = ended(process)
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("featurelab: ")
    runs = here.runs("stranger/curves")
    finished = {run.info.run_id for run in runs if run.data.tags["status"] == "finished"}
    assert {run.info.status for run in runs} <= {"FINISHED", "KILLED"}
    assert all(run.data.tags["status"] in ("finished", "killed") for run in runs)
    for run in runs:
        points = here.history(run.info.run_id, "loss/val")
        assert [step for step, _ in points] == list(range(1, len(points) + 1))
    (sweep,) = here.runs("verdicts")
    assert (sweep.info.status, sweep.data.tags["status"]) == ("KILLED", "killed")
    assert not os.listdir(here.home / ".featurelab" / "outbox")

    if number == signal.SIGTERM:
        return  # what follows is the same for both
    resumed = here("sweep", "stranger/curves", "--resume", "cut", "--json").document
    assert [trial["config"]["level"] for trial in resumed["trials"]] == [1, 2, 3, 4, 5, 6]
    assert all(trial["status"] == "finished" for trial in resumed["trials"])
    assert finished <= {trial["run_id"] for trial in resumed["trials"]}
    assert len(here.runs("stranger/curves")) == 6, "runs that were cut short went on"
    assert {len(here.history(trial["run_id"], "loss/val")) for trial in resumed["trials"]} == {40}
