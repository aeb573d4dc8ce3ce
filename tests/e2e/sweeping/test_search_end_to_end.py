"""A sweep that learns: killed and resumed it makes the same draws, and each trial can be repeated."""

from typing import Any

from commandline import TINY, CommandLine, until

NAME = "neural_feature_ansatz/init_scale"
CURVES = ["points=3", "pause=0.1", "--over", "level=uniform(0,4)", "--over", "seed=1,2,3,4"]
LEARNING = ["--search", "optuna", "--samples", "13", "--metric", "loss/val", "--mode", "min"]


def draws(document: Any) -> list[tuple[float, int]]:
    return [(trial["config"]["level"], trial["config"]["seed"]) for trial in document["trials"]]


def test_a_killed_search_resumes_with_the_draws_that_it_would_have_made(lab: CommandLine) -> None:
    here = lab.desk("search")
    whole = here("sweep", "patient/curves", *CURVES, *LEARNING, "--name", "whole", "--json").document
    assert len(set(draws(whole))) == 13
    assert [trial["status"] for trial in whole["trials"]] == ["finished"] * 13

    process = here.start("sweep", "patient/curves", *CURVES, *LEARNING, "--name", "cut")
    until(lambda: len(here.runs("patient/curves")) >= 13 + 12)  # the first that has learned has begun
    process.kill()
    process.wait()
    before = {run.info.run_id for run in here.runs("patient/curves") if run.data.tags["sweep"] == "cut"}
    resumed = here("sweep", "patient/curves", "--resume", "cut", "--json").document
    assert draws(resumed) == draws(whole)
    assert before <= {trial["run_id"] for trial in resumed["trials"]}
    assert resumed["best"]["config"] == whole["best"]["config"]
    again = here("rerun", resumed["trials"][-1]["run_id"], "--json").document
    assert (again["identical"], again["differences"]) == (True, [])


def test_a_search_learns_from_trials_that_asha_stops(lab: CommandLine) -> None:
    here = lab.desk("asha")
    said = here("sweep", "patient/curves", "points=12", *CURVES[1:], *LEARNING, "--scheduler", "asha", "--json")
    statuses = [trial["status"] for trial in said.document["trials"]]
    assert (len(statuses), set(statuses)) == (13, {"finished", "stopped"}), said.err
    assert len(set(draws(said.document))) == 13


def test_a_search_by_several_metrics_ends_with_their_front_and_each_trial_keeps_its_best_weights(
    lab: CommandLine,
) -> None:
    here = lab.desk("several")
    over = ["--over", "lr=loguniform(1e-3,1e-1)", "--search", "optuna", "--samples", "4"]
    goals = ["--metric", "loss/test", "--metric", "nfa/0", "--mode", "min,max"]
    document = here("sweep", NAME, *TINY, *over, *goals, "--save", "best", "--json").document
    assert all(run.data.tags["weights/1"].startswith("best at step ") for run in here.runs(NAME))
    points = {
        trial["run_id"]: (trial["metrics"]["loss/test"], -trial["metrics"]["nfa/0"]) for trial in document["trials"]
    }
    front = [trial["run_id"] for trial in document["front"]]
    assert min(points, key=lambda run_id: points[run_id]) in front
    assert min(points, key=lambda run_id: points[run_id][::-1]) in front
    assert document["best"]["run_id"] == min(points, key=lambda run_id: points[run_id])
