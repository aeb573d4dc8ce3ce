"""What a sweep needs goes away while it runs: the true reason is said, what was recorded stays, the sweep is closed."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from commandline import CommandLine, Process, below, ended, sent, until

CURVES = "stranger/curves"
SLOW = ["steps=80", "pause=0.1"]
TWO_AT_ONCE = ["--over", "seed=0,1,2", "--cpus-per-trial", "0.5"]
IN_TURN = ["--over", "seed=0,1"]


def started(here: CommandLine, trials: list[str], slow: list[str] = SLOW) -> Process:
    process = here.start("sweep", CURVES, *slow, "--name", "cut", *trials)
    here.wait_for_point(CURVES, "loss/val", runs=2 if trials is TWO_AT_ONCE else 1)
    return process


def reasons(here: CommandLine) -> set[str]:
    return {run.data.tags["reason"] for run in here.runs(CURVES) if run.data.tags["status"] != "finished"}


@pytest.mark.heavy
def test_trials_whose_outbox_is_removed_say_so_and_what_they_had_recorded_is_stored(lab: CommandLine) -> None:
    here = lab.desk("outbox")
    process = started(here, TWO_AT_ONCE)
    two = here.runs(CURVES)
    shutil.rmtree(here.home / ".featurelab")
    said = ended(process, timeout=120)
    assert said.code == 1
    assert "was removed or replaced while the run was recorded" in said.err
    assert "worker process died" not in said.err
    for run in two:
        points = here.history(run.info.run_id, "loss/val")
        assert [step for step, _ in points] == list(range(1, len(points) + 1))
        assert 0 < len(points) < 80
        assert here.client.get_run(run.info.run_id).info.status == "FAILED"
    assert sent(here)[2] == 0
    (sweep,) = here.runs("verdicts")
    assert (sweep.info.status, sweep.data.tags["status"]) == ("FAILED", "incomplete")
    resumed = here("sweep", CURVES, "--resume", "cut", "--json").document
    assert {len(here.history(trial["run_id"], "loss/val")) for trial in resumed["trials"]} == {80}


def test_a_trial_whose_run_is_deleted_says_so_and_ends_soon(lab: CommandLine) -> None:
    here = lab.desk("deleted")
    process = started(here, IN_TURN)
    deleted = here.runs(CURVES)[0].info.run_id
    here.client.delete_run(deleted)
    said = ended(process, timeout=120)
    assert said.code == 1
    assert "1 trial failed" in said.err
    assert "was deleted from the store" in said.err
    assert "worker process died" not in said.err
    left = here("sync", code=1).err
    assert f"featurelab sync --discard {deleted}" in left
    here("sync", "--discard", deleted)
    assert os.listdir(here.home / ".featurelab" / "outbox") == []


def test_a_store_that_is_removed_is_noticed_and_the_journals_are_kept(lab: CommandLine) -> None:
    here = lab.desk("store")
    process = started(here, TWO_AT_ONCE, ["steps=400", "pause=0.1"])  # the first must not end before the store does
    for path in here.home.glob("mlflow.db*"):
        path.unlink()
    said = ended(process, timeout=180)
    assert said.code in (1, 2)
    assert "was removed or replaced while it was in use" in said.err
    assert "best " not in said.err
    journals = list((here.home / ".featurelab" / "outbox").glob("*.jsonl"))
    assert len(journals) == 2
    assert all(len(path.read_text().splitlines()) > 10 for path in journals)


@pytest.mark.heavy
def test_without_its_raylet_a_sweep_ends_in_one_line_and_can_be_resumed(
    featurelab: CommandLine, lab: CommandLine
) -> None:
    process = started(featurelab, IN_TURN)
    (raylet,) = below(process.pid, "raylet/raylet")
    os.kill(raylet, signal.SIGKILL)
    said = ended(process, timeout=60)
    assert (said.code, said.out) == (1, "")
    *progress, last = said.err.splitlines()
    assert "raylet" in last
    assert "--resume cut" in last
    assert [line for line in progress if not line.startswith("curves: ")] == []
    (sweep,) = featurelab.runs("verdicts")
    assert (sweep.info.status, sweep.data.tags["status"]) == ("KILLED", "killed")
    runs = featurelab.runs(CURVES)
    assert {(run.info.status, run.data.tags["reason"]) for run in runs} == {("KILLED", "Ray's raylet died")}
    for run in runs:
        points = featurelab.history(run.info.run_id, "loss/val")
        assert [step for step, _ in points] == list(range(1, len(points) + 1))
    assert list((featurelab.home / ".featurelab" / "outbox").iterdir()) == []
    resumed = lab.elsewhere(featurelab.home)("sweep", CURVES, "--resume", "cut", "--json").document
    assert {len(featurelab.history(trial["run_id"], "loss/val")) for trial in resumed["trials"]} == {80}


@pytest.mark.heavy
def test_a_sweep_whose_ray_session_folder_is_removed_says_so(featurelab: CommandLine, lab: CommandLine) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        process = started(featurelab.elsewhere(featurelab.home, RAY_TMPDIR=folder), TWO_AT_ONCE)
        (session,) = [path for path in Path(folder).rglob("session_2*") if path.is_dir()]
        shutil.rmtree(session, ignore_errors=True)
        said = ended(process, timeout=60)
    reason = f"Ray's session folder {session} was removed"
    assert said.code == 1
    last = said.err.splitlines()[-1]
    assert reason in last
    assert "--resume cut" in last
    assert "Traceback" not in said.err
    assert {(run.info.status, run.data.tags["reason"]) for run in featurelab.runs(CURVES)} == {("KILLED", reason)}
    resumed = lab.elsewhere(featurelab.home)("sweep", CURVES, "--resume", "cut", "--json").document
    assert {len(featurelab.history(trial["run_id"], "loss/val")) for trial in resumed["trials"]} == {80}


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.heavy),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.heavy),
        (signal.SIGINT, 130),
    ],
)
def test_a_run_that_is_ended_before_its_first_point_is_closed(lab: CommandLine, number: int, code: int) -> None:
    here = lab.desk(f"early-{number}")
    process = here.start("run", "stranger/troubles", "ending=hang", "points=0")
    until(lambda: here.runs("stranger/troubles"), patience=60)
    process.send_signal(number)
    said = ended(process)
    assert (said.code, said.out) == (code, "")
    (run,) = here.runs("stranger/troubles")
    assert (run.info.status, run.data.tags["status"]) == ("KILLED", "killed")


def test_a_closed_terminal_does_not_end_what_was_started_with_nohup(lab: CommandLine) -> None:
    here = lab.desk("nohup")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = here.start_cold("run", CURVES, "steps=60", "pause=0.05")
    finally:
        signal.signal(signal.SIGHUP, before)
    here.wait_for_point(CURVES, "loss/val")
    process.send_signal(signal.SIGHUP)
    assert ended(process).code == 0
    (run,) = here.runs(CURVES)
    assert len(here.history(run.info.run_id, "loss/val")) == 60


def test_a_sweep_whose_terminal_is_closed_keeps_its_points(lab: CommandLine) -> None:
    here = lab.desk("hup")
    process = started(here, IN_TURN)
    process.send_signal(signal.SIGHUP)
    said = ended(process)
    assert said.code == 129
    (sweep,) = here.runs("verdicts")
    assert (sweep.info.status, sweep.data.tags["status"]) == ("KILLED", "killed")
    assert {run.info.status for run in here.runs(CURVES)} == {"KILLED"}


def test_a_driver_killed_while_it_judges_leaves_trials_that_the_same_command_judges_without_training(
    lab: CommandLine,
) -> None:
    here = lab.desk("judging")
    (here.home / "pondering").touch()
    process = here.start("reproduce", "stranger/surprise")
    until(lambda: [run for run in here.runs("verdicts") if run.data.tags["status"] == "judging"])
    process.kill()
    ended(process)
    trials = {run.info.run_id for run in here.runs("stranger/surprise")}
    assert len(trials) == 3
    (here.home / "pondering").unlink()
    here("report", code=2)
    said = here("reproduce", "stranger/surprise", "--json", code=1)
    assert "judging without training" in said.err
    (judged,) = said.document["experiments"]
    assert [claim["status"] for claim in judged["claims"]] == ["fails"]
    assert {run.info.run_id for run in here.runs("stranger/surprise")} == trials
    (sweep,) = here.runs("verdicts")
    assert (sweep.info.status, sweep.data.tags["status"]) == ("FINISHED", "finished")
    here("report")
    again = here("reproduce", "stranger/surprise", "--json", code=1)
    assert "judging without training" not in again.err, "what is finished is run anew"
    assert len(here.runs("stranger/surprise")) == 6
