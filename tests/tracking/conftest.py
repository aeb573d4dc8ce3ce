"""Real stores for the tests: SQLite files, and an MLflow server on the loopback that can be stopped and started."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow_server import Server

from tracking.connect import attach, connect
from tracking.store import Store


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database with its schema, which tests copy: making it takes a second."""
    path = tmp_path_factory.mktemp("template") / "mlflow.db"
    connect(f"sqlite:///{path}", timeout=60)
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Store:
    """An empty SQLite store of this test alone."""
    home = tmp_path / "store"
    home.mkdir()
    return attach(f"sqlite:///{shutil.copy(template, home / 'mlflow.db')}")


@pytest.fixture(scope="session")
def server(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server; a test that stops it starts it again."""
    home = tmp_path_factory.mktemp("server")
    shutil.copy(template, home / "mlflow.db")
    running = Server(home)
    running.start()
    yield running
    running.stop()
