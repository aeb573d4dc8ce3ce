"""Runs the unit tests of what changed since the branch left main, committed or not: `make check`.

Tests mirror the rooms. What changed in `modules/measures/agop.py` is tested by `tests/modules/measures/test_agop.py`,
or without such a file by all tests of `tests/modules/measures`. Tests of whole commands (`tests/e2e`) are left out.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PATIENCE = 100  # seconds for the tests: with lint and types, `make check` takes at most 3 minutes
PAGES = ("tests/docs/test_documentation.py", "tests/docs/test_generated_pages.py")
RULES = "tests/pipelines/engine/experiment/test_experiments.py"  # what every experiment must be
ROOMS = ("modules", "pipelines", "tracking")


def changed() -> list[str]:
    """The paths of what differs from the merge base with main, renamed and deleted files included."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    base = next((found for main in ("origin/main", "main") if (found := git("merge-base", "HEAD", main))), ["HEAD"])
    return git("diff", "--name-only", "--no-renames", base[0]) + git("ls-files", "--others", "--exclude-standard")


def unit_tests(folder: Path) -> Iterator[Path]:
    """All test files of a folder, those of whole commands left out."""
    return (path for path in sorted(folder.rglob("test_*.py")) if "e2e" not in path.parts)


def mirror(path: str, root: Path = ROOT) -> Iterator[Path]:
    """The test files that mirror a file; the nearest first."""
    file = PurePosixPath(path)
    room, *rest = file.parts
    if room == "tests":
        yield from users(root / path, root)
    elif path.endswith(".md"):
        yield from (root / page for page in PAGES)
    elif room in ROOMS and rest:
        folder = root / "tests" / file.parent
        own = folder / f"test_{file.stem}.py"
        is_figure = room == "pipelines" and rest[0] != "engine"
        if own.exists() and not is_figure:
            yield own
        else:
            yield from unit_tests(next(each for each in (folder, *folder.parents) if each.is_dir()))
        if is_figure:
            yield root / RULES
    else:  # the project's own settings
        yield root / "tests" / "project" / "test_architecture.py"


def users(path: Path, root: Path) -> Iterator[Path]:
    """A test file itself; of a helper, all test files that import it; of a `conftest.py`, those beside it."""
    if path.name.startswith("test_"):
        yield path
    elif path.name == "conftest.py":
        yield from sorted(path.parent.glob("test_*.py"))
    elif path.suffix == ".py":
        imports = re.compile(rf"^\s*(from|import) {path.stem}\b", re.MULTILINE)
        yield from (each for each in unit_tests(root / "tests") if imports.search(each.read_text()))


def affected(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """The test files of these paths, each once: first those that mirror one file, then those of whole folders."""
    found = sorted((list(mirror(path, root)) for path in paths), key=len)
    files = dict.fromkeys(str(file.relative_to(root)) for each in found for file in each if file.is_file())
    return [file for file in files if not file.startswith("tests/e2e/")]


if __name__ == "__main__":
    files = affected(changed())
    if not files:
        sys.exit(print("nothing changed that a unit test mirrors"))
    print(f"the unit tests of what changed: {len(files)} files", flush=True)
    options = ["-m", "not heavy", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--within", str(PATIENCE)]
    sys.exit(
        subprocess.run([sys.executable, "-m", "pytest", "-q", *options, *sys.argv[1:], *files], cwd=ROOT).returncode
    )
