"""Measuring networks under torch.compile.

Compiled code does not call the hooks of its layers, so while we measure, compiled modules run as they were written.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def as_written(function: Callable[P, T]) -> Callable[P, T]:
    """Return `function` with compilation switched off while it runs: compiled modules inside it run eagerly."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if "torch._dynamo.eval_frame" not in sys.modules:  # nothing is compiled, and the import takes a second
            return function(*args, **kwargs)
        # outside a frame that is being compiled, where the stance could not be changed
        result: T = torch.compiler.disable(_eagerly)(function, *args, **kwargs)
        return result

    return run


def _eagerly(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    with torch.compiler.set_stance("force_eager"):
        return function(*args, **kwargs)
