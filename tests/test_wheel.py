"""What a wheel installs: one package, beside a stranger's own folders of the same names as ours."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USE = """
import pickle, sys
import modules
from featurelab import data, learners, measures, nets, probes
from featurelab.modules import nets as same
from featurelab.pipelines import Experiment, np, torch
from featurelab.pipelines.engine.experiment import registry

assert modules.MINE == "a stranger's"
assert nets is same is sys.modules["featurelab.modules.nets"]
net = nets.mlp(3, 4, hidden=1, seed=0)
assert measures.agop(net, torch.randn(5, 3, dtype=torch.float64)).shape == (3, 3)
assert type(pickle.loads(pickle.dumps(net))) is type(net)
names = {experiment.name for experiment in registry.experiments()}
assert len(names) >= 60, names
assert [name for name in sys.modules if name.split(".")[0] in ("pipelines", "tracking")] == []
assert [name for name in sys.modules if name.startswith("modules.")] == []
places = {sys.modules[name].__file__ for name in ("featurelab", "featurelab.modules.nets.standard.mlps")}
assert all(place.startswith(sys.argv[1]) for place in places), places
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel is unpacked, as pip would."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # since building leaves files in the folder that it builds from
    for package in ("featurelab", "modules", "pipelines", "tracking"):
        shutil.copytree(ROOT / package, source / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_a_wheel_installs_featurelab_and_nothing_else(site: Path) -> None:
    packages = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert packages == {"featurelab"}
    shipped = {path.relative_to(site / "featurelab") for path in (site / "featurelab").rglob("*") if path.is_file()}
    ours = {
        path.relative_to(ROOT)
        for package in ("modules", "pipelines", "tracking")
        for kind in ("*.py", "*.pyi", "*.html", "*.css", "*.js", "py.typed")
        for path in (ROOT / package).rglob(kind)
    }
    assert ours <= shipped
    (entry,) = site.glob("feature_learning_lab-*.dist-info/entry_points.txt")
    assert "featurelab = featurelab.pipelines.engine.command.cli:script" in entry.read_text()


def test_what_it_installs_works_beside_a_strangers_own_modules(site: Path, tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "__init__.py").write_text('MINE = "a stranger\'s"\n')
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(site)!r}]\n"
    subprocess.run([sys.executable, "-c", path + USE, str(site)], check=True, cwd=tmp_path)
