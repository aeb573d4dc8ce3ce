"""Why a trial or a sweep ended, in one line that a person can read."""

import re

from featurelab.pipelines.engine.sweep.workarounds import NO_MEMORY
from featurelab.tracking.lines import line

DIED = "its worker process died"
PLACE = re.compile(r'\s+File "|Traceback')  # lines of a traceback before the one that says what
PATH = re.compile(r"(?:\w+\.)+(?=\w+(?:\(\w+\))?(?::|$))")  # of the module of an exception


def cause(error: BaseException | str, most: int = 300) -> str:
    """What an error says, without the tracebacks that Ray writes into its messages.

    >>> cause('Traceback (most recent call last):\\n  File "a.py", line 1, in f\\n    g()\\nray.exceptions.Gone: lost')
    'Gone: lost'
    """
    text = str(error)
    lines = text.splitlines()
    places = [number for number, said in enumerate(lines) if PLACE.match(said)]
    if not places:
        return line(text, most) or type(error).__name__
    last = next((said for said in lines[places[-1] + 1 :] if said.strip() and not said[0].isspace()), "")
    return line(PATH.sub("", last, count=1) if PATH.match(last) else last, most) or type(error).__name__


def why(error: str) -> str:
    """Why a trial did not come to its end by itself, from what Ray says: the state of its process, or a traceback."""
    if NO_MEMORY in error:
        return NO_MEMORY
    if not error or re.search("^The actor ", error, re.MULTILINE):
        return DIED
    return re.sub(r"^(?:\w+\()?StoreError\)?: ", "", cause(error))
