"""Tests mirror the packages, so their folders are called modules, pipelines and tracking too: ours come first."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

# one thread a test process: the threads of several would wait for one another in spinning loops
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database with its schema, which tests copy: making it takes a second."""
    from tracking.connect import connect

    path = tmp_path_factory.mktemp("template") / "mlflow.db"
    connect(f"sqlite:///{path}", timeout=60)
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Any:
    """An empty SQLite store of this test alone."""
    from tracking.connect import attach

    home = tmp_path / "store"
    home.mkdir()
    return attach(f"sqlite:///{shutil.copy(template, home / 'mlflow.db')}")
