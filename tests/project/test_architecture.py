"""The arrows between packages and rooms, and that commands that only tell import nothing heavy."""

import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ENGINE = "featurelab.pipelines.engine"
HEAVY = ("numpy", "torch", "pytorch_lightning", "ray", "mlflow", "pandas", "matplotlib", "sklearn", "scipy")


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


@pytest.mark.parametrize("top", ["modules", "pipelines", "tracking"])
def test_every_room_is_small(top):
    rooms = [folder.parent for folder in (ROOT / top).rglob("__init__.py")]
    sizes = {str(room): len({path.stem for path in room.glob("*.py")} - {"__init__"}) for room in rooms}
    assert len(sizes) > 3
    assert {room: size for room, size in sizes.items() if size > 15} == {}


DECLARE = (
    "from featurelab.pipelines.engine.experiment.catalogue import registry; "
    "[(e.describe('paper'), e.configs('laptop')) for e in registry.experiments()]"
)
ASK = "from featurelab.pipelines.engine.command.cli import app; app(sys.argv[1:], standalone_mode=False)"
SHOW = ["show", "neural_feature_ansatz/init_scale"]


def heavy_imports(code: str, *arguments: str, cwd: Path = ROOT) -> str:
    """The heavy libraries that this code has imported when it ends."""
    code = f"import sys; {code}; print(*[m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stderr.strip()


def test_declaring_all_experiments_imports_nothing_heavy():
    assert heavy_imports(DECLARE) == ""


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["list", "--json"], SHOW], ids=" ".join)
def test_commands_that_only_tell_import_nothing_heavy_and_write_nothing(arguments, tmp_path):
    assert heavy_imports(ASK, *arguments, cwd=tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
