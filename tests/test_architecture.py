"""The arrows modules <- pipelines -> tracking, and that a listing of experiments costs next to nothing."""

import re
import subprocess
import sys
import time
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PACKAGES = ("modules", "pipelines", "tracking")
HEAVY = ("torch", "pytorch_lightning", "ray", "mlflow", "pandas", "matplotlib", "sklearn", "scipy")


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(
        *PACKAGES, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def test_layer_contracts_hold(tmp_path):
    done = subprocess.run([BIN / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) kept, 0 broken", done.stdout)[1]) >= 2


def ours(graph):
    return {
        module: {other for other in graph.find_modules_directly_imported_by(module) if other.startswith(PACKAGES)}
        for module in graph.modules
        if module.startswith(PACKAGES)
    }


def test_no_module_imports_itself_in_a_circle(graph):
    arrows = ours(graph)
    assert "pipelines.trial" in arrows
    assert "pipelines.config" in arrows["pipelines.trial"]
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names the circle


def test_no_subpackage_imports_itself_in_a_circle():
    """Names come lazily out of a package's `__init__`, so circles through it show only with the package as one node."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    folders = [m for m in graph.modules if m.count(".") == 1 and graph.find_children(m)]
    assert {"modules.probes", "modules.measures", "pipelines.neural_feature_ansatz"} <= set(folders)
    for folder in folders:
        graph.squash_module(folder)
    arrows = ours(graph)
    assert "modules.measures" in arrows["modules.probes"]
    TopologicalSorter(arrows).prepare()


def test_of_tracking_only_the_lightning_logger_imports_torch_or_lightning(graph):
    for heavy in ("torch", "pytorch_lightning"):
        inside = {m for m in graph.find_modules_that_directly_import(heavy) if m.startswith("tracking")}
        assert inside <= {"tracking.lightning"}
    assert graph.find_modules_that_directly_import("pytorch_lightning") & {"tracking.lightning"}


def test_of_the_pipelines_only_the_scheduling_imports_ray(graph):
    importers = graph.find_modules_that_directly_import("ray")
    assert "pipelines.conduct" in importers
    assert not {m for m in importers if m.count(".") > 1}, "a system's package knows no Ray"
    knows_nothing = {f"pipelines.{name}" for name in ("experiment", "trial", "fit", "claims", "results", "registry")}
    assert not importers & knows_nothing


DECLARE = "from pipelines import registry; [(e.describe('paper'), e.configs('laptop')) for e in registry.experiments()]"
LIST = "from pipelines.cli import app; app(['list'], standalone_mode=False)"
SHOW = "from pipelines.cli import app; app(['show', 'neural_feature_ansatz/init_scale'], standalone_mode=False)"


@pytest.mark.parametrize("code", [DECLARE, LIST, SHOW], ids=["declare", "list", "show"])
def test_declaring_and_listing_experiments_imports_nothing_heavy(code):
    code = f"import sys; {code}; print([m for m in {HEAVY} if m in sys.modules], len(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("[] ")


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["list", "--json"]])
def test_the_command_answers_at_once(arguments, tmp_path):
    def seconds():
        began = time.perf_counter()
        subprocess.run([BIN / "featurelab", *arguments], cwd=tmp_path, capture_output=True, check=True)
        return time.perf_counter() - began

    assert min(seconds() for _ in range(3)) < 3
    assert list(tmp_path.iterdir()) == []
