"""The words a figure is written in: all that an experiment's file imports, from one place.

`__init__.pyi` lists them. Each is loaded when it is first asked for, and the libraries among them only when something
of theirs is used, so that declaring and listing experiments stays quick.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.lazy import lazy

_LAZILY = ("np", "torch", "stats", "colors", "Recorder")  # what takes its time to import


def _listed() -> dict[str, tuple[str, str]]:
    """For each name of the stub, the module it is from and its name there, empty for the module itself."""
    found = {}
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            found.update({alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names})
        elif isinstance(node, ast.Import):
            found.update({alias.asname or alias.name: (alias.name, "") for alias in node.names})
    return found


_WORDS = _listed()
__all__ = sorted(_WORDS)


def __getattr__(name: str) -> Any:
    if name not in _WORDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, word = _WORDS[name]
    if name in _LAZILY:
        return lazy(f"{module}.{word}" if word else module)
    return getattr(import_module(module), word)


def __dir__() -> list[str]:
    return __all__
