"""Addresses of stores, and the lines that messages show of them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from featurelab.tracking.errors import StoreError
from featurelab.tracking.lines import line

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,255}")
NETWORK_REASONS = re.compile(
    r"Connection refused|Name or service not known|Temporary failure in name resolution|timed out"
)


def shown(uri: str) -> str:
    """Return an address as one line, without the password that it may contain."""
    return line(uri, 200)


def first_line(error: BaseException) -> str:
    """Return the reason of an error in one line: the innermost one if `requests` nests several."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    reasons = NETWORK_REASONS.findall(text)
    return reasons[-1].lower() if reasons else line(re.sub(r"^\(\w+\.\w+\) ", "", text), 300)


def sqlite_path(uri: str) -> Path:
    """Return the file that a SQLite address names. Raises StoreError for an address that names none."""
    try:
        database = make_url(uri).database or ":memory:"
        path = Path(database).absolute()
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(str(path).encode())  # raises for a name that is too long or not text
    except (SQLAlchemyError, OSError, ValueError) as error:
        advice = "write sqlite:///mlflow.db"
        raise StoreError(f"the store {shown(uri)} names no file ({first_line(error)}): {advice}") from error
    if database == ":memory:":
        raise StoreError(f"the store {shown(uri)} lives in memory and would be lost; name a file: sqlite:///mlflow.db")
    return path


def sqlite_uri(path: Path) -> str:
    """Return the address of a SQLite file, with %, ? and # quoted as SQLAlchemy reads them."""
    return URL.create("sqlite", database=str(path)).render_as_string()
