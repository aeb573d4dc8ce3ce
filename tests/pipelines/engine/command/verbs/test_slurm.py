"""The batch script of `featurelab slurm` is valid, asks Slurm for what was typed, and refuses what would fail there."""

import subprocess

import pytest
from hostile import Commands, check_line

from featurelab.pipelines.engine.command.verbs.slurm import seconds_of
from featurelab.pipelines.engine.errors import RequestError

NAME = "neural_feature_ansatz/init_scale"
STORE = "http://10.0.0.5:5000"


@pytest.fixture
def commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "my sweep.yaml").write_text(f"experiment: {NAME}\nresources: {{gpus: 0.5}}\n")
    return Commands(tmp_path)


def script(commands, *options):
    answer = commands("slurm", "my sweep.yaml", "--time", "12:00:00", *options)
    assert answer.code == 0, answer.err
    checked = subprocess.run(["bash", "-n"], input=answer.out, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    return answer.out


def directives(text):
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_the_script_is_bash_and_its_directives_say_what_was_typed(commands):
    options = ["--nodes", "4", "--gpus-per-node", "8", "--partition", "long", "--store", STORE]
    text = script(commands, *options)
    assert directives(text) == {
        "job-name": "my_sweep",
        "output": "my_sweep-%j.log",
        "open-mode": "append",
        "nodes": "4",
        "ntasks-per-node": "1",
        "gpus-per-node": "8",
        "time": "12:00:00",
        "partition": "long",
        "signal": "B:USR1@300",
        "requeue": "",
        "exclusive": "",
    }
    assert text.startswith("#!/usr/bin/env bash\n#SBATCH"), "sbatch reads directives up to the first command"
    assert f"export MLFLOW_TRACKING_URI={STORE}\n" in text
    assert "srun $log --nodes=3 --ntasks=3 --exclude" in text
    assert f"--file '{commands.home / 'my sweep.yaml'}' --resume" in text


def test_one_node_starts_no_workers_and_may_have_some_of_its_cpus(commands):
    text = script(commands, "--gpus-per-node", "1", "--cpus-per-node", "6")
    assert text.count("srun ") == 1
    assert directives(text)["cpus-per-task"] == "6"
    assert "exclusive" not in directives(text)


def test_a_password_in_the_address_of_the_store_stays_out_of_the_script(commands):
    text = script(commands, "--nodes", "2", "--gpus-per-node", "1", "--store", "http://me:secret@10.0.0.5:5000")
    assert "secret" not in text
    assert "${MLFLOW_TRACKING_URI:?" in text


@pytest.mark.parametrize(
    "options",
    [
        ["--time", "12:00:00", "--nodes", "2", "--gpus-per-node", "1"],
        ["--time", "12:00:00", "--nodes", "2", "--gpus-per-node", "1", "--store", "sqlite:///mlflow.db"],
        ["--time", "noon", "--gpus-per-node", "1"],
        ["--time", "5", "--gpus-per-node", "1"],
        ["--time", "12:00:00", "--gpus-per-node", "1", "--partition", "a\n#SBATCH --uid=0"],
        ["--time", "12:00:00"],
    ],
    ids=["no store", "a file", "no time", "too short", "no partition", "no GPUs"],
)
def test_what_would_fail_on_the_cluster_gives_one_line(commands, options):
    answer = commands("slurm", "my sweep.yaml", *options)
    assert (answer.code, answer.out) == (2, "")
    check_line(answer.err)


@pytest.mark.parametrize(("time", "seconds"), [("90", 5400), ("1:30", 90), ("12:00:00", 43_200), ("1-6:30", 109_800)])
def test_a_time_limit_is_read_as_sbatch_reads_it(time, seconds):
    assert seconds_of(time) == seconds


@pytest.mark.parametrize("time", ["", "1:2:3:4", "1-", "-5", "1.5"])
def test_what_sbatch_does_not_take_is_no_time_limit(time):
    with pytest.raises(RequestError):
        seconds_of(time)
