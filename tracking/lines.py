"""Make untrusted text fit to be shown, logged or stored: without secrets, control characters and endless lines."""

from __future__ import annotations

import os
import re
from itertools import islice
from reprlib import Repr
from typing import Any, NamedTuple

LONGEST_LINE = 480
SECRET_NAME = re.compile(r"TOKEN|PASSWORD|PASSWD|SECRET|CREDENTIAL|ACCESS_KEY|API_KEY|PRIVATE_KEY", re.IGNORECASE)
# viewStateShareKey is a parameter of MLflow's pages, and no secret
SECRET_PARAMETER = re.compile(
    r"(?i)([?&](?!viewStateShareKey=)[\w-]{0,30}(?:password|passwd|pwd|token|secret|key)=)[^&\s'\"]+"
)
MOST_ADDRESSES = 20  # examined in one word, which bounds the time that any text takes
SHORTEST_SECRET = 8  # a shorter value would match parts of unrelated words


class _Repr(Repr):
    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(masked(x), level)  # before shortening, which may cut off what reveals a password


_repr = _Repr()
_repr.maxlevel, _repr.maxlist, _repr.maxtuple, _repr.maxdict = 3, 6, 6, 4
_repr.maxstring, _repr.maxlong, _repr.maxother = 80, 40, 80


def quoted(value: Any) -> str:
    """Return a value as Python writes it: control characters escaped, long or deeply nested parts shortened.

    >>> quoted("a" * 1000)[:12], len(quoted("a" * 1000)), quoted("\\x1b[2J")
    ("'aaaaaaaaaaa", 80, "'\\\\x1b[2J'")
    """
    return _repr.repr(value)


def line(text: str, most: int = LONGEST_LINE) -> str:
    """Return a text as one line of at most `most` characters for a terminal, a log or a tag: masked and escaped."""
    joined = " ".join(part.strip() for part in masked(text).splitlines() if part.strip())
    return shortened(escaped(shortened(joined, most)), most)


def escaped(text: str, keep: str = "") -> str:
    """Return a text with unprintable characters (control, direction, surrogates) as `\\x1b`, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int) -> str:
    """Return a text without its middle if it has more than `most` characters."""
    if len(text) <= most:
        return text
    tail = (most - 5) // 4
    return f"{text[: most - 5 - tail]} ... {text[len(text) - tail :]}"


def masked(text: str) -> str:
    """Return a text with `***` in place of credentials in addresses and of secrets in this environment.

    Secrets are the values of variables with such names (`MLFLOW_TRACKING_TOKEN`, `AWS_SECRET_ACCESS_KEY`, ...).

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
    """Return an address without user, password and secret parameters."""
    credentials = _credentials(uri)
    if credentials:
        uri = credentials.before + credentials.after
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
    for start in (0, *(match.end() for match in slashes)):
        user, colon, password = before[start:].partition(":")
        if "/" in user or password.startswith("//") or re.match(r"\d{1,5}/", password):
            continue  # the @ belongs to a path
        if colon or start:  # otherwise a mail address, or a word
            return _Credentials(before[:start], user, password if colon else None, after)
    return None


def _without_password(word: str) -> str:
    credentials = _credentials(word)
    if credentials is None:
        return word
    # a user without a password may be a token
    user = f"{credentials.user}:" if credentials.password is not None else ""
    return f"{credentials.before}{user}***@{credentials.after}"


def _secrets() -> list[str]:
    """Return the secrets of this environment, longest first: one may contain another."""
    secrets = {
        value
        for name, value in os.environ.items()
        if SECRET_NAME.search(name) and not name.endswith(("_PATH", "_FILE", "_DIR")) and len(value) >= SHORTEST_SECRET
    }
    return sorted(secrets, key=len, reverse=True)
