"""Why Ray ended a trial or a sweep, in one line."""

import re

from featurelab.pipelines.engine.sweep.ray.workarounds import NO_MEMORY
from featurelab.tracking.lines import line

DIED = "its worker process died"
FRAME = re.compile(r'\s+File "|Traceback')  # the lines of a traceback before its last, which has the message
PATH = re.compile(r"(?:\w+\.)+(?=\w+(?:\(\w+\))?(?::|$))")  # the module of an exception's class


def cause(error: BaseException | str, most: int = 300) -> str:
    """Return the message of an error, without the tracebacks that Ray writes into it.

    >>> cause('Traceback (most recent call last):\\n  File "a.py", line 1, in f\\n    g()\\nray.exceptions.Gone: lost')
    'Gone: lost'
    """
    text = str(error)
    lines = text.splitlines()
    frames = [number for number, text in enumerate(lines) if FRAME.match(text)]
    if not frames:
        return line(text, most) or type(error).__name__
    last = next((text for text in lines[frames[-1] + 1 :] if text.strip() and not text[0].isspace()), "")
    return line(PATH.sub("", last, count=1) if PATH.match(last) else last, most) or type(error).__name__


def why(error: str) -> str:
    """Return why a trial did not end by itself, given Ray's error: a dead process, or a traceback."""
    if NO_MEMORY in error:
        return NO_MEMORY
    if not error or re.search("^The actor ", error, re.MULTILINE):
        return DIED
    return re.sub(r"^(?:\w+\()?StoreError\)?: ", "", cause(error))
