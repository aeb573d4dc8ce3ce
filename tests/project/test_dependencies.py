"""The core works without the extras, and pyproject.toml claims what was tried."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from featurelab import _lab

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
IMPORTED_AS = {"pyyaml": "yaml"}
USE = """
import importlib, pkgutil
import torch
import featurelab.modules
from pytorch_lightning import Trainer
from featurelab import data, learners, measures, nets, probes

for module in pkgutil.walk_packages(featurelab.modules.__path__, "featurelab.modules."):
    if not module.name.endswith(".picture_files"):  # its docstring says that it needs the extra `public`
        importlib.import_module(module.name)
for family in (data, learners, measures, nets, probes, featurelab.decoding, featurelab.language):
    for name in family.__all__:
        getattr(family, name)
x, y = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, 1, dtype=torch.float64)
net = nets.mlp(3, 4, hidden=1, seed=0)
probe = probes.LossProbe({"train": (x, y)}, every=1)
task = data.TensorData((x, y), (x, y))
fit = Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, callbacks=[probe])
fit.fit(learners.Supervised(net, optimizer=learners.sgd(0.1)), datamodule=task)
assert "loss/train" in probe.latest()
assert measures.agop(net, x).shape == (3, 3)
"""


def closure(asked: list[str]) -> set[str]:
    """The installed distributions that these requirements bring, and theirs."""
    found: set[tuple[str, str]] = set()

    def bring(requirement: Requirement) -> None:
        for extra in ("", *requirement.extras):
            if (requirement.name, extra) in found:
                continue
            found.add((requirement.name, extra))
            for text in metadata.requires(requirement.name) or []:
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    bring(needed)

    for text in asked:
        bring(Requirement(text))
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A Python that sees the core's dependencies alone, as in an environment where no extra was installed."""
    site = tmp_path_factory.mktemp("core")
    for name in closure(PROJECT["dependencies"]):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(site)!r}]\n"
    return [sys.executable, "-S", "-I", "-c", path]


def run(core: list[str], code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*core[:-1], core[-1] + code], capture_output=True, text=True)


def test_networks_data_learners_measures_and_probes_need_the_core_alone(core: list[str]) -> None:
    done = run(core, USE)
    assert done.returncode == 0, done.stderr
    assert run(core, "import mlflow").returncode != 0, "the environment has more than the core"


def test_without_the_lab_the_command_says_in_one_line_what_to_install(core: list[str]) -> None:
    done = run(core, "sys.argv = ['featurelab', 'list']; from featurelab.__main__ import command; command()")
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith("featurelab: the command needs ")
    assert said.endswith("run pip install 'feature-learning-lab[lab]'")


@pytest.mark.parametrize("package", ["featurelab.pipelines", "featurelab.tracking"])
def test_without_the_lab_an_import_says_what_to_install(core: list[str], package: str) -> None:
    said = run(core, f"import {package}").stderr.splitlines()[-1]
    assert said.startswith(f"ModuleNotFoundError: {package} needs ")
    assert _lab.INSTALL in said


def names(requirements: list[str]) -> set[str]:
    return {Requirement(text).name for text in requirements}


def test_the_command_looks_for_every_package_of_the_lab() -> None:
    assert sorted(_lab.PACKAGES) == sorted(IMPORTED_AS.get(name, name) for name in names(EXTRAS["lab"]))


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    found = (re.fullmatch(r"([\w.-]+)==(\S+)", line) for line in lines if not line.startswith("#"))
    return {match[1].lower().replace("_", "-"): match[2] for match in found if match}


def test_lower_bounds_are_the_versions_that_were_tried() -> None:
    extras = ("lab", "public", "lm", "search", "server")
    users: list[str] = PROJECT["dependencies"] + [requirement for extra in extras for requirement in EXTRAS[extra]]
    bounds = {}
    for requirement in map(Requirement, users):
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        bounds[requirement.name.replace("_", "-")] = Version(bound.version)
    assert {name: Version(version) for name, version in pins("constraints-lowest.txt").items()} == bounds


def test_the_tested_versions_are_allowed() -> None:
    pinned = pins("constraints.txt")
    for text in [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pinned[requirement.name.lower().replace("_", "-")]), text


def test_ci_and_make_try_the_pythons_that_are_claimed() -> None:
    yaml: Any = pytest.importorskip("yaml")
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["jobs"]["suite"]["strategy"]["matrix"]["python"] == claimed
    makefile = (ROOT / "Makefile").read_text()
    assert [f"python{version}" for version in reversed(claimed)] == re.findall(r"python3\.\d+(?= |;)", makefile)[:3]
    assert PROJECT["requires-python"] == f">={claimed[0]}"


@pytest.mark.parametrize(("works", "taken"), [(("3.11", "3.12", "3.13"), "3.13"), (("3.11", "3.12"), "3.12")])
def test_make_takes_the_newest_python_that_works(works: tuple[str, ...], taken: str, tmp_path: Path) -> None:
    for version in ("3.11", "3.12", "3.13"):
        python = tmp_path / f"python{version}"
        python.write_text(f"#!/bin/sh\nexit {int(version not in works)}\n")  # as pyenv's shims fail
        python.chmod(0o755)
    chosen = ("PYTHON", "MAKEFLAGS", "MAKEOVERRIDES")  # by whoever runs these tests: `make test PYTHON=python3.12`
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    command = ["make", "--dry-run", "lint", f"VENV={tmp_path / 'nothing'}"]
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert f" python{taken} -m venv " in said


def test_make_says_which_python_it_needs(tmp_path: Path) -> None:
    command = ["make", "lint", "PYTHON=", f"VENV={tmp_path / 'nothing'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "Python 3.11, 3.12 or 3.13" in done.stderr
    assert list(tmp_path.iterdir()) == []
