"""The notebooks in examples/ run from beginning to end, and are small enough to keep with their outputs."""

import os
from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat", reason="the extra `site` is not installed: nbformat")
nbclient: Any = pytest.importorskip("nbclient", reason="the extra `site` is not installed: nbclient")
pytest.importorskip("ipykernel", reason="the extra `site` is not installed: ipykernel")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LARGEST = 200_000  # bytes
SWEEPING = ("2_figure_sweep_map",)  # start Ray several times
MARKED = [pytest.param(path, marks=[pytest.mark.heavy] if path.stem in SWEEPING else []) for path in NOTEBOOKS]


@pytest.mark.parametrize("path", MARKED, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises CellExecutionError where a cell fails
    assert any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_small_with_its_outputs_and_without_errors(path: Path) -> None:
    assert path.stat().st_size < LARGEST
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in codes for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"execute_result", "display_data", "stream"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert str(ROOT) not in path.read_text(encoding="utf-8")
