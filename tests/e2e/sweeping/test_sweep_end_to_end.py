"""A sweep, a run alone and repetitions of both: what is said, what lies in MLflow, and that the bits agree."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commandline import OVER_TINY, SECRET, TINY, CommandLine, Said
from mlflow.entities import Run

NAME = "neural_feature_ansatz/init_scale"
METRICS = {"catapult", "cnfa/0", "cnfa/1", "loss/test", "loss/train", "nfa/0", "nfa/1"}
LRS = [0.01, 0.02]


@pytest.fixture(scope="module")
def home(lab: CommandLine) -> CommandLine:
    """This module's directory, whose sweeps run on a Ray of their own, as they do by default."""
    return replace(lab, environment={k: v for k, v in lab.environment.items() if k != "RAY_ADDRESS"})


@pytest.fixture(scope="module")
def swept(home: CommandLine) -> Said:
    axes = [*OVER_TINY, "--over", "seed=0,1", "--over", "lr=0.01,0.02", "--over", "init_scale=choice(0.5,0.5)"]
    options = ["--name", "first", "--scheduler", "fifo", "--json"]
    return home("sweep", NAME, *axes, *options)


@pytest.fixture(scope="module")
def alone(home: CommandLine, swept: Said) -> Said:
    """The second trial of the sweep, run by itself."""
    return home("run", NAME, *TINY, "seed=0", "lr=0.02", "init_scale=0.5", "--json")


@pytest.fixture(scope="module")
def runs(home: CommandLine, swept: Said) -> list[Run]:
    return [home.client.get_run(trial["run_id"]) for trial in swept.document["trials"]]


def curves(home: CommandLine, run_id: str) -> dict[str, list[tuple[int, float]]]:
    return {metric: home.history(run_id, metric) for metric in sorted(METRICS)}


def artifact(home: CommandLine, run_id: str, path: str) -> Path:
    return Path(home.client.download_artifacts(run_id, path))


def test_a_sweep_says_its_trials_and_the_best(swept: Said) -> None:
    said = swept.document
    assert set(said) == {"sweep_run_id", "name", "trials", "best"}
    assert said["name"] == "first"
    assert [set(trial) for trial in said["trials"]] == [{"run_id", "config", "status", "metrics"}] * 4
    assert sorted((t["config"]["seed"], t["config"]["lr"]) for t in said["trials"]) == [
        (seed, lr) for seed in (0, 1) for lr in LRS
    ]
    assert {trial["status"] for trial in said["trials"]} == {"finished"}
    assert all(set(trial["metrics"]) == METRICS for trial in said["trials"])
    best = min(said["trials"], key=lambda trial: trial["metrics"]["loss/test"])
    by = {"metric": "loss/test", "mode": "min", "value": best["metrics"]["loss/test"], "step": None}
    among = f"{len(said['trials'])} finished trials"
    assert said["best"] == best | {"ranked": by | {"among": among}}


def test_away_from_a_terminal_a_sweep_says_now_and_then_how_far_it_is_and_nothing_else(swept: Said) -> None:
    line = re.compile(r"init_scale: \d of 4 trials, \d running, 0 failed, (\d+ min )?\d+ s(, about .* left)?")
    assert all(line.fullmatch(said) for said in swept.err.splitlines())


def test_a_run_says_its_config_and_last_values_and_nothing_else(alone: Said) -> None:
    said = alone.document
    assert set(said) == {"run_id", "experiment", "config", "metrics", "status"}
    assert (said["experiment"], said["status"]) == (NAME, "finished")
    assert set(said["metrics"]) == METRICS
    assert said["config"]["lr"] == 0.02
    assert alone.err == ""


def test_trials_lie_flat_in_one_experiment_of_the_kind_that_shows_charts(home: CommandLine, runs: list[Run]) -> None:
    (kept,) = {run.info.experiment_id for run in runs}
    experiment = home.client.get_experiment(kept)
    assert experiment.name == NAME
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert all("mlflow.parentRunId" not in run.data.tags for run in runs)
    verdicts = home.client.get_experiment_by_name("verdicts")
    assert verdicts.tags["mlflow.experimentKind"] == "custom_model_development"


def test_trials_are_tagged_with_where_they_belong(swept: Said, runs: list[Run]) -> None:
    for run in runs:
        assert (
            run.data.tags.items()
            >= {
                "system": "neural_feature_ansatz",
                "experiment": NAME,
                "figure": "Fig. 2",
                "scale": "laptop",
                "sweep": "first",
                "sweep_run_id": swept.document["sweep_run_id"],
                "status": "finished",
            }.items()
        )
        assert run.info.status == "FINISHED"
    assert len({run.data.tags["config_hash"] for run in runs}) == 4


def test_names_say_what_varies_and_params_only_what_is_not_the_preset(runs: list[Run]) -> None:
    assert sorted(run.info.run_name for run in runs) == [f"lr={lr} seed={seed}" for lr in LRS for seed in (0, 1)]
    settings = {part.partition("=")[0] for part in TINY}
    assert all(set(run.data.params) - {"threads"} == settings | {"seed", "lr", "init_scale"} for run in runs)


def test_last_and_best_values_stand_beside_the_curves(home: CommandLine, runs: list[Run]) -> None:
    for run in runs:
        for metric in METRICS:
            points = home.history(run.info.run_id, metric)
            # before the first step there is no change of the weights to compare
            expected = {"catapult": [20], "cnfa/0": [10, 20], "cnfa/1": [10, 20]}.get(metric, [0, 10, 20])
            assert [step for step, _ in points] == expected
            assert run.data.metrics[metric] == points[-1][1]
        losses = [value for _, value in home.history(run.info.run_id, "loss/test")]
        assert run.data.metrics["best.loss.test"] == min(losses)


def test_artifacts_hold_what_it_takes_to_run_again(home: CommandLine, swept: Said, runs: list[Run]) -> None:
    for trial, run in zip(swept.document["trials"], runs, strict=True):
        assert json.loads(artifact(home, run.info.run_id, "config.json").read_text()) == trial["config"]
        surroundings = json.loads(artifact(home, run.info.run_id, "environment.json").read_text())
        assert any(package.startswith("torch==") for package in surroundings["packages"])
        assert surroundings["threads"] == trial["config"]["threads"]
        (data,) = run.inputs.dataset_inputs
        assert 0 < len(data.dataset.digest) <= 36
    digests = {run.data.tags["config"]: run.inputs.dataset_inputs[0].dataset.digest for run in runs}
    seeds = {json.loads(config)["seed"]: digest for config, digest in digests.items()}
    assert len(set(digests.values())) == len(set(seeds.values())) == 2, "data depend on the seed and nothing else here"


def test_the_checkpoint_loads_without_running_code(home: CommandLine, runs: list[Run]) -> None:
    kept = torch.load(artifact(home, runs[0].info.run_id, "checkpoints/last.ckpt"), weights_only=True)
    shapes = sorted(tuple(weight.shape) for weight in kept["state_dict"].values())
    assert shapes == [(1, 16), (16, 8), (16, 16)]


def test_the_sweep_run_holds_plan_and_results(home: CommandLine, swept: Said) -> None:
    said = swept.document
    run = home.client.get_run(said["sweep_run_id"])
    assert (run.info.status, run.data.tags["status"], run.data.tags["sweep"]) == ("FINISHED", "finished", "first")
    assert run.data.metrics["trials/finished"] == 4
    plan = json.loads(artifact(home, said["sweep_run_id"], "plan.json").read_text())
    assert plan["configs"] == [trial["config"] for trial in said["trials"]]
    table = artifact(home, said["sweep_run_id"], "results.csv").read_text().splitlines()
    assert len(table) == 5
    assert all(trial["run_id"] in "".join(table) for trial in said["trials"])


def test_no_environment_variable_is_kept(home: CommandLine, alone: Said) -> None:
    # grep, because a database that this process has open must not be opened and closed by it once more
    found = subprocess.run(["grep", "-rla", "-e", SECRET, "-e", "Fig. 2", home.home], capture_output=True, text=True)
    assert "mlflow.db" in found.stdout
    assert subprocess.run(["grep", "-rqa", SECRET, home.home]).returncode == 1


def test_nothing_is_left_in_the_outbox_and_sync_says_so(home: CommandLine, alone: Said) -> None:
    assert os.listdir(home.home / ".featurelab" / "outbox") == []
    assert home("sync").err.startswith("0 runs sent")


def test_a_trial_has_the_same_bits_alone_and_inside_ray_and_seeds_differ(
    home: CommandLine, swept: Said, alone: Said
) -> None:
    of = {(t["config"]["seed"], t["config"]["lr"]): curves(home, t["run_id"]) for t in swept.document["trials"]}
    assert curves(home, alone.document["run_id"]) == of[0, 0.02]
    assert of[0, 0.02]["loss/train"] != of[1, 0.02]["loss/train"]
    assert of[0, 0.01]["loss/train"][0] == of[0, 0.02]["loss/train"][0], "the learning rate changed the initial weights"


def test_rerunning_a_run_and_a_trial_of_a_sweep_is_identical(home: CommandLine, swept: Said, alone: Said) -> None:
    for run_id in (alone.document["run_id"], swept.document["trials"][0]["run_id"]):
        said = home("rerun", run_id, "--json").document
        assert said["run_id"] == run_id
        assert (said["identical"], said["max_abs_diff"], said["differences"]) == (True, 0.0, [])
        assert said["metrics_compared"] == len(METRICS)
        assert said["environment_changes"] == []
        assert curves(home, said["new_run_id"]) == curves(home, run_id)
        assert home.client.get_run(said["new_run_id"]).data.tags["rerun_of"] == run_id


def test_rerunning_a_whole_sweep_is_identical(lab: CommandLine, home: CommandLine, swept: Said) -> None:
    said = lab("rerun", swept.document["sweep_run_id"], "--json").document
    assert (said["identical"], said["max_abs_diff"], said["differences"]) == (True, 0.0, [])
    assert said["metrics_compared"] == 4 * len(METRICS)
    new = home.client.get_run(said["new_run_id"])
    assert new.data.tags["rerun_of"] == swept.document["sweep_run_id"]
    assert new.info.status == "FINISHED"


def test_rerunning_tells_a_tampered_record_from_its_repetition(home: CommandLine, swept: Said) -> None:
    run_id = swept.document["trials"][3]["run_id"]
    home.client.log_metric(run_id, "loss/train", 0.125, step=999)
    said = home("rerun", run_id, "--json", code=1).document
    assert not said["identical"]
    assert said["differences"] == ["loss/train at step 999 is missing"]


def test_rerunning_names_what_came_out_otherwise(home: CommandLine) -> None:
    first = home("run", "stranger/noise", "--json").document
    said = home("rerun", first["run_id"], "--json", code=1).document
    (difference,) = said["differences"]
    assert difference.startswith("noise at step 0: ")
    again = home.history(said["new_run_id"], "noise")[0][1]
    assert said["max_abs_diff"] == abs(again - first["metrics"]["noise"]) > 0
    assert said["metrics_compared"] == 2


def test_a_second_sweep_of_the_same_name_is_refused(lab: CommandLine, home: CommandLine, swept: Said) -> None:
    before: list[Any] = [run.info.run_id for run in home.runs(NAME)]
    said = lab("sweep", NAME, "--over", "lr=0.1", "--name", "first", code=2)
    assert said.err.startswith("featurelab: a sweep called first exists")
    assert [run.info.run_id for run in home.runs(NAME)] == before


def test_comparing_runs_shows_what_differs(home: CommandLine, swept: Said) -> None:
    first, second = swept.document["trials"][:2]
    said = home("compare", first["run_id"], second["run_id"], "--json").document
    assert said["settings"] == {"lr": [0.01, 0.02]}
    assert said["metrics"]["loss/test"] == [first["metrics"]["loss/test"], second["metrics"]["loss/test"]]
    assert first["run_id"] in said["url"]
    table = home("compare", first["run_id"], second["run_id"]).out
    assert "lr" in table
    assert "0.01" in table
