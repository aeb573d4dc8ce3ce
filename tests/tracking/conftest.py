"""An MLflow server on this machine that tests can stop and start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow_server import Server


@pytest.fixture(scope="session")
def server(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a running server. A test that stops it must start it again."""
    home = tmp_path_factory.mktemp("server")
    shutil.copy(template, home / "mlflow.db")
    running = Server(home)
    running.start()
    yield running
    running.stop()
