"""What a wheel installs: one package, beside a stranger's own folders of the same names, from any kind of checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("modules", "pipelines", "tracking")
USE = """
import pickle, sys
import modules
from featurelab import data, learners, measures, nets, probes
from featurelab.modules import nets as same
from featurelab.pipelines import Experiment, np, torch
from featurelab.pipelines.engine.experiment.catalogue import registry

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


def tracked(*folders: str) -> list[str]:
    command = ["git", "ls-files", "-z", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and os.path.lexists(ROOT / name)]


def checkout(folder: Path) -> Path:
    """A copy of the repository, since building leaves files in the folder that it builds from."""
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def built(kind: str, source: Path, out: Path) -> Path:
    """The wheel or sdist of a source, made by the build backend as `pip` and `build` call it."""
    code = f"import sys, setuptools.build_meta as backend; backend.build_{kind}(sys.argv[1])"
    out.mkdir()
    subprocess.run([sys.executable, "-c", code, out], cwd=source, check=True, capture_output=True)
    (file,) = out.iterdir()
    return file


def contents(wheel: Path) -> dict[str, int]:
    """The files of a wheel, with checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {file.filename: file.CRC for file in archive.infolist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return built("wheel", checkout(folder / "source"), folder / "out")


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """A folder into which the wheel is unpacked, as pip would."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    return wheel.parent / "site"


def test_a_wheel_installs_featurelab_and_nothing_else(site: Path) -> None:
    packages = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert packages == {"featurelab"}
    shipped = {str(path.relative_to(site / "featurelab")) for path in (site / "featurelab").rglob("*")}
    assert set(tracked(*FOLDERS)) - shipped == set()
    (entry,) = site.glob("feature_learning_lab-*.dist-info/entry_points.txt")
    assert "featurelab = featurelab.__main__:command" in entry.read_text()


def test_what_it_installs_works_beside_a_strangers_own_modules(site: Path, tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "__init__.py").write_text('MINE = "a stranger\'s"\n')
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(site)!r}]\n"
    subprocess.run([sys.executable, "-c", path + USE, str(site)], check=True, cwd=tmp_path)


def test_a_checkout_without_links_builds_the_same_wheel_and_its_command_works(wheel: Path, tmp_path: Path) -> None:
    source = checkout(tmp_path / "source")
    for folder in FOLDERS:
        link = source / "featurelab" / folder
        target = os.readlink(link)
        link.unlink()
        link.write_text(target)  # what Git writes where core.symlinks is false
    mine = built("wheel", source, tmp_path / "out")
    assert contents(mine) == contents(wheel)

    home = tmp_path / "environment"
    venv.create(home, symlinks=True)
    (ours,) = {path for path in sys.path if path.endswith("site-packages") and Path(path).is_relative_to(sys.prefix)}
    (theirs,) = home.glob("lib/python*/site-packages")
    (theirs / "dependencies.pth").write_text(ours)
    command = [sys.executable, "-m", "pip", "--python", str(home), "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--ignore-installed", mine], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    listing = [home / "bin" / "featurelab", "list", "neural_feature_ansatz"]
    said = subprocess.run(listing, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert "neural_feature_ansatz/init_scale" in said


def test_an_sdist_has_no_tests_and_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = built("sdist", checkout(tmp_path / "source"), tmp_path / "out")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sdist", filter="data")
    (source,) = (tmp_path / "sdist").iterdir()
    assert not (source / "tests").exists()
    assert [path for path in source.rglob("*") if path.is_symlink()] == []
    assert (source / "CHANGELOG.md").is_file()
    assert contents(built("wheel", source, tmp_path / "again")) == contents(wheel)
