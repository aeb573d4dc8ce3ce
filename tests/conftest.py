"""What all tests share."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

# one thread a test process: the threads of several would wait for one another in spinning loops
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database with its schema, which tests copy: making it takes a second."""
    from featurelab.tracking.store.connect import connect

    path = tmp_path_factory.mktemp("template") / "mlflow.db"
    connect(f"sqlite:///{path}", timeout=60)
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Any:
    """An empty SQLite store of this test alone."""
    from featurelab.tracking.store.connect import attach

    home = tmp_path / "store"
    home.mkdir()
    return attach(f"sqlite:///{shutil.copy(template, home / 'mlflow.db')}")
