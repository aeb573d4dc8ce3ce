"""Errors that a user can act on, each with a message of one line."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum

from featurelab.tracking.lines import escaped, masked, quoted


class RequestError(Exception):
    """The request was wrong: an unknown name, an invalid value, missing data. The command exits with 2."""


class RunError(Exception):
    """The request was valid, but running it failed. The command exits with 1."""


def unknown(kind: str, name: str, known: Iterable[str]) -> RequestError:
    """Return a `RequestError` for a name that does not exist, with the nearest one that does."""
    return RequestError(f"unknown {kind} {quoted(name)}: {nearest(name, known)}")


def nearest(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return a hint for an unknown name: up to `most` similar names, or otherwise some of the known ones.

    >>> nearest("loss/tset", ["loss/test", "loss/train", "nfa/0"]), nearest("x", [])
    ('did you mean loss/test?', 'there is none')
    """
    known = sorted(known)
    close = [full_name for full_name in known if full_name.rpartition("/")[2] == name]
    close = close or get_close_matches(name[:200], known, n=most, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if known:
        return f"there is {', '.join(known[:8])}" + (", ..." if len(known) > 8 else "")
    return "there is none"


def tell(line: str) -> None:
    """Print a line on standard error, so that standard output holds only the result of a command.

    Secrets in the line are masked, and characters that would control the terminal are escaped.
    """
    print(escaped(masked(line)), file=sys.stderr, flush=True)


class Verbosity(IntEnum):
    """How much a command prints."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_verbosity = Verbosity.NORMAL


def set_verbosity(level: Verbosity) -> None:
    """Set how much this process prints."""
    global _verbosity
    _verbosity = level


def is_quiet() -> bool:
    return _verbosity == Verbosity.QUIET


def is_verbose() -> bool:
    return _verbosity == Verbosity.VERBOSE


def inform(line: str) -> None:
    """Print a line on standard error, as `tell` does, unless the command is quiet."""
    if not is_quiet():
        tell(line)


class Missing(Exception):
    """Something that a claim needs was not measured; the message says what."""
