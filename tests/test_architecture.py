"""The arrows between packages and rooms, and that a listing of experiments costs next to nothing."""

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
ENGINE = "featurelab.pipelines.engine"
HEAVY = ("torch", "pytorch_lightning", "ray", "mlflow", "pandas", "matplotlib", "sklearn", "scipy")


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(
        "featurelab", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def test_layer_contracts_hold(tmp_path):
    done = subprocess.run([BIN / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) kept, 0 broken", done.stdout)[1]) >= 2


def ours(graph):
    return {
        module: {other for other in graph.find_modules_directly_imported_by(module) if other.startswith("featurelab.")}
        for module in graph.modules
        if module.startswith("featurelab.")
    }


def test_no_module_imports_itself_in_a_circle(graph):
    arrows = ours(graph)
    assert f"{ENGINE}.experiment.config" in arrows[f"{ENGINE}.trial.run"]
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names the circle


def test_no_folder_imports_itself_in_a_circle():
    """Names come lazily out of a package's `__init__`, so circles through it show only with the package as one node."""
    graph = grimp.build_graph("featurelab", exclude_type_checking_imports=True, cache_dir=None)
    folders = {module for module in graph.modules if graph.find_children(module)}
    deepest = folders - {module.rpartition(".")[0] for module in folders}
    known = {"featurelab.modules.probes", "featurelab.pipelines.neural_feature_ansatz", f"{ENGINE}.sweep.ray"}
    assert known <= deepest
    for folder in deepest:
        graph.squash_module(folder)
    arrows = {module: others for module, others in ours(graph).items() if module != ENGINE}
    assert "featurelab.modules.measures" in arrows["featurelab.modules.probes"]
    TopologicalSorter(arrows).prepare()


def test_of_tracking_only_the_lightning_logger_imports_torch_or_lightning(graph):
    for heavy in ("torch", "pytorch_lightning"):
        inside = {m for m in graph.find_modules_that_directly_import(heavy) if m.startswith("featurelab.tracking")}
        assert inside <= {"featurelab.tracking.lightning"}
    assert graph.find_modules_that_directly_import("pytorch_lightning") & {"featurelab.tracking.lightning"}


def test_only_one_room_of_sweeps_imports_ray(graph):
    importers = graph.find_modules_that_directly_import("ray")
    assert f"{ENGINE}.sweep.ray.tune" in importers
    assert not {module for module in importers if not module.startswith(f"{ENGINE}.sweep.ray.")}


DECLARE = (
    "from featurelab.pipelines.engine.experiment import registry; "
    "[(e.describe('paper'), e.configs('laptop')) for e in registry.experiments()]"
)
CLI = "from featurelab.pipelines.engine.command.cli import app"
LIST = f"{CLI}; app(['list'], standalone_mode=False)"
SHOW = f"{CLI}; app(['show', 'neural_feature_ansatz/init_scale'], standalone_mode=False)"


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
