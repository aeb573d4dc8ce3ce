"""Whose code a trial runs: the packages that declare it, ours and other people's."""

import functools
import sys
from typing import Any

from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.strangers import entry_of
from featurelab.tracking import code

OURS = "featurelab"


def declared_by(experiment: Experiment) -> str:
    """The package or module that declares an experiment."""
    entry = entry_of(experiment)
    return _top(entry.module if entry else _module(experiment.run_trial))


def sources(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """What `featurelab.tracking.code` says of each package that an experiment is made of, with its distribution.

    These are featurelab itself, and the packages of the entry point, of the trial and of the config.
    """
    modules = [_module(experiment.run_trial), type(experiment.laptop).__module__, declared_by(experiment)]
    names = [name for name in dict.fromkeys([OURS, *map(_top, modules)]) if name not in sys.stdlib_module_names]
    found = {name: dict(said) for name in names if (said := code.package(name))}
    entry = entry_of(experiment)
    if entry and entry.dist and _top(entry.module) in found:
        found[_top(entry.module)]["distribution"] = f"{entry.dist.name} {entry.dist.version}"
    return found


def _module(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", None) or type(function).__module__)


def _top(module: str) -> str:
    return module.partition(".")[0]
