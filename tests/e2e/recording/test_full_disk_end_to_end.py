"""Disks that are really full, below the outbox, the store, or both: what is lost, what is said, and what goes on."""

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from commandline import CommandLine, ended, sent

M = 2**20


@dataclass
class Disk:
    """A file system in memory, of a size."""

    path: Path

    def resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=True)

    def fill(self) -> None:
        """Take every byte that is left."""
        with (self.path / "filler").open("wb", buffering=0) as file:
            for size in (2**16, 1):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def empty(self) -> None:
        (self.path / "filler").unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Disk]]:
    made = Disk(tmp_path / "disk")
    made.path.mkdir()

    def mount(size: int) -> Disk:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", made.path]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
        return made

    yield mount
    subprocess.run(["umount", "--lazy", made.path], capture_output=True)


def counted(here: CommandLine, run_id: str) -> int:
    """How many points of the curve are stored; they are the first ones, each once, and `seed_seen` has as many."""
    curve = Counter(step for step, _ in here.history(run_id, "loss/val"))
    assert curve == Counter(range(1, len(curve) + 1))
    assert Counter(step for step, _ in here.history(run_id, "seed_seen")) == curve
    return len(curve)


@pytest.mark.heavy
def test_a_trial_that_fills_the_disk_of_the_outbox_fails_alone_and_goes_on_once_there_is_room(
    lab: CommandLine, disk: Callable[[int], Disk]
) -> None:
    small = disk(M)
    here = lab.elsewhere(lab.home / "outbox-full", FEATURELAB_OUTBOX=str(small.path))
    lengths = [40, 20000, 50]
    axes = ["--over", f"steps={','.join(map(str, lengths))}", "--name", "full", "--json"]
    said = here("sweep", "stranger/curves", *axes, code=1)
    assert "Traceback" not in said.err
    trials = {trial["config"]["steps"]: trial for trial in said.document["trials"]}
    assert {steps: trial["status"] for steps, trial in trials.items()} == {
        40: "finished",
        20000: "failed",
        50: "finished",
    }
    glutton = trials[20000]["run_id"]
    reason = f"the disk is full: {small.path}/{glutton}.jsonl"
    assert f"1 trial failed: {reason}\n" in said.err
    run = here.client.get_run(glutton)
    assert (run.info.status, run.data.tags["status"], run.data.tags["reason"]) == ("FAILED", "failed", reason)
    assert [counted(here, trials[steps]["run_id"]) for steps in (40, 50)] == [40, 50]
    number = counted(here, glutton)
    print(f"\n{number} points were recorded before the disk was full, as many are stored")
    assert 0.7 * M < number * 75 < 1.1 * M
    assert list(small.path.iterdir()) == [], "what has arrived takes no room"

    small.resize(16 * M)
    assert sent(here) == (0, 0, 0)
    resumed = here("sweep", "stranger/curves", "--resume", "full", "--json").document
    assert {trial["run_id"]: trial["status"] for trial in resumed["trials"]} == {
        trial["run_id"]: "finished" for trial in trials.values()
    }
    assert [counted(here, trials[steps]["run_id"]) for steps in lengths] == lengths
    assert here.client.get_run(glutton).info.status == "FINISHED"


@pytest.mark.heavy
def test_nothing_begins_on_a_disk_that_is_full_already(lab: CommandLine, disk: Callable[[int], Disk]) -> None:
    small = disk(M)
    here = lab.elsewhere(lab.home / "full-before", FEATURELAB_OUTBOX=str(small.path))
    small.fill()
    said = here("run", "stranger/curves", "--json", code=1)
    run_id = said.document["run_id"]
    assert (said.document["status"], "Traceback" in said.err) == ("failed", False)
    run = here.client.get_run(run_id)
    assert run.data.tags["reason"] == f"the disk is full: {small.path}/{run_id}.jsonl"
    assert run.info.status == "FAILED"
    small.empty()
    assert here("run", "stranger/curves", "--json").document["status"] == "finished"


@pytest.mark.heavy
def test_a_store_whose_disk_is_full_for_seconds_costs_nothing(lab: CommandLine, disk: Callable[[int], Disk]) -> None:
    small = disk(16 * M)
    here = lab.elsewhere(
        lab.home / "store-full",
        MLFLOW_TRACKING_URI=f"sqlite:///{small.path}/mlflow.db",
        FEATURELAB_OUTBOX=str(lab.home / "store-full" / "outbox"),
    )
    axes = ["--over", "level=1,2", "--over", "steps=80", "--over", "pause=0.05", "--cpus-per-trial", "0.5", "--json"]
    process = here.start("sweep", "stranger/curves", *axes)
    here.wait_for_point("stranger/curves", "loss/val", runs=2)
    small.fill()
    time.sleep(7)
    assert [run for run in here.runs("stranger/curves") if run.info.status != "RUNNING"] == []
    small.empty()
    said = ended(process, timeout=120)
    assert (said.code, "Traceback" in said.err) == (0, False)
    assert [trial["status"] for trial in said.document["trials"]] == ["finished", "finished"]
    assert [counted(here, trial["run_id"]) for trial in said.document["trials"]] == [80, 80]


@pytest.mark.heavy
@pytest.mark.parametrize("outbox", ["apart", "on the same disk"])
def test_a_store_whose_disk_stays_full_ends_a_sweep_in_one_line_and_resuming_completes_it(
    lab: CommandLine, disk: Callable[[int], Disk], outbox: str, tmp_path: Path
) -> None:
    small = disk(16 * M)
    kept = tmp_path / "outbox" if outbox == "apart" else small.path / "outbox"
    store = f"sqlite:///{small.path}/mlflow.db"
    here = lab.elsewhere(tmp_path / "home", MLFLOW_TRACKING_URI=store, FEATURELAB_OUTBOX=str(kept))
    axes = ["--over", "level=1,2,3,4,5,6", "--over", "steps=400", "--over", "pause=0.02", "--cpus-per-trial", "0.25"]
    process = here.start("sweep", "stranger/curves", *axes, "--name", "full", "--json")
    here.wait_for_point("stranger/curves", "loss/val", runs=4)
    small.fill()
    said = ended(process, timeout=400)
    assert (said.code, said.out) == (1, "")
    assert said.err.count("\n") == 1
    for named in (store, "the disk is full", "featurelab sync", "--resume full"):
        assert named in said.err
    before = [run.info.run_id for run in here.runs("stranger/curves")]
    assert len(before) == 4, "two came too late to open a run"
    assert sent(here, code=1) == (0, 0, 4)

    small.empty()
    assert sent(here) == (4, 0, 0)
    whole = [counted(here, run_id) for run_id in before]
    print(f"\n{outbox}: {whole} points of 400 each before resuming")
    assert whole == [400] * 4 if outbox == "apart" else all(0 < number < 400 for number in whole)
    resumed = here("sweep", "stranger/curves", "--resume", "full", "--json").document
    assert [trial["status"] for trial in resumed["trials"]] == ["finished"] * 6
    assert set(before) <= {trial["run_id"] for trial in resumed["trials"]}
    assert [counted(here, trial["run_id"]) for trial in resumed["trials"]] == [400] * 6
    assert {run.info.status for run in here.runs("stranger/curves")} == {"FINISHED"}
