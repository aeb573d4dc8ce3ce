"""GPUs are packed: trials share one, leave it to others, and one that needs too much of it fails alone.

The cluster says that it has two GPUs; Ray hands them out by number, whether or not anything computes on them.
"""

from typing import Any

import pytest
from commandline import CommandLine, Said

PAUSE = 12.0  # seconds for which a trial has its GPU: in these, a loaded machine starts further workers


@pytest.fixture(scope="module")
def packed(lab: CommandLine) -> Said:
    axes = ["--over", "device=auto,cpu", "--over", "gigabytes=1,20", "--over", "seed=0,1", f"pause={PAUSE}"]
    return lab(
        "sweep", "stranger/devices", *axes, "--cpus-per-trial", "0.25", "--gpus-per-trial", "0.5", "--json", code=1
    )


def by_device(lab: CommandLine, said: Said) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {"auto": [], "cpu": []}
    for trial in said.document["trials"]:
        found[trial["config"]["device"]].append(trial["metrics"])
    return found


def test_at_most_as_many_trials_as_fit_share_each_gpu_at_a_time(lab: CommandLine, packed: Said) -> None:
    trials = by_device(lab, packed)["auto"]
    assert {trial["gpu"] for trial in trials} == {0, 1}
    for gpu in (0, 1):
        here = [trial for trial in trials if trial["gpu"] == gpu]
        assert max(sum(abs(a["began"] - b["began"]) < PAUSE for a in here) for b in here) <= 2


def test_trials_on_the_cpu_hold_no_gpu(lab: CommandLine, packed: Said) -> None:
    assert {trial["gpu"] for trial in by_device(lab, packed)["cpu"]} == {-1}
    runs = {
        run.data.tags["mlflow.featurelab.gpus"]
        for run in lab.runs("stranger/devices")
        if '"device": "cpu"' in run.data.tags["config"]
    }
    assert runs == {"0"}


def test_a_trial_that_is_out_of_gpu_memory_says_so_and_the_others_go_on(lab: CommandLine, packed: Said) -> None:
    reason = (
        "out of GPU memory: Tried to allocate 20.00 GiB. "
        "GPU 0 has a total capacity of 15.00 GiB of which 9.00 GiB is free."
    )
    assert reason in packed.err.splitlines()[-1]
    for trial in packed.document["trials"]:
        run = lab.client.get_run(trial["run_id"])
        small = trial["config"]["gigabytes"] == 1
        assert (run.data.tags["status"], run.data.tags["reason"]) == (("finished", "") if small else ("failed", reason))
        assert lab.history(trial["run_id"], "began"), "what was recorded before is kept"


def test_more_gpus_than_there_are_is_refused(lab: CommandLine) -> None:
    asked = ["sweep", "stranger/devices", "--over", "seed=0", "--cpus-per-trial", "1"]
    said = lab(*asked, "--gpus-per-trial", "4", code=2)
    assert "--gpus-per-trial 4" in said.err
    assert said.err.count("\n") == 1
    said = lab(*asked, "--gpus-per-trial", "1.5", code=2)
    assert said.err.count("\n") == 1
