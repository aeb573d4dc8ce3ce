"""Text from anywhere as it may be shown, logged or kept: without secrets, control characters or lines without end."""

from __future__ import annotations

import os
import re
from itertools import islice
from reprlib import Repr
from typing import Any, NamedTuple

LONGEST_LINE = 480
SECRET_NAME = re.compile(r"TOKEN|PASSWORD|PASSWD|SECRET|CREDENTIAL|ACCESS_KEY|API_KEY|PRIVATE_KEY", re.IGNORECASE)
# a parameter of MLflow's pages ends in Key and is none
SECRET_PARAMETER = re.compile(
    r"(?i)([?&](?!viewStateShareKey=)[\w-]{0,30}(?:password|passwd|pwd|token|secret|key)=)[^&\s'\"]+"
)
MOST_ADDRESSES = 20  # in one word: no more are looked at, so that no text takes long
SHORTEST_SECRET = 8  # a shorter value would be found in words that have nothing to do with it


class _Repr(Repr):
    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(masked(x), level)  # first: what is cut off may be what shows that it is a password


_repr = _Repr()
_repr.maxlevel, _repr.maxlist, _repr.maxtuple, _repr.maxdict = 3, 6, 6, 4
_repr.maxstring, _repr.maxlong, _repr.maxother = 80, 40, 80


def quoted(value: Any) -> str:
    """A value as Python writes it, control characters escaped; what is long or nested deep is shortened.

    >>> quoted("a" * 1000)[:12], len(quoted("a" * 1000)), quoted("\\x1b[2J")
    ("'aaaaaaaaaaa", 80, "'\\\\x1b[2J'")
    """
    return _repr.repr(value)


def line(text: str, most: int = LONGEST_LINE) -> str:
    """A text as one line of at most `most` characters, fit for a terminal, a log or a tag: masked and escaped."""
    whole = " ".join(part.strip() for part in masked(text).splitlines() if part.strip())
    return shortened(escaped(shortened(whole, most)), most)


def escaped(text: str, keep: str = "") -> str:
    """A text with all that is not printable (control, direction, surrogates) written as `\\x1b`, but for `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int) -> str:
    """A text with its middle left out where it is longer than `most`."""
    if len(text) <= most:
        return text
    tail = (most - 5) // 4
    return f"{text[: most - 5 - tail]} ... {text[len(text) - tail :]}"


def masked(text: str) -> str:
    """A text in which `***` stands for credentials in addresses, and for the secrets of this environment.

    Secrets are the values of variables whose names say so (`MLFLOW_TRACKING_TOKEN`, `AWS_SECRET_ACCESS_KEY`, ...).

    >>> masked("cannot reach http://me:hunter2@host:5000/ or https://abcdef@host")
    'cannot reach http://me:***@host:5000/ or https://***@host'
    """
    if "@" in text:
        text = re.sub(r"\S+", lambda word: _without_password(word[0]), text)
    text = SECRET_PARAMETER.sub(r"\1***", text)
    for secret in _secrets():
        text = text.replace(secret, "***")
    return text


def without_credentials(uri: str) -> str:
    """An address without user, password and secret parameters: where a store is, not how to be let in."""
    found = _credentials(uri)
    if found:
        uri = found.before + found.after
    return SECRET_PARAMETER.sub(r"\1", uri)


class _Credentials(NamedTuple):
    before: str
    user: str
    password: str | None
    after: str


def _credentials(address: str) -> _Credentials | None:
    before, at, after = address.rpartition("@")
    if not at:
        return None
    slashes = islice(re.finditer("//", before), MOST_ADDRESSES)
    for start in (0, *(found.end() for found in slashes)):
        user, colon, password = before[start:].partition(":")
        if "/" in user or password.startswith("//") or re.match(r"\d{1,5}/", password):
            continue  # an @ in a path
        if colon or start:  # else a mail address, or a word
            return _Credentials(before[:start], user, password if colon else None, after)
    return None


def _without_password(word: str) -> str:
    found = _credentials(word)
    if found is None:
        return word
    user = f"{found.user}:" if found.password is not None else ""  # a user without a password may be a token
    return f"{found.before}{user}***@{found.after}"


def _secrets() -> list[str]:
    """Longest first, since one may hold another."""
    found = {
        value
        for name, value in os.environ.items()
        if SECRET_NAME.search(name) and not name.endswith(("_PATH", "_FILE", "_DIR")) and len(value) >= SHORTEST_SECRET
    }
    return sorted(found, key=len, reverse=True)
