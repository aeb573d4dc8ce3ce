"""What all tests share."""

import gc
import importlib
import math
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from jaxtyping import install_import_hook

# one thread a test process: the threads of several would wait for one another in spinning loops
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray's workers would let the tests in other processes go first
os.environ.setdefault("RAY_worker_niceness", "0")
# tests in the background, or under nohup, would hand down that Ctrl-C is ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
# property tests may take their time on a busy machine, and share a fixture among their examples
IGNORED = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture]
hypothesis.settings.register_profile("ours", deadline=None, suppress_health_check=IGNORED)
hypothesis.settings.load_profile("ours")
CHECKED = "featurelab.modules"


class LibrariesFirst(MetaPathFinder):
    """Imports the libraries of the checked package before it.

    The hook looks for bytecode under a name of its own, also for what a checked file imports in turn: it would compile
    all of torch again.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == CHECKED:
            sys.meta_path.remove(self)
            for library in ("arraychecks", "pytorch_lightning", "sklearn", "torch"):
                importlib.import_module(library)


gc.disable()  # until all is imported
# before anything imports it: what is imported already is not checked
sys.path.append(str(Path(__file__).parent / "modules"))
arraychecks = importlib.import_module("arraychecks")
install_import_hook(CHECKED, "arraychecks.arrays_alone")
sys.meta_path.insert(0, LibrariesFirst())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--within", type=float, default=math.inf, help="seconds after which further tests are skipped")


# Folders whose tests share a Ray cluster and a server: each line goes to one process, and others run beside it.
TOGETHER = (
    ("tests/e2e/commands", "tests/e2e/recording"),
    ("tests/e2e/interruptions", "tests/e2e/judging"),
    ("tests/e2e/sweeping",),
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, the tests of whole commands are shared out by folder, all others by file."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((str(folders) for folders in TOGETHER if nodeid.startswith(folders)), nodeid.split("::")[0])

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of `modules` come last: they are short and never wait, so that all processes end together."""
    items.sort(key=lambda item: item.nodeid.startswith("tests/modules/"))


def pytest_collection_finish() -> None:
    """Search for unused cycles less often, and not in what is imported already: it took 6% of the time of tests."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


BEGAN = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() - BEGAN > (seconds := item.config.getoption("--within")):
        pytest.skip(f"{seconds:g} s are over: make test runs it")
    arraychecks.calls.clear()


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


BUDGET = 25  # seconds that the tests of one system may take on one quiet core
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
