"""What all tests share."""

import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import install_import_hook

# one thread a test process: the threads of several would wait for one another in spinning loops
os.environ.setdefault("OMP_NUM_THREADS", "1")

# before anything imports them: what is imported already is not checked
sys.path.append(str(Path(__file__).parent / "modules"))
install_import_hook("featurelab.modules", "arraychecks.arrays_alone")


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


BUDGET = (
    25  # seconds that the tests of one system should take on one quiet core: twelve systems share a quarter of an hour
)
_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    parts = report.nodeid.split("::")[0].split("/")
    depth = 4 if parts[:3] == ["tests", "pipelines", "engine"] else 3
    _seconds["/".join(parts[:depth])] += report.duration


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Where the time went: seconds by room, and by system beside its budget."""
    if sum(_seconds.values()) < 60:
        return
    terminalreporter.section("seconds")
    for room, seconds in _seconds.most_common(25):
        system = room.startswith("tests/pipelines/") and "/engine" not in room and not room.endswith(".py")
        over = f"  more than its {BUDGET} s" if system and seconds > BUDGET else ""
        terminalreporter.write_line(f"{seconds:7.1f}  {room}{over}")
