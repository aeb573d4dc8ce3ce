"""The example runs, on random weights and on a model from disk."""

import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tests" / "pipelines"))


def said(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["own_model.py", *map(str, words)])
    runpy.run_path(str(ROOT / "examples" / "own_model.py"), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_random_weights(monkeypatch, capsys):
    lines = said(monkeypatch, capsys)
    assert [line.split("  ")[0] for line in lines[:4]] == ["full attention", "GemFilter", "one run", "SnapKV"]
    assert lines[4].startswith("layer 3 keeps 32 of 200 tokens: [")
    held = [float(line[15:].split()[0]) for line in lines[:4]]
    assert held[0] > held[1] == held[2] == held[3]


def test_a_model_from_disk(monkeypatch, capsys, tmp_path):
    from tinyllama import save_llama

    save_llama(tmp_path / "tiny")
    (tmp_path / "prompt.txt").write_text("sentence: a good film number 3\nThe answer is")
    words = [tmp_path / "tiny", tmp_path / "prompt.txt", "--filter-layer", 2, "--keep", 6, "--keep-last", 2, "--new", 3]
    lines = said(monkeypatch, capsys, *words)
    assert any(line.startswith("layer 2 keeps 6 of") for line in lines)
    assert lines[-1].endswith("answer is")  # the last two tokens, in words
