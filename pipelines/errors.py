"""What a user did wrong, said in one line."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches

from tracking.lines import escaped, masked, quoted


class RequestError(Exception):
    """The request was wrong: an unknown name, a bad value, missing data. The command line prints it and exits 2."""


class Unsettled(Exception):
    """Trials ran, but the store could not be told of their end. The command line prints it and exits 1."""


def unknown(kind: str, name: str, known: Iterable[str]) -> RequestError:
    """A `RequestError` for a name that does not exist, with the nearest one that does."""
    known = sorted(known)
    near = get_close_matches(name[:200], known, n=1, cutoff=0.5)
    near = near or [whole for whole in known if whole.rpartition("/")[2] == name]
    if near:
        hint = f"did you mean {near[0]}?"
    elif known:
        shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        hint = f"there is {shown}"
    else:
        hint = "there is none"
    return RequestError(f"unknown {kind} {quoted(name)}: {hint}")


def tell(line: str) -> None:
    """A line for the person at the terminal: on standard error, so that standard output stays a document.

    Whatever text is part of it, no secret is shown and nothing in it acts on the terminal.
    """
    print(escaped(masked(line)), file=sys.stderr, flush=True)
