"""For those who write figures: a template to begin with, and a check that nothing is missing."""

import re
from pathlib import Path
from typing import Annotated

import typer

from featurelab.pipelines.engine.command.folders import folder
from featurelab.pipelines.engine.command.settings import complete_experiments
from featurelab.pipelines.engine.errors import RequestError, RunError, tell
from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.lazy import lazy
from featurelab.tracking.lines import escaped, masked, quoted

checking = lazy("featurelab.pipelines.engine.verdict.check")

TEMPLATE = Path(__file__).with_name("template.py")
NAME = re.compile(r"([a-z][a-z0-9_]*)/([a-z][a-z0-9_]*)")
PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{system}"
version = "0.1.0"
dependencies = ["feature-learning-lab[lab]"]

[tool.setuptools]
packages = ["{system}"]
"""
POINTS = '[project.entry-points."featurelab.experiments"]\n'
ENTRY = '"{system}.{experiment}" = "{system}.{experiment}:figure"\n'  # setuptools warns of names with a slash


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
    path.write_text(_named(TEMPLATE.read_text(), system, experiment))
    tell(f"wrote {path.relative_to(here)}")
    if ours:
        tell(f"next: featurelab check {name}")
        return
    entry = ENTRY.format(system=system, experiment=experiment)
    if not project.exists():
        project.write_text(f"{PROJECT.format(system=system)}\n{POINTS}{entry}")
        tell("wrote pyproject.toml")
    elif POINTS in (written := project.read_text()):
        project.write_text(written.replace(POINTS, POINTS + entry, 1))
        tell("added an entry point to pyproject.toml")
    else:
        tell("add to pyproject.toml, so that it is found:")
        typer.echo(f"{POINTS}{entry}".strip())
    tell(f"next: pip install --editable . && featurelab check {name}")


def _named(template: str, system: str, experiment: str) -> str:
    """The template with the figure's name in place of its own, in each form in which it stands there."""
    words = experiment.split("_")
    template = template.replace("template/figure_name", f"{system}/{experiment}")
    template = template.replace("FigureNameConfig", f"{''.join(word.capitalize() for word in words)}Config")
    return template.replace("Figure name", " ".join(words).capitalize())


def check(
    name: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Its name.", autocompletion=complete_experiments)],
) -> None:
    """Run a figure whole at its small size, and say what is missing: claims, drawing, cost, axes, seeds."""
    experiment = registry.find(name)
    try:
        gaps = list(checking.missing(experiment))
    except checking.Broken as broken:
        kept = folder(".featurelab", "the folder") / "check.txt"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(escaped(masked(broken.traceback), keep="\n\t"))
        raise RunError(f"{name}: {broken} [traceback: {kept.relative_to(Path.cwd())}]") from None
    for gap in gaps:
        tell(f"{name}: {gap}")
    if gaps:
        raise RunError(f"{name} lacks {len(gaps)} thing{'s' * (len(gaps) > 1)}")
    trials, claims = len(experiment.small_configs()), len(experiment.claims)
    said = f"{trials} trial{'s' * (trials > 1)}, {claims} claim{'s' * (claims > 1)}, figure drawn: all there"
    tell(f"{name}: {said}")
