"""The connection to a store: requests are repeated while it is busy, and a replaced SQLite file is noticed."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential_jitter

from featurelab.tracking.errors import StoreError, StoreGone, disk_full
from featurelab.tracking.lines import line
from featurelab.tracking.store.addresses import first_line, shown, sqlite_path
from featurelab.tracking.store.answers import is_transient
from featurelab.tracking.store.checkpoint import checkpoint
from featurelab.tracking.store.places import identity

T = TypeVar("T")

_opened: dict[str, tuple[int, int]] = {}  # the identity of each SQLite file that this process has opened, by address


@dataclass(frozen=True)
class Connection:
    """A connection to the store at `uri`. Requests to a busy store are repeated for up to `patience` seconds."""

    uri: str
    client: MlflowClient
    patience: float = 60.0

    def patiently(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return what `call` returns, repeating it at growing intervals while the store is busy or away.

        Raises StoreError if patience ends, the disk is full or the SQLite file is gone; otherwise what `call` raises.
        """
        repeatedly = Retrying(
            retry=retry_if_exception(is_transient),
            wait=wait_exponential_jitter(initial=0.1, max=8, jitter=0.5),
            stop=stop_after_delay(self.patience),
            reraise=True,
        )
        self.require_in_place()
        try:
            return repeatedly(call, *args, **kwargs)
        except Exception as error:
            if _is_disk_full(error):
                raise StoreError(f"the store at {shown(self.uri)} cannot be written: the disk is full") from error
            if not is_transient(error):
                raise
            raise StoreError(f"the store at {shown(self.uri)} cannot be reached: {first_line(error)}") from error

    def require_in_place(self) -> None:
        """Raise StoreGone if the SQLite file is not the one that this process opened: what it takes would be lost."""
        if self.uri.startswith("sqlite:"):
            path = _path(self.uri)
            current = identity(path)
            self.expect(current)
            if current is None or _opened[self.uri] != current:
                raise StoreGone(f"the store {line(str(path), 200)} was removed or replaced while it was in use")

    @property
    def file(self) -> tuple[int, int] | None:
        """The identity of the SQLite file that this process opened: for `expect` in another process."""
        return _opened.get(self.uri)

    def expect(self, file: tuple[int, int] | None) -> None:
        """Accept only this file as the store, unless this process has opened one: the path may lead elsewhere now."""
        if file is not None and self.uri not in _opened:
            _opened[self.uri] = file
            atexit.register(_close_at_exit, self, os.getpid())  # runs after recorders, which register later, have sent

    def close(self) -> None:
        """Close a SQLite file, so that a copy of the file alone is the whole store. The next call opens it again.

        While another process writes, some of what it wrote stays in the write-ahead log beside the file.
        """
        if not self.uri.startswith("sqlite:") or _opened.get(self.uri) != identity(_path(self.uri)):
            return
        with suppress(SQLAlchemyError, MlflowException):  # of MLflow: another version upgraded the file meanwhile
            self.client._tracking_client.store.engine.dispose()
        checkpoint(_path(self.uri))


def _close_at_exit(connection: Connection, process: int) -> None:
    if os.getpid() == process:  # not in a forked child, which shares the connections
        connection.close()


@cache
def _path(uri: str) -> Path:
    return sqlite_path(uri)


def _is_disk_full(error: BaseException) -> bool:
    """Return whether the disk of the store, or that of its artifacts, is full."""
    return "database or disk is full" in str(error) or bool(disk_full(error))
