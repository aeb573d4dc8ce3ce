"""What all tests share."""

import os
import shutil
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from jaxtyping import _import_hook, install_import_hook

# one thread a test process: the threads of several would wait for one another in spinning loops
os.environ.setdefault("OMP_NUM_THREADS", "1")


def _execute(loader: Any, module: ModuleType) -> None:
    """As the hook does, but what the module imports in turn is found compiled: the hook looks for all of torch under
    names of caches that are its own, and then compiles it, which takes seconds in every process."""
    theirs = partial(_import_hook._optimized_cache_from_source, loader._typechecker.get_hash())
    with patch("importlib._bootstrap_external.cache_from_source", theirs):
        code = loader.get_code(module.__name__)
    exec(code, module.__dict__)


# before anything imports them: what is imported already is not checked
_import_hook._JaxtypingLoader.exec_module = _execute
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
    if sum(_seconds.values()) < BUDGET:
        return
    terminalreporter.section("seconds")
    for room, seconds in _seconds.most_common(25):
        system = room.startswith("tests/pipelines/") and "/engine" not in room and not room.endswith(".py")
        over = f"  more than its {BUDGET} s" if system and seconds > BUDGET else ""
        terminalreporter.write_line(f"{seconds:7.1f}  {room}{over}")
