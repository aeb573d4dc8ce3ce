"""`featurelab sweep --print-file` writes what `--file` reads, and options override the file."""

import pytest
import yaml
from hostile import Commands, check_line

NAME = "neural_feature_ansatz/init_scale"


@pytest.fixture
def commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Commands(tmp_path)


def printed(answer):
    assert answer.code == 0, answer.err
    return yaml.safe_load(answer.out)


def test_the_printed_file_prints_as_itself_and_nothing_is_written(commands):
    options = ["width=64", "--over", "lr=loguniform(1e-4,1e-1)", "--samples", "8", "--scheduler", "asha"]
    resources = ["--cpus-per-trial", "2", "--trial-timeout", "60", "--metric", "loss/train", "--mode", "max"]
    first = commands("sweep", NAME, *options, *resources, "--print-file")
    assert printed(first) == {
        "experiment": NAME,
        "metric": {"name": "loss/train", "goal": "maximize"},
        "samples": 8,
        "parameters": {
            "width": {"value": 64},
            "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 0.1},
        },
        "scheduler": "asha",
        "resources": {"cpus": 2.0, "timeout": 60.0},
    }
    assert list(commands.home.iterdir()) == []
    (commands.home / "sweep.yaml").write_text(first.out)
    assert commands("sweep", "--file", "sweep.yaml", "--print-file").out == first.out


def test_options_override_the_file_and_leave_the_rest_of_it(commands):
    (commands.home / "sweep.yaml").write_text(
        f"experiment: {NAME}\nsamples: 8\nparameters: {{lr: {{values: [0.1]}}, width: {{value: 64}}}}\n"
        "resources: {gpus: 1, timeout: 60}\n"
    )
    options = ["lr=0.2", "--over", "width=32,64", "--samples", "2", "--gpus-per-trial", "0", "--print-file"]
    found = printed(commands("sweep", *options, "--file", "sweep.yaml"))
    assert found["parameters"] == {"lr": {"value": 0.2}, "width": {"values": [32, 64]}}
    assert (found["samples"], found["resources"]) == (2, {"timeout": 60.0})


@pytest.mark.parametrize(
    "text", ["experiment: x", f"experiment: {NAME}\nparameters: {{lrr: {{value: 1}}}}", "samples: 1"]
)
def test_a_wrong_file_gives_one_line(commands, text):
    (commands.home / "sweep.yaml").write_text(text)
    answer = commands("sweep", "--file", "sweep.yaml")
    assert (answer.code, answer.out) == (2, "")
    check_line(answer.err)


def test_a_sweep_without_experiment_and_file_is_refused(commands):
    answer = commands("sweep")
    assert answer.code == 2
    check_line(answer.err)
