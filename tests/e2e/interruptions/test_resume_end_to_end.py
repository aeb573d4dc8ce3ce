"""Processes are killed in the middle of sweeps: the same runs go on, and nothing is lost, repeated or different."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from commandline import CommandLine, ended, until
from mlflow.entities import Run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, patient: dict[str, str]) -> CommandLine:
    """The command, its sweeps on a Ray of their own."""
    return CommandLine(tmp_path_factory.mktemp("resumed"), patient)


def recording(outbox: Path, run_id: str) -> int:
    """The process that has the journal of a run open."""
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and outbox / f"{run_id}.jsonl" in [
                Path(os.readlink(handle)) for handle in (process / "fd").iterdir()
            ]:
                return int(process.name)
        except OSError:
            continue
    raise LookupError(run_id)


def everything(here: CommandLine, run: Run) -> dict[str, list[tuple[int, float]]]:
    """Every point of every metric, but for those that are derived from others."""
    names = [name for name in run.data.metrics if not name.startswith("best.")]
    return {name: here.history(run.info.run_id, name) for name in names}


def test_a_trial_whose_process_is_killed_goes_on_from_its_checkpoint_and_comes_out_the_same(
    lab: CommandLine, patient: dict[str, str]
) -> None:
    here = lab.desk("killed", **patient)
    outbox = here.home / ".featurelab" / "outbox"
    axes = ["points=120", "pause=0.1", "--over", "seed=0,1"]
    process = here.start("sweep", "patient/training", *axes, "--name", "cut", "--json")

    def halfway() -> Run | None:
        for run in here.runs("patient/training"):
            saved = [entry.path for entry in here.client.list_artifacts(run.info.run_id, "training")]
            if len([path for path in saved if path.endswith(".json")]) == 2:
                return run
        return None

    victim = until(halfway)
    os.kill(recording(outbox, victim.info.run_id), signal.SIGKILL)
    said = ended(process, timeout=240)
    assert said.code == 1
    statuses = {trial["run_id"]: trial["status"] for trial in said.document["trials"]}
    assert sorted(statuses.values()) == ["failed", "finished"]
    assert statuses[victim.info.run_id] == "failed"
    before = here.client.get_run(victim.info.run_id)
    assert before.data.tags["reason"] == "its worker process died"
    points = here.history(victim.info.run_id, "loss/train")
    assert 0 < len(points) < 121

    resumed = here("sweep", "patient/training", "--resume", "cut", "--json").document
    assert {trial["run_id"]: trial["status"] for trial in resumed["trials"]} == dict.fromkeys(statuses, "finished")
    assert len(here.runs("patient/training")) == 2
    run = here.client.get_run(victim.info.run_id)
    assert (run.info.status, run.data.tags["status"], run.data.tags["reason"]) == ("FINISHED", "finished", "")
    step = int(re.fullmatch(r"from step (\d+), epoch \d+ of fit 1", run.data.tags["resumed"])[1])  # type: ignore[index]
    assert 0 < step <= points[-1][0], "what was recorded after the checkpoint was recorded again, and stored once"
    assert here.history(run.info.run_id, "loss/train")[: len(points)] == points
    assert not [tag for tag in run.data.tags if tag.startswith("differs/")]
    assert here.client.list_artifacts(run.info.run_id, "training") == []
    assert len(run.inputs.dataset_inputs) == 1

    undisturbed = here("rerun", run.info.run_id, "--json").document
    assert (undisturbed["identical"], undisturbed["differences"]) == (True, [])
    whole = here.client.get_run(undisturbed["new_run_id"])
    assert undisturbed["points_compared"] == sum(map(len, everything(here, whole).values()))
    assert everything(here, run) == everything(here, whole)
    derived = {name: value for name, value in whole.data.metrics.items() if name.startswith("best.")}
    assert derived.items() <= run.data.metrics.items()
    (sweep,) = [run for run in here.runs("verdicts") if run.data.tags["sweep"] == "cut"]
    assert (sweep.info.status, sweep.data.tags["status"]) == ("FINISHED", "finished")
    assert (sweep.data.metrics["trials/finished"], sweep.data.metrics["trials/failed"]) == (2, 0)
    assert os.listdir(outbox) == []


@pytest.mark.heavy
def test_a_sweep_whose_machine_died_goes_on_from_the_store_alone(home: CommandLine) -> None:
    here = home.elsewhere(home.home / "machine")
    outbox = here.home / ".featurelab" / "outbox"
    axes = ["--over", "level=1,2,3,4", "--over", "points=150"]
    process = here.start("sweep", "patient/curves", *axes, "--name", "cut", "--cpus-per-trial", "1", "--json")
    here.wait_for_point("patient/curves", "best.loss.val")
    refused = here("sweep", "patient/curves", "--resume", "cut", code=2)
    assert "cut is still being run" in refused.err
    until(lambda: [run for run in here.runs("patient/curves") if run.data.metrics.get("loss/val", 0) and unended(run)])
    process.kill()  # the workers follow, as nobody is there to ask for their results
    process.wait()
    before = {run.info.run_id: here.history(run.info.run_id, "loss/val") for run in here.runs("patient/curves")}
    assert 1 < len(before) <= 4
    shutil.rmtree(outbox)
    outbox.mkdir()

    resumed = here("sweep", "patient/curves", "--resume", "cut", "--json").document
    assert [(t["config"]["level"], t["status"]) for t in resumed["trials"]] == [
        (level, "finished") for level in (1.0, 2.0, 3.0, 4.0)
    ]
    assert set(before) <= {trial["run_id"] for trial in resumed["trials"]}
    assert len(here.runs("patient/curves")) == 4
    for trial in resumed["trials"]:
        curve = [(step, trial["config"]["level"] + 1 / step) for step in range(1, 151)]
        assert here.history(trial["run_id"], "loss/val") == curve
    assert {run.info.status for run in here.runs("patient/curves")} == {"FINISHED"}


def unended(run: Run) -> bool:
    return run.info.status == "RUNNING"


@pytest.mark.heavy
def test_an_interrupted_reproduction_goes_on_with_what_is_missing(home: CommandLine) -> None:
    here = home.elsewhere(home.home / "reproduced")
    figures = ["patient/others", "patient/curves"]
    process = here.start("reproduce", *figures, "--json")
    here.wait_for_point("patient/curves", "best.loss.val", runs=2)
    here.wait_for_point("patient/curves", "loss/val", runs=3)
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 130
    runs = {run.info.run_id: run for name in figures for run in here.runs(name)}
    finished = {run_id for run_id, run in runs.items() if run.data.tags["status"] == "finished"}
    assert len(finished) < 8
    sweeps = {run.info.run_id for run in here.runs("verdicts")}

    again = here("reproduce", *figures, "--json")
    line, *_ = again.err.splitlines()[1:]
    assert re.fullmatch(
        r"resuming an interrupted reproduction: \d of [68] trials done, \d cut short"
        r"(, 1 more figure complete)? \(--fresh begins anew\)",
        line,
    ), again.err
    said = {one["name"]: one for one in again.document["experiments"]}
    assert list(said) == figures
    assert {one["sweep_run_id"] for one in said.values()} == sweeps
    assert [claim["status"] for claim in said["patient/curves"]["claims"]] == ["holds"]
    assert len(here.runs("patient/curves")) == 6
    assert len(here.runs("patient/others")) == 2
    assert set(runs) <= {run.info.run_id for name in figures for run in here.runs(name)}
    for run in here.runs("patient/curves"):
        assert [step for step, _ in here.history(run.info.run_id, "loss/val")] == list(range(1, 41))
        assert ("attempt" in run.data.tags) == (run.info.run_id in runs and run.info.run_id not in finished)


@pytest.mark.heavy
def test_a_data_parallel_trial_goes_on_in_all_its_processes(home: CommandLine) -> None:
    here = home.elsewhere(home.home / "parallel")
    options = ["--workers-per-trial", "2", "--cpus-per-trial", "0.5", "--over", "seed=0", "--over", "points=200"]
    process = here.start("sweep", "patient/training", *options, "--name", "cut", "--json")

    def saved() -> str | None:
        for run in here.runs("patient/training"):
            if len(here.client.list_artifacts(run.info.run_id, "training")) == 4:
                return str(run.info.run_id)
        return None

    run_id = until(saved)
    os.kill(recording(here.home / ".featurelab" / "outbox", run_id), signal.SIGKILL)
    assert ended(process, timeout=240).code == 1
    (trial,) = here("sweep", "patient/training", "--resume", "cut", "--json").document["trials"]
    assert (trial["run_id"], trial["status"]) == (run_id, "finished")
    run = here.client.get_run(run_id)
    assert run.data.tags["resumed"].startswith("from step ")
    undisturbed = here("rerun", run_id, "--json").document
    assert (undisturbed["identical"], undisturbed["differences"]) == (True, [])
    assert everything(here, here.client.get_run(undisturbed["new_run_id"])) == everything(here, run)
