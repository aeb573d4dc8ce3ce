"""Experiments by name: ours, one package a system, and other people's through the entry points of their packages."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from featurelab.pipelines.engine.errors import RequestError, unknown
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.installing import GROUP, not_installed


def systems() -> list[str]:
    """Names of all systems, ours first."""
    theirs = {_system(entry) for entry in entry_points(group=GROUP)}
    return list(dict.fromkeys([*_our_systems(), *sorted(theirs)]))


def experiments(system: str | None = None) -> list[Experiment]:
    """All experiments, or those of one system, in the order of their figures.

    Raises `RequestError` for an unknown system.
    """
    if system is not None and system not in systems():
        raise _not_installed(system) or unknown("system", system, systems())
    found: dict[str, Experiment] = {}
    for name in [system] if system else systems():
        for experiment in sorted([*_ours(name), *_theirs(name)], key=_place):
            if found.setdefault(experiment.name, experiment) is not experiment:
                raise RequestError(f"two experiments are called {experiment.name}")
    return list(found.values())


def find(name: str) -> Experiment:
    """The experiment of this name; raises `RequestError` with the nearest one."""
    system = name.partition("/")[0]
    if system in systems():
        for experiment in experiments(system):
            if experiment.name == name:
                return experiment
    raise _not_installed(name) or unknown("experiment", name, [experiment.name for experiment in experiments()])


def select(names: list[str], headline: bool = False) -> list[Experiment]:
    """The experiments that these names of experiments and systems stand for; all of them for no name."""
    if not names:
        chosen = experiments()
    else:
        chosen = [e for name in names for e in (experiments(name) if name in systems() else [find(name)])]
    chosen = [experiment for experiment in dict.fromkeys(chosen) if experiment.headline or not headline]
    if not chosen:
        raise RequestError("none of these experiments is a headline")
    return chosen


def _place(experiment: Experiment) -> tuple[bool, list[tuple[int, str]]]:
    """Where an experiment stands in its paper: "Fig. 2" before "Fig. 10", figures before all else."""
    parts = re.findall(r"(\d+)([a-z]*)", experiment.figure)
    return not experiment.figure.startswith("Fig"), [(int(number), letter) for number, letter in parts]


def _our_systems() -> list[str]:
    folder = Path(__file__).parents[2]
    return [module.name for module in pkgutil.iter_modules([str(folder)]) if module.ispkg and module.name != "engine"]


def _ours(system: str) -> Iterator[Experiment]:
    if system not in _our_systems():
        return
    package = importlib.import_module(f"featurelab.pipelines.{system}")
    for module in pkgutil.iter_modules(package.__path__):
        yield from _declared(importlib.import_module(f"{package.__name__}.{module.name}"))


def _theirs(system: str) -> Iterator[Experiment]:
    for entry in entry_points(group=GROUP):
        if _system(entry) == system:
            declared = [experiment for experiment in _loaded(entry) if experiment.system == system]
            if not declared:
                raise RequestError(f"{entry.value} declares no experiment of {system}, which its entry point names")
            yield from declared


def _not_installed(name: str) -> RequestError | None:
    installed = {entry.name.replace("/", ".") for entry in entry_points(group=GROUP)}
    hint = not_installed(name) if name.replace("/", ".") not in installed else ""
    return RequestError(hint) if hint else None


def _system(entry: EntryPoint) -> str:
    """The system that an entry point names as `system`, `system.experiment` or `system/experiment`."""
    return re.split(r"[./]", entry.name, maxsplit=1)[0]


def _loaded(entry: EntryPoint) -> Iterator[Experiment]:
    try:
        target = entry.load()
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RequestError(f"the experiment package {entry.value} does not load: {said}") from None
    if isinstance(target, Experiment):
        yield target
    elif isinstance(target, ModuleType):
        yield from _declared(target)
    else:
        raise RequestError(f"{entry.value} is neither an Experiment nor a module that declares some")


def _declared(module: ModuleType) -> Iterator[Experiment]:
    for value in vars(module).values():
        # not isinstance: it would look at the value's __class__, which makes a lazily loaded module load
        if issubclass(type(value), Experiment):
            yield value
