"""`make check` runs the tests that mirror what changed."""

import subprocess
import sys
from pathlib import Path

import pytest
from affected import RULES, affected

FILES = """
modules/measures/gradients/agop.py tests/modules/measures/gradients/test_agop.py
tests/modules/measures/gradients/test_ntk.py tests/modules/measures/test_names.py
tests/pipelines/cross/test_figures.py tests/pipelines/cross/test_agop.py tests/pipelines/engine/trial/test_fit.py
tests/pipelines/engine/trial/test_signals.py tests/e2e/judging/test_judge.py tests/e2e/commandline.py
tests/e2e/conftest.py tests/project/test_architecture.py tests/docs/test_documentation.py tests/madeup.py
tests/pipelines/conftest.py
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository of empty files, in which one test imports a helper."""
    for name in [*FILES.split(), RULES]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "tests/pipelines/cross/test_figures.py").write_text("import os\nfrom madeup import results\n")
    return tmp_path


GRADIENTS = ["tests/modules/measures/gradients/test_agop.py", "tests/modules/measures/gradients/test_ntk.py"]
CROSS = ["tests/pipelines/cross/test_agop.py", "tests/pipelines/cross/test_figures.py", RULES]
TRIAL = ["tests/pipelines/engine/trial/test_fit.py", "tests/pipelines/engine/trial/test_signals.py"]


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("modules/measures/gradients/agop.py", GRADIENTS[:1]),
        ("modules/measures/gradients/ntk_of_a_new_kind.py", GRADIENTS),
        ("modules/measures/new_room/new.py", [*GRADIENTS, "tests/modules/measures/test_names.py"]),
        ("pipelines/cross/agop.py", CROSS),
        ("pipelines/cross/known.toml", CROSS),
        ("pipelines/engine/trial/fit.py", TRIAL[:1]),
        ("pipelines/engine/trial/run.py", TRIAL),
        ("docs/cross.md", ["tests/docs/test_documentation.py"]),
        ("pyproject.toml", ["tests/project/test_architecture.py"]),
        ("tests/pipelines/engine/trial/test_fit.py", TRIAL[:1]),
        ("tests/pipelines/cross/test_deleted.py", []),
        ("tests/madeup.py", CROSS[1:2]),
        ("tests/pipelines/conftest.py", []),
        ("tests/e2e/commandline.py", []),
        ("tests/e2e/judging/test_judge.py", []),
    ],
)
def test_a_changed_file_is_tested_by_what_mirrors_it(tree: Path, changed: str, tests: list[str]) -> None:
    assert affected([changed], tree) == tests


def test_each_test_runs_once_and_those_of_single_files_come_first(tree: Path) -> None:
    found = affected(["pipelines/cross/agop.py", "tests/pipelines/cross/test_figures.py", "docs/x.md"], tree)
    assert sorted(found) == sorted({*CROSS, "tests/docs/test_documentation.py"})
    assert found[-1] == RULES


def test_after_the_time_that_is_given_tests_are_skipped_and_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "arraychecks.py").touch()
    (tmp_path / "test_two.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", "--within", "0", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    assert "make test" in done.stdout
