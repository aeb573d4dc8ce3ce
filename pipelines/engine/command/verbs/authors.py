"""`featurelab new` and `featurelab check`: for authors of figures."""

import re
from pathlib import Path
from typing import Annotated

import typer

from featurelab.pipelines.engine.command.arguments import Name
from featurelab.pipelines.engine.command.shared import folder
from featurelab.pipelines.engine.errors import RequestError, RunError, tell
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.tracking.lines import escaped, masked, quoted

TEMPLATE = Path(__file__).with_name("template.py")
NAME = re.compile(r"([a-z][a-z0-9_]*)/([a-z][a-z0-9_]*)")
RESERVED = ("engine", "featurelab", "template")
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
ENTRY_POINTS = '[project.entry-points."featurelab.experiments"]\n'
ENTRY = '"{system}.{experiment}" = "{system}.{experiment}:figure"\n'  # setuptools warns about names with a slash


def new(
    name: Annotated[
        str, typer.Argument(metavar="SYSTEM/EXPERIMENT", help="The figure's name: a package, and a file in it.")
    ],
) -> None:
    """Write a commented template of a figure, which can be run, judged and drawn as it is."""
    match = NAME.fullmatch(name)
    if not match:
        raise RequestError(
            f"{quoted(name)} is not a valid name of an experiment: write system/experiment, in lower case"
        )
    system, experiment = match.groups()
    if system in RESERVED:
        raise RequestError(f"{quoted(system)} is a name of featurelab's own: choose another")
    if system in registry.systems() and name in [known.name for known in registry.experiments(system)]:
        raise RequestError(f"there is an experiment {name} already: choose another name")
    here = Path.cwd()
    in_repository = (here / "pipelines" / "engine" / "command" / "verbs" / TEMPLATE.name).is_file()
    path = here / ("pipelines" if in_repository else "") / system / f"{experiment}.py"
    if path.exists():
        raise RequestError(f"{quoted(str(path))} exists already: choose another name, or move the file")
    path.parent.mkdir(parents=True, exist_ok=True)
    package = path.with_name("__init__.py")
    if not package.exists():
        package.write_text(f'"""The paper: authors, year, arXiv number. What {system} is about."""\n')
    path.write_text(_named(TEMPLATE.read_text(), system, experiment))
    tell(f"wrote {path.relative_to(here)}")
    if in_repository:
        tell(f"next: featurelab check {name}")
        return
    _add_entry_point(here / "pyproject.toml", system, experiment)
    tell(f"next: pip install --editable . && featurelab check {name}")


def _named(template: str, system: str, experiment: str) -> str:
    """Return the template with this figure's name wherever it has a placeholder."""
    words = experiment.split("_")
    template = template.replace("template/figure_name", f"{system}/{experiment}")
    template = template.replace("FigureNameConfig", f"{''.join(word.capitalize() for word in words)}Config")
    return template.replace("Figure name", " ".join(words).capitalize())


def _add_entry_point(project: Path, system: str, experiment: str) -> None:
    """Name the figure in `pyproject.toml`, or print what to add where the file has no table of our entry points."""
    entry = ENTRY.format(system=system, experiment=experiment)
    if not project.exists():
        project.write_text(f"{PROJECT.format(system=system)}\n{ENTRY_POINTS}{entry}")
        tell("wrote pyproject.toml")
    elif ENTRY_POINTS in (text := project.read_text()):
        project.write_text(text.replace(ENTRY_POINTS, ENTRY_POINTS + entry, 1))
        tell("added an entry point to pyproject.toml")
    else:
        tell("add to pyproject.toml, so that featurelab finds the figure:")
        typer.echo(f"{ENTRY_POINTS}{entry}".strip())


def check(name: Name) -> None:
    """Run a figure at its small sizes, and name what is missing: claims, drawing, cost, axes, seeds."""
    from featurelab.pipelines.engine.verdict.check import Broken, missing

    experiment = registry.find(name)
    try:
        gaps = list(missing(experiment))
    except Broken as broken:
        path = folder(".featurelab", "the folder") / "check.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(escaped(masked(broken.traceback), keep="\n\t"))
        raise RunError(f"{name}: {broken} [traceback: {path.relative_to(Path.cwd())}]") from None
    for gap in gaps:
        tell(f"{name}: {gap}")
    if gaps:
        raise RunError(f"{name} lacks {len(gaps)} thing{'s' * (len(gaps) > 1)}")
    trials, claims = len(experiment.small_configs()), len(experiment.claims)
    parts = f"{trials} trial{'s' * (trials > 1)}, {claims} claim{'s' * (claims > 1)}, figure drawn"
    tell(f"{name}: {parts}: nothing is missing")
