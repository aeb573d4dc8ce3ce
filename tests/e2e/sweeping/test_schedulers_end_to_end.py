"""Searches: draws, early stopping, and trials of several processes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import OVER_TINY, TINY, CommandLine

LEVELS = [float(level) for level in range(9)]
COUNTING = Path(__file__).parents[1] / "counting.py"
CURVES = ["sweep", "stranger/curves", "--over", f"level={','.join(map(str, LEVELS))}"]


def test_asha_stops_poor_trials_and_keeps_the_best(lab: CommandLine) -> None:
    options = ["--over", "steps=60", "--over", "pause=0.02", "--scheduler", "asha", "--cpus-per-trial", "0.5", "--json"]
    said = lab(*CURVES, *options, "--metric", "loss/val", "--mode", "min").document
    points = {t["config"]["level"]: len(lab.history(t["run_id"], "loss/val")) for t in said["trials"]}
    statuses = {trial["config"]["level"]: trial["status"] for trial in said["trials"]}
    assert set(points) == set(LEVELS)
    assert said["best"]["config"]["level"] == 0.0
    assert (points[0.0], statuses[0.0]) == (60, "finished")
    stopped = [level for level in LEVELS if statuses[level] == "stopped"]
    assert len(stopped) >= 4
    assert all(3 <= points[level] < 60 for level in stopped)
    assert all(points[level] == 60 for level in LEVELS if level not in stopped)
    for trial in said["trials"]:
        run = lab.client.get_run(trial["run_id"])
        assert run.info.status == "FINISHED"
        assert trial["metrics"]["loss/val"] == pytest.approx(
            trial["config"]["level"] + 1 / points[trial["config"]["level"]]
        )


def test_a_trial_that_was_stopped_early_is_not_the_best_though_its_last_value_is(lab: CommandLine) -> None:
    levels = ["--over", "level=0.005,0.004,0.003,0.002,0.001,0", "--over", "steps=40", "--over", "pause=0.02"]
    asked = ["--scheduler", "asha", "--metric", "loss/val", "--mode", "max", "--cpus-per-trial", "0.5"]
    # the curves fall: what was stopped has the highest value
    said = lab("sweep", "stranger/curves", *levels, *asked, "--name", "falling")
    trials = [run for run in lab.runs("stranger/curves") if run.data.tags["sweep"] == "falling"]
    last = {run.info.run_id: run.data.metrics["loss/val"] for run in trials}
    finished = {run.info.run_id: last[run.info.run_id] for run in trials if run.data.tags["status"] == "finished"}
    assert max(last.values()) > max(finished.values())
    best = max(finished, key=lambda run_id: finished[run_id])
    among = f"{len(finished)} finished trial{'s' * (len(finished) > 1)}"
    assert f"best loss/val: {finished[best]:.4g} in {best} (among {among})\n" in said.err
    shown = [run_id for run_id in re.findall(r"[0-9a-f]{32}", said.out) if run_id in last]
    assert shown[: len(finished)] == sorted(finished, key=lambda run_id: -finished[run_id])
    assert len(shown) == len(last) > len(finished)


def test_fifo_runs_every_trial_to_its_end_and_ranks_as_told(lab: CommandLine) -> None:
    said = lab(*CURVES, "--mode", "max", "--json").document
    assert {trial["status"] for trial in said["trials"]} == {"finished"}
    assert {len(lab.history(trial["run_id"], "loss/val")) for trial in said["trials"]} == {12}
    assert said["best"]["config"]["level"] == 8.0


def test_draws_stay_in_their_domains_and_come_out_the_same_again(lab: CommandLine) -> None:
    axes = ["--over", "level=uniform(1,2)", "--over", "lr=loguniform(1e-3,1e-1)", "--over", "steps=randint(2,5)"]
    command = ["sweep", "stranger/curves", *axes, "--over", "seed=0,1", "--samples", "4", "--json"]
    first, second = (lab(*command).document for _ in range(2))
    configs = [trial["config"] for trial in first["trials"]]
    assert len(configs) == 8
    assert all(1 <= c["level"] <= 2 and 1e-3 <= c["lr"] <= 1e-1 and c["steps"] in (2, 3, 4) for c in configs)
    assert len({c["level"] for c in configs}) == 8
    assert [c["seed"] for c in configs] == [0] * 4 + [1] * 4
    assert configs == [trial["config"] for trial in second["trials"]]
    assert all(len(lab.history(t["run_id"], "loss/val")) == t["config"]["steps"] for t in first["trials"])
    assert first["name"] != second["name"]


def test_two_workers_train_as_one_on_the_same_global_batch(lab: CommandLine) -> None:
    one = lab("run", "neural_feature_ansatz/init_scale", *TINY, "--json").document
    workers = ["--workers-per-trial", "2", "--cpus-per-trial", "0.5"]
    command = ["sweep", "neural_feature_ansatz/init_scale", *OVER_TINY, *workers, "--json"]
    (two,) = lab(*command).document["trials"]
    assert (one["status"], two["status"]) == ("finished", "finished")
    for metric in ("loss/train", "loss/test", "nfa/0"):
        values = [[value for _, value in lab.history(trial["run_id"], metric)] for trial in (one, two)]
        assert len(values[0]) == 3
        assert values[1] == pytest.approx(values[0], rel=0, abs=1e-9)
    assert len(lab.runs("neural_feature_ansatz/init_scale")) == 2


@pytest.mark.heavy
@pytest.mark.parametrize(
    "asked",
    [
        ["stranger/troubles", "--over", "ending=well,die,raise,nan", "--over", "points=0,1,2"],
        ["stranger/curves", "--over", f"seed={','.join(map(str, range(20)))}", "--scheduler", "asha"],
    ],
    ids=["fifo", "asha"],
)
def test_the_driver_lets_go_of_trials_that_are_over(lab: CommandLine, asked: list[str]) -> None:
    waiting, running, just_ended = 2, 2, 2
    # the second, set by a user, would have Tune leave out our callback
    environment = lab.environment | {"TUNE_MAX_PENDING_TRIALS_PG": str(waiting), "RAY_AIR_NEW_OUTPUT": "1"}
    command = [sys.executable, str(COUNTING), "sweep", *asked, "--cpus-per-trial", "0.5"]
    done = subprocess.run(command, cwd=lab.home, env=environment, capture_output=True, text=True, timeout=300)
    found = re.search(r"of (\d+) trials at most (\d+) at once", done.stderr)
    assert found, done.stderr
    trials, most = map(int, found.groups())
    assert trials >= 12
    assert most <= waiting + running + just_ended
