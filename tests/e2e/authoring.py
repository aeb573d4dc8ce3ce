"""What pip does for the package that an author writes: it becomes importable, with its entry points."""

import tomllib
from pathlib import Path

from commandline import CommandLine, import_path


def installed(here: CommandLine) -> CommandLine:
    """The command where the project of its directory is installed; call it again when entry points have changed."""
    project = tomllib.loads((here.home / "pyproject.toml").read_text())["project"]
    facts = here.home / f"{project['name']}-{project['version']}.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    ((group, points),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    return here.elsewhere(here.home, PYTHONPATH=import_path(here.home))


def changed(file: Path, old: str, new: str) -> None:
    source = file.read_text()
    assert old in source
    file.write_text(source.replace(old, new))
