"""Stopping early never loses points, leaves a run open, or blames a worker."""

from collections import Counter

import pytest
from commandline import TINY, CommandLine

NAME = "neural_feature_ansatz/init_scale"
SEARCH = ["--over", "lr=loguniform(1e-3,1e-1)", "--over", "width=16,32", "--samples", "4"]
MEASURED = [*TINY[:3], "rank=3", "steps=60", "measure_every=3"]


def check_asha_sweeps(here: CommandLine, number: int) -> None:
    stopped = 0
    for repetition in range(number):
        options = ["--scheduler", "asha", "--metric", "loss/test", "--mode", "min", "--name", f"sweep-{repetition}"]
        options += ["--cpus-per-trial", "0.5"]
        said = here("sweep", NAME, *MEASURED, *SEARCH, *options, "--json")
        trials = said.document["trials"]
        statuses = Counter(trial["status"] for trial in trials)
        assert set(statuses) <= {"finished", "stopped"}, said.err
        assert statuses.total() == 8
        stopped += statuses["stopped"]
        assert "died" not in said.err
        for trial in trials:
            run = here.client.get_run(trial["run_id"])
            assert (run.info.status, run.data.tags["status"]) == ("FINISHED", trial["status"])
            for metric in ("loss/test", "loss/train", "nfa/0"):
                points = here.history(trial["run_id"], metric)
                assert [step for step, _ in points] == [3 * i for i in range(len(points))]
            assert run.data.metrics["loss/test"] == here.history(trial["run_id"], "loss/test")[-1][1]
            whole = len(here.history(trial["run_id"], "loss/test")) == 21
            assert whole == (trial["status"] == "finished")
        (sweep,) = [run for run in here.runs("verdicts") if run.info.run_id == said.document["sweep_run_id"]]
        assert (sweep.info.status, sweep.data.tags["status"]) == ("FINISHED", "finished")
        assert list((here.home / ".featurelab" / "outbox").iterdir()) == []
    assert stopped >= 2 * number, "the scheduler has stopped some in each"


def test_no_trial_of_an_asha_sweep_is_lost_and_a_stopped_one_is_repeated(lab: CommandLine) -> None:
    check_asha_sweeps(lab, 1)
    stopped = [run.info.run_id for run in lab.runs(NAME) if run.data.tags["status"] == "stopped"]
    said = lab("rerun", stopped[0], "--json").document
    assert (said["identical"], said["differences"]) == (True, [])
    assert said["points_compared"] == said["points_recorded"] < said["points_repeated"]


@pytest.mark.heavy
def test_no_trial_of_fifty_asha_sweeps_is_lost(featurelab: CommandLine) -> None:
    check_asha_sweeps(featurelab, 50)
