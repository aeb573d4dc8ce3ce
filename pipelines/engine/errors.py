"""What a user did wrong, said in one line."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches

from featurelab.tracking.lines import escaped, masked, quoted


class RequestError(Exception):
    """The request was wrong: an unknown name, a bad value, missing data. The command line prints it and exits 2."""


class RunError(Exception):
    """The request was right and something ran, but not as it should. The command line prints it and exits 1."""


def unknown(kind: str, name: str, known: Iterable[str]) -> RequestError:
    """A `RequestError` for a name that does not exist, with the nearest one that does."""
    return RequestError(f"unknown {kind} {quoted(name)}: {nearest(name, known)}")


def nearest(name: str, known: Iterable[str], most: int = 1) -> str:
    """What to say of a name that is not among the known ones: the `most` that it may stand for, or else what there is.

    >>> nearest("loss/tset", ["loss/test", "loss/train", "nfa/0"]), nearest("x", [])
    ('did you mean loss/test?', 'there is none')
    """
    known = sorted(known)
    close = [whole for whole in known if whole.rpartition("/")[2] == name]
    close = close or get_close_matches(name[:200], known, n=most, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if known:
        return f"there is {', '.join(known[:8])}" + (", ..." if len(known) > 8 else "")
    return "there is none"


def tell(line: str) -> None:
    """A line for the person at the terminal: on standard error, so that standard output stays a document.

    Whatever text is part of it, no secret is shown and nothing in it acts on the terminal.
    """
    print(escaped(masked(line)), file=sys.stderr, flush=True)


class Missing(Exception):
    """What a claim needs was not measured; the message says what."""
