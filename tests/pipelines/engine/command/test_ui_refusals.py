"""`featurelab ui` serves a store that is there, and makes none."""

from pathlib import Path

import pytest
from hostile import Commands


@pytest.mark.parametrize("make", [lambda path: None, Path.touch], ids=["missing", "empty"])
def test_ui_refuses_a_missing_or_empty_store_and_creates_nothing(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    serve = "featurelab.pipelines.engine.command.mlflow_pages.serve"
    monkeypatch.setattr(serve, lambda store, port: pytest.fail("it was served"))
    make(tmp_path / "mlflow.db")
    said = Commands(tmp_path).refusal("ui")
    assert said is not None
    assert "the store at sqlite:///" in said or "no store at sqlite:///" in said
