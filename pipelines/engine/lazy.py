"""Modules that are imported when they are first used, so that to declare or list experiments imports no torch.

Not `lazy_loader.load`: it puts a half-made module into `sys.modules`, and in Python 3.11 packages that import parts of
themselves, as pytorch_lightning does, break when they are loaded through it.
"""

import functools
import importlib
from typing import Any


class LazyModule:
    """Stands for the module `name`; any attribute is that of the module, imported at the first access."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


@functools.cache
def lazy(name: str) -> Any:
    """The module `name`, imported when it is first used; the same object wherever it is asked for."""
    return LazyModule(name)
