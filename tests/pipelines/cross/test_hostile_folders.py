"""Hostile data and models through the command line: status 2, one line, and nothing is run or written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import Commands, check_line

datasets, transformers = pytest.importorskip("datasets"), pytest.importorskip("transformers")
for part in ("data", "language"):
    sys.path.append(str(Path(__file__).parents[2] / "modules" / part))

from hostilefolders import FOLDERS, spoiled  # noqa: E402
from hostiletables import CANARY, TABLES, pictures, png  # noqa: E402
from tinyllama import save_llama  # noqa: E402


@pytest.fixture
def commands(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("MLFLOW_TRACKING_URI", "FEATURELAB_OUTBOX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "data").mkdir()
    return Commands(home)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_llama(folder)
    return folder


@pytest.mark.parametrize(
    "wrong",
    [
        "other columns",
        "labels NaN",
        "labels negative",
        "picture of 30,000 x 30,000",
        "PostScript",
        "picture by fifo",
        "not parquet",
        "truncated",
        "fifo",
    ],
)
def test_data_check_refuses_hostile_data_in_one_line(wrong, commands, tmp_path):
    name = TABLES[wrong][0](tmp_path / "data")
    line = commands.refusal("data", "check", name)
    assert str(tmp_path / "data" / name) in line or f"{name}, train" in line
    assert not (tmp_path / "data" / CANARY).exists()


def test_data_list_shows_the_others_and_names_what_is_wrong(commands, tmp_path):
    name = TABLES["labels NaN"][0](tmp_path / "data")
    answer = commands("data", "list", "--json")
    assert answer.code == 0
    assert '"name": "cifar10"' in answer.out
    check_line(answer.err)
    assert str(tmp_path / "data" / name) in answer.err


@pytest.mark.parametrize(
    "wrong",
    [
        "pickled payload",
        "code, unknown type",
        "10^9 layers",
        "10^9 words",
        "tokenizer of 100 MB",
        "index outside",
        "tokenizer a fifo",
        "config deep",
    ],
)
def test_a_run_with_a_hostile_model_is_refused_in_one_line(wrong, commands, tmp_path, llama):
    (tmp_path / "data" / "sst2").mkdir()
    for split in ("train", "validation"):
        rows = datasets.Dataset.from_dict({"sentence": ["a"] * 20, "label": [0, 1] * 10})
        rows.to_parquet(tmp_path / "data" / "sst2" / f"{split}-0.parquet")
    folder = spoiled(llama, tmp_path, FOLDERS[wrong][0])
    line = commands.refusal("run", "icl_scale/sentiment", "--scale", "paper", f"model={folder}")
    assert str(folder) in line
    assert not (tmp_path / CANARY).exists()


@pytest.mark.heavy
def test_a_run_that_meets_a_damaged_picture_fails_with_that_reason(tmp_path):
    pictures(tmp_path / "data", [png(90, 90, empty=True)] * 20)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "featurelab.pipelines.engine.command.cli",
            "run",
            "deep_neural_collapse/mlp",
            "--scale",
            "paper",
            "n_train=20",
            "n_test=20",
            "epochs=1",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"FEATURELAB_DATA": str(tmp_path / "data"), "HF_DATASETS_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 1
    assert "failed: DatasetRefused: mnist, train, row 0 of 20: a picture cannot be decoded" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
