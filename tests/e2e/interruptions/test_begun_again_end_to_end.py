"""What was interrupted and is begun anew or resumed: the old runs stay, and no point is stored twice."""

import signal
from collections import Counter
from pathlib import Path

import pytest
from commandline import CommandLine, ended, until
from mlflow.entities import Run
from mlflow_server import Server

pytestmark = pytest.mark.heavy

STEPS = 60


def test_a_fresh_reproduction_begins_anew_beside_the_interrupted_one(patient: dict[str, str], tmp_path: Path) -> None:
    here = CommandLine(tmp_path, patient)
    process = here.start("reproduce", "patient/curves", "--json")
    here.wait_for_point("patient/curves", "best.loss.val", runs=2)
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 130
    old = {run.info.run_id: (run.info.status, run.data.tags, points(here, run.info.run_id)) for run in runs(here)}
    (interrupted,) = here.runs("verdicts")
    assert {status for status, _, _ in old.values()} >= {"FINISHED", "KILLED"}

    said = here("reproduce", "patient/curves", "--fresh", "--json")
    assert "going on" not in said.err
    (one,) = said.document["experiments"]
    assert one["sweep_run_id"] != interrupted.info.run_id
    assert [claim["status"] for claim in one["claims"]] == ["holds"]
    new = [run for run in runs(here) if run.info.run_id not in old]
    assert [run.info.status for run in new] == ["FINISHED"] * 6
    assert {run.data.tags["sweep_run_id"] for run in new} == {one["sweep_run_id"]}
    assert {tuple(points(here, run.info.run_id)) for run in new} == {tuple(range(1, 41))}
    for run in runs(here):
        if run.info.run_id in old:
            assert (run.info.status, run.data.tags, points(here, run.info.run_id)) == old[run.info.run_id]
    assert here.client.get_run(interrupted.info.run_id).data.tags["status"] == "killed"


def test_two_people_who_share_a_server_do_not_run_the_same_sweep(
    patient: dict[str, str], server: Server, tmp_path: Path
) -> None:
    shared = CommandLine(tmp_path, patient | {"MLFLOW_TRACKING_URI": server.uri})
    one, other = (shared.elsewhere(tmp_path / name) for name in ("one", "other"))
    process = one.start("reproduce", "patient/curves", "--json")
    (sweep,) = until(lambda: one.runs("verdicts"))
    beside = other.start("reproduce", "patient/curves", "--json")
    refused = other("sweep", "patient/curves", "--resume", sweep.data.tags["sweep"], code=2)
    assert "is still being run on" in refused.err
    assert len(refused.err.splitlines()) == 1
    first, second = ended(process), ended(beside)
    assert first.code == second.code == 0
    assert "is being run on" in second.err
    ids = {said.document["experiments"][0]["sweep_run_id"] for said in (first, second)}
    assert len(ids) == len(one.runs("verdicts")) == 2
    assert [run.info.status for run in runs(one)] == ["FINISHED"] * 12
    assert {tuple(points(one, run.info.run_id)) for run in runs(one)} == {tuple(range(1, 41))}
    assert Counter(run.data.tags["sweep_run_id"] for run in runs(one)) == dict.fromkeys(ids, 6)


def test_a_search_that_stops_poor_trials_early_can_be_interrupted_and_gone_on_with(featurelab: CommandLine) -> None:
    here = featurelab
    axes = ["--over", "level=0,8,1,7,6,5,4,3,2", "--over", f"steps={STEPS}", "--over", "pause=0.05"]
    options = ["--scheduler", "asha", "--metric", "loss/val", "--mode", "min", "--name", "cut", "--json"]
    process = here.start("sweep", "stranger/curves", *axes, *options)
    until(lambda: {"finished", "stopped"} <= set(statuses(here).values()))
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 130
    before = {run_id: status for run_id, status in statuses(here).items() if status != "killed"}
    told = {run_id: here.history(run_id, "loss/val") for run_id in statuses(here)}
    assert {run.info.status for run in here.runs("stranger/curves")} == {"FINISHED", "KILLED"}

    resumed = here("sweep", "stranger/curves", "--resume", "cut", "--json").document
    after = {trial["run_id"]: trial["status"] for trial in resumed["trials"]}
    assert len(after) == len(here.runs("stranger/curves")) == 9
    assert set(after.values()) == {"finished", "stopped"}
    assert before.items() <= after.items(), "what was over stays as it was"
    assert resumed["best"]["config"]["level"] == 0
    assert after[resumed["best"]["run_id"]] == "finished"
    for trial in resumed["trials"]:
        history, level = here.history(trial["run_id"], "loss/val"), trial["config"]["level"]
        assert history == [(step, level + 1 / step) for step in range(1, len(history) + 1)]
        assert (len(history) == STEPS) == (trial["status"] == "finished")
        assert history[: len(told.get(trial["run_id"], []))] == told.get(trial["run_id"], [])
    print(f"\nbefore {Counter(before.values())}, after {Counter(after.values())}")


def runs(here: CommandLine) -> list[Run]:
    return here.runs("patient/curves")


def points(here: CommandLine, run_id: str) -> list[int]:
    return [step for step, _ in here.history(run_id, "loss/val")]


def statuses(here: CommandLine) -> dict[str, str]:
    return {run.info.run_id: run.data.tags["status"] for run in here.runs("stranger/curves")}
