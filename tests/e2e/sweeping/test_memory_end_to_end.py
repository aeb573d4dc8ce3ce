"""A machine's memory runs out: Ray ends the trial that takes it, the others go on, and its run says why it ended."""

from pathlib import Path

import pytest
from commandline import CommandLine

GIB = 2**30


def memory() -> tuple[int, int]:
    """Bytes of memory that are there, and that are free."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total, free


@pytest.mark.heavy
def test_a_trial_that_takes_all_memory_fails_alone_and_says_so(featurelab: CommandLine) -> None:
    total, free = memory()
    if free < 8 * GIB:
        pytest.skip(f"needs 8 GiB of free memory, not {free / GIB:.1f}")
    threshold = (total - free + 2.5 * GIB) / total
    scarce = {"RAY_memory_usage_threshold": f"{threshold:.3f}", "RAY_memory_monitor_refresh_ms": "100"}
    here = featurelab.elsewhere(featurelab.home, **scarce)
    axes = ["--over", "ending=well,eat", "--over", "points=3,4", "--cpus-per-trial", "2", "--name", "scarce", "--json"]
    said = here("sweep", "stranger/troubles", *axes, code=1)
    assert "2 trials failed" in said.err
    trials = {(t["config"]["ending"], t["config"]["points"]): t for t in said.document["trials"]}
    statuses = {key: trial["status"] for key, trial in trials.items()}
    assert statuses == {("well", 3): "finished", ("well", 4): "finished", ("eat", 3): "failed", ("eat", 4): "failed"}
    for (ending, points), trial in trials.items():
        run = here.client.get_run(trial["run_id"])
        assert run.data.tags["reason"] == ("the memory of its machine ran out" if ending == "eat" else "")
        assert run.info.status == ("FAILED" if ending == "eat" else "FINISHED")
        steps = [step for step, _ in here.history(trial["run_id"], "loss/val")]
        assert steps == list(range(points + (ending == "well")))

    resumed = featurelab("sweep", "stranger/troubles", "--resume", "scarce", "--json").document
    assert {trial["run_id"]: trial["status"] for trial in resumed["trials"]} == {
        trial["run_id"]: "finished" for trial in trials.values()
    }
    for (_, points), trial in trials.items():
        steps = [step for step, _ in here.history(trial["run_id"], "loss/val")]
        assert steps == list(range(points + 1))
