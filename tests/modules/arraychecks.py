"""The type checker that tests put on every function of `featurelab.modules`: it looks at annotations of arrays alone.

All others are mypy's to check; tests of what a function says of a wrong option are to hear the function itself.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, AbstractDtype


def arrays_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if _of_arrays(hint)}
    if not function.__annotations__:
        return function
    return beartype(function, conf=BeartypeConf(is_pep484_tower=True))  # an int is a float to us


def _sparing(checked: Callable[..., Any]) -> Callable[..., Any]:
    """What the hook decorates everything with: leaves functions alone in which nothing is to be checked.

    Looking at their arguments would take a tenth of the time of the suite.
    """

    def jaxtyped(*what: Any, **options: Any) -> Any:
        if what:
            return checked(*what, **options)
        return lambda one: one if _without_arrays(one) else _at_first(checked(**options)(one), one)

    return jaxtyped


CALLS = 20  # of a function that one test checks: what it hands over in later steps has the same shapes
calls: Counter[Callable[..., Any]] = Counter()  # so far in this test


def _at_first(checked: Any, plain: Any) -> Any:
    if not isfunction(plain):
        return checked

    @wraps(plain)
    def either(*arguments: Any, **options: Any) -> Any:
        calls[plain] += 1
        return (checked if calls[plain] <= CALLS else plain)(*arguments, **options)

    return either


def _without_arrays(what: Any) -> bool:
    return isfunction(what) and not any(map(_of_arrays, _hints(what)))


def _hints(function: Callable[..., Any]) -> Iterator[Any]:
    """The annotations, or what the words of those name that are strings still."""
    for hint in function.__annotations__.values():
        if isinstance(hint, str):
            yield from map(function.__globals__.get, re.findall(r"\w+", hint))
        else:
            yield hint


def _of_arrays(hint: Any) -> bool:
    if isinstance(hint, type):
        return issubclass(hint, (AbstractArray, AbstractDtype))
    return any(map(_of_arrays, get_args(hint)))


jaxtyping.jaxtyped = _sparing(jaxtyping.jaxtyped)
