"""A new system is a folder, a page and a test: everything else finds it by itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import CommandLine, clean_environment
from warm import Warm

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SYSTEM = "newcomer"
NAME = f"{SYSTEM}/first_figure"
PAGE = "# Newcomer\n\n| experiment | figure | what it shows | minutes |\n| --- | --- | --- | --- |\n"
TEST = f"""from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import missing


def test_nothing_is_missing_of_a_small_figure():
    (experiment,) = registry.experiments("{SYSTEM}")
    assert list(missing(experiment)) == []
"""


def everything_in(tree: Path) -> dict[str, bytes]:
    files = (path for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(tree)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory, template: Path) -> CommandLine:
    """The command of a copy of the repository to which a system was added, in a directory with an empty store."""
    folder = tmp_path_factory.mktemp("newcomer")
    tree = folder / "tree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(ROOT / name):
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    environment = clean_environment(PYTHONPATH=str(tree))
    command = CommandLine(folder, environment, template, Warm(environment))
    before = everything_in(tree)
    command.elsewhere(tree)("new", NAME)
    (known,) = command("list", SYSTEM, "--json").document
    row = f"| `{NAME}` | {known['figure']} | {known['title']} | {known['scales']['laptop']['minutes']:g} |\n"
    (tree / "docs" / f"{SYSTEM}.md").write_text(PAGE + row)
    test = tree / "tests" / "pipelines" / SYSTEM / f"test_figures_of_{SYSTEM}.py"
    test.parent.mkdir()
    test.write_text(TEST)
    after = everything_in(tree)
    assert {name for name in after if after[name] != before.get(name)} == {
        f"pipelines/{SYSTEM}/__init__.py",
        f"pipelines/{NAME}.py",
        f"docs/{SYSTEM}.md",
        str(test.relative_to(tree)),
    }
    return command.desk("lab")


def in_the_copy(newcomer: CommandLine, *command: str | Path) -> str:
    """What a tool says of the copy; raises where it finds fault."""
    tree = newcomer.home.parent / "tree"
    done = subprocess.run(command, cwd=tree, env=newcomer.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_system_is_checked_run_and_judged(newcomer: CommandLine) -> None:
    assert NAME in newcomer("list").out
    newcomer("check", NAME)
    assert newcomer("run", NAME, "epochs=2", "--json").document["status"] == "finished"
    (judged,) = newcomer("reproduce", SYSTEM, "--json").document["experiments"]
    assert [claim["status"] for claim in judged["claims"]] == ["holds"]


def test_contracts_cover_a_new_system(newcomer: CommandLine) -> None:
    in_the_copy(newcomer, BIN / "lint-imports", "--no-cache")
    path = newcomer.home.parent / "tree" / "pipelines" / f"{NAME}.py"
    whole = path.read_text()
    for forbidden in ("ray", "featurelab.pipelines.cross.every_system", "featurelab.pipelines.engine.sweep.plan"):
        path.write_text(f"{whole}\nimport {forbidden}\n")
        with pytest.raises(AssertionError, match="BROKEN"):
            in_the_copy(newcomer, BIN / "lint-imports", "--no-cache")
    path.write_text(whole)


@pytest.mark.heavy
def test_the_page_and_the_tests_of_a_new_system_are_found(newcomer: CommandLine) -> None:
    tests = [f"tests/pipelines/{SYSTEM}", "tests/docs/test_documentation.py"]
    said = in_the_copy(newcomer, BIN / "pytest", "-v", "-p", "no:cacheprovider", "-k", SYSTEM, *tests)
    for found in ("test_nothing_is_missing_of_a_small_figure", f"names_its_figures_and_what_fails[{SYSTEM}]"):
        assert f"{found} PASSED" in said


@pytest.mark.heavy
def test_rules_and_lists_of_the_suite_hold_with_a_new_system(newcomer: CommandLine) -> None:
    rules = ["tests/pipelines/engine/experiment", "tests/pipelines/engine/command"]
    rules += ["tests/project/test_architecture.py"]
    rules += ["tests/e2e/commands/test_wrong_requests.py", "tests/e2e/judging/test_figures_end_to_end.py"]
    in_the_copy(newcomer, BIN / "pytest", "-q", "-p", "no:cacheprovider", "-m", "not heavy", *rules)
