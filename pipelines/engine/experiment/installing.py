"""A package of experiments in the working directory that Python does not find yet: what its author must do."""

import re
import tomllib
from pathlib import Path

GROUP = "featurelab.experiments"


def not_installed(name: str) -> str:
    """What to do so that the experiment `name` of the working directory is found; empty if there is none."""
    system, _, experiment = name.partition("/")
    if not re.fullmatch(r"\w+", system) or not re.fullmatch(r"\w*", experiment):
        return ""
    entry = f'"{system}.{experiment}" = "{system}.{experiment}:figure"'
    points = entry_points(Path("pyproject.toml"))
    named = {f"{system}/{experiment}", f"{system}.{experiment}", system} & points.keys()
    if named:
        return f"{name} is not installed: pip install -e . (again after each change of entry points in pyproject.toml)"
    if experiment and any(Path(folder, system, f"{experiment}.py").is_file() for folder in (".", "src")):
        return f'{name} is not installed: add {entry} to [project.entry-points."{GROUP}"] in pyproject.toml, then pip install -e .'
    return ""


def entry_points(project: Path) -> dict[str, str]:
    """The experiments that a `pyproject.toml` declares; empty if there is none or it cannot be read."""
    try:
        found = tomllib.loads(project.read_text())["project"]["entry-points"][GROUP]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
