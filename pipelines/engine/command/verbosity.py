"""The options -v and -q, which every command takes, before its name or after it."""

import functools
import inspect
import logging
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from featurelab.pipelines.engine.errors import RequestError, Verbosity, set_verbosity

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show the logs and warnings of libraries, and tracebacks.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show errors and the result only.")]


def set_level(verbose: bool, quiet: bool) -> None:
    """Set how much this process prints; raises `RequestError` for both at once."""
    if verbose and quiet:
        raise RequestError("-v shows more and -q shows less: give one of them")
    if quiet:
        set_verbosity(Verbosity.QUIET)
    if verbose:
        set_verbosity(Verbosity.VERBOSE)
        warnings.simplefilter("default")
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")


def with_verbosity(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with both options."""

    @functools.wraps(command)
    def wrapped(*args: Any, verbose: bool = False, quiet: bool = False, **options: Any) -> None:
        set_level(verbose, quiet)
        command(*args, **options)

    added = {"verbose": Verbose, "quiet": Quiet}
    signature = inspect.signature(command)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in added.items()
    ]
    wrapped.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *options])  # type: ignore[attr-defined]
    wrapped.__annotations__ = command.__annotations__ | added
    return wrapped
