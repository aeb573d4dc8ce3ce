"""For those who write figures: a template to begin with, and a check that nothing is missing."""

import re
from pathlib import Path
from typing import Annotated

import typer

from featurelab.pipelines.engine.command.settings import complete_experiments
from featurelab.pipelines.engine.errors import RequestError, RunError, tell
from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.lazy import lazy
from featurelab.tracking.lines import quoted

checking = lazy("featurelab.pipelines.engine.verdict.check")

TEMPLATE = Path(__file__).with_name("template.py")
NAME = re.compile(r"([a-z][a-z0-9_]*)/([a-z][a-z0-9_]*)")
PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{system}"
version = "0.1.0"
dependencies = ["feature-learning-lab"]

[tool.setuptools]
packages = ["{system}"]
"""
ENTRY = """
[project.entry-points."featurelab.experiments"]
"{system}/{experiment}" = "{system}.{experiment}:figure"
"""


def new(
    name: Annotated[str, typer.Argument(metavar="SYSTEM/EXPERIMENT", help="Its name: a package, and a file in it.")],
) -> None:
    """Write a commented template of a figure, which runs, is judged and drawn as it stands."""
    named = NAME.fullmatch(name)
    if not named:
        raise RequestError(f"{quoted(name)} is no name of an experiment: write system/experiment in lower case")
    system, experiment = named.groups()
    if system in ("engine", "featurelab", "template"):
        raise RequestError(f"{quoted(system)} is a name of featurelab's own: choose another")
    if system in registry.systems() and name in [known.name for known in registry.experiments(system)]:
        raise RequestError(f"there is an experiment {name} already")
    here = Path.cwd()
    ours = (here / "pipelines" / "engine" / "command" / TEMPLATE.name).is_file()  # in the repository of featurelab
    package, project = here / ("pipelines" if ours else "") / system, here / "pyproject.toml"
    path = package / f"{experiment}.py"
    if path.exists():
        raise RequestError(f"{quoted(str(path))} exists already")
    package.mkdir(parents=True, exist_ok=True)
    if not (package / "__init__.py").exists():
        (package / "__init__.py").write_text(f'"""The paper: authors, year, arXiv number. What {system} is about."""\n')
    path.write_text(TEMPLATE.read_text().replace("template/weight_decay", name))
    tell(f"wrote {path.relative_to(here)}")
    if ours:
        tell(f"next: featurelab check {name}")
        return
    entry = ENTRY.format(system=system, experiment=experiment)
    if project.exists():
        tell("add to pyproject.toml, so that it is found:")
        typer.echo(entry.strip())
    else:
        project.write_text(PROJECT.format(system=system) + entry)
        tell("wrote pyproject.toml")
    tell(f"next: pip install --editable . && featurelab check {name}")


def check(
    name: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Its name.", autocompletion=complete_experiments)],
) -> None:
    """Run a figure whole at its small size, and say what is missing: claims, drawing, cost, axes, seeds."""
    experiment = registry.find(name)
    gaps = list(checking.missing(experiment))
    for gap in gaps:
        tell(f"{name}: {gap}")
    if gaps:
        raise RunError(f"{name} lacks {len(gaps)} thing{'s' * (len(gaps) > 1)}")
    tell(f"{name}: {len(experiment.small_configs())} trials, {len(experiment.claims)} claims, figure drawn: all there")
