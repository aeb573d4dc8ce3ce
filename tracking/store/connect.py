"""Find the MLflow store and check that it works, or say in one line why it does not."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import mlflow
import sqlalchemy
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request

from featurelab.tracking.errors import RunNotFound, StoreError
from featurelab.tracking.lines import line
from featurelab.tracking.store import schema
from featurelab.tracking.store.addresses import first_line, shown, sqlite_path, sqlite_uri
from featurelab.tracking.store.store import Store

TABLES = {"alembic_version", "experiments", "experiment_tags", "latest_metrics", "metrics", "params", "runs", "tags"}
LOCAL_DISKS = {"apfs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}

__all__ = ["RunNotFound", "Store", "StoreError", "attach", "connect", "resolve"]


def connect(uri: str | None = None, *, timeout: float = 15.0, create: bool = True) -> Store:
    """Return the store at `uri`, else at MLFLOW_TRACKING_URI, else MLflow's own default, `mlflow.db` in this directory.

    Checks within `timeout` seconds that a server answers, or that the database can be written. With `create`, makes a
    missing or empty SQLite file into a store with its whole schema, in one process if several start at once. Raises
    StoreError if the check fails, or if the database was not made by this version of MLflow; then nothing was changed.
    """
    uri, deadline = resolve(uri), time.monotonic() + timeout
    if uri.startswith("sqlite:") and (create or sqlite_path(uri).exists()):
        _prepare_sqlite(sqlite_path(uri), uri, deadline, create)
    elif uri.startswith(("http://", "https://")):
        _within(timeout, uri, lambda: _check_server(uri, timeout))
    elif uri.startswith(("postgresql", "mysql", "mssql")):
        _within(timeout, uri, lambda: sqlalchemy.create_engine(uri).connect().close())
    return attach(uri)


def attach(uri: str) -> Store:
    """Return the store at `uri` without the checks of `connect`, for a worker. Raises StoreError if it is unusable."""
    uri = resolve(uri)
    if uri.startswith("sqlite:") and not sqlite_path(uri).is_file():
        raise StoreError(f"there is no store at {shown(uri)}")
    try:
        return Store(uri, MlflowClient(uri))
    except (MlflowException, sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as error:
        if "out-of-date database schema" in str(error):
            raise _other_version(uri) from error
        raise StoreError(f"cannot use the store at {shown(uri)}: {first_line(error)}") from error


def resolve(uri: str | None = None) -> str:
    """Return the absolute address of the store that `uri`, else the environment, else MLflow's default names.

    Raises StoreError for a plain directory, where MLflow no longer stores runs, and for an address that is not valid.
    """
    if not uri:
        uri = mlflow.get_tracking_uri()
    if re.match(r"sqlite(\+\w+)?:", uri, re.IGNORECASE):
        return sqlite_uri(sqlite_path(uri))
    if uri.startswith("file:") or not ("://" in uri or uri.startswith("databricks")):
        advice = "MLflow no longer writes to those; set MLFLOW_TRACKING_URI=sqlite:///mlflow.db"
        raise StoreError(f"the store {shown(uri)} is a plain directory: {advice}")
    return uri.rstrip("/")


def _prepare_sqlite(path: Path, uri: str, deadline: float, create: bool) -> None:
    """Check that `path` is a writable MLflow database. With `create`, create the database if it is missing."""
    if not path.parent.is_dir():
        raise StoreError(f"cannot use the store at {shown(uri)}: there is no directory {line(str(path.parent), 200)}")
    try:
        if path.exists() and not path.is_file():
            raise StoreError(f"cannot use the store at {shown(uri)}: it is not a plain file")
        if create:
            with _locked(path.parent, deadline):
                if not path.exists():
                    _create_sqlite(path)
                elif path.stat().st_size == 0:
                    attach(uri)  # MLflow fills an empty file
        for required in (path, path.parent):  # SQLite would open the file for reading and fail at the first write
            if not os.access(required, os.W_OK):
                raise PermissionError(f"{required} is not writable")
        _require_mlflow(path, uri)
        if create:
            with closing(sqlite3.connect(path, timeout=max(deadline - time.monotonic(), 0.1))) as database:
                database.execute("BEGIN IMMEDIATE")
    except TimeoutError:
        raise StoreError(f"another process has not finished creating the store at {shown(uri)}") from None
    except (sqlite3.Error, OSError, MlflowException, sqlalchemy.exc.SQLAlchemyError) as error:
        raise StoreError(f"cannot use the store at {shown(uri)}: {first_line(error)}") from error


def _require_mlflow(path: Path, uri: str) -> None:
    """Raise StoreError unless a file is a database of this version of MLflow, which would alter any other."""
    if not path.stat().st_size:
        raise StoreError(f"the store at {shown(uri)} is empty: nothing has been recorded there yet")
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if TABLES - tables:
            raise StoreError(f"cannot use the store at {shown(uri)}: it is a database, but not one of MLflow")
        versions = [version for (version,) in database.execute("SELECT version_num FROM alembic_version")]
    if versions != [schema.latest_revision()]:
        raise _other_version(uri)


def _other_version(uri: str) -> StoreError:
    upgrade = f"back it up, then run: mlflow db upgrade {shown(uri)}"
    return StoreError(f"the store at {shown(uri)} was made by another version of MLflow; {upgrade}")


def _create_sqlite(path: Path) -> None:
    """Build a complete database beside `path`, then rename it in one step, so that nobody sees half a schema."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        draft.touch()  # fails at once if nothing can be written; MLflow would try for two minutes
        is_copied = schema.copy_to(draft)
        store = SqlAlchemyStore(sqlite_uri(draft), str(path.parent / "mlruns"))
        store.engine.dispose()
        if not is_copied:
            schema.keep(draft)
        if _is_on_local_disk(path.parent):
            with closing(sqlite3.connect(draft)) as database:
                database.execute("PRAGMA journal_mode = WAL")  # a lasting property of the file
        os.link(draft, path)
    except FileExistsError:
        pass  # `mlflow ui` was faster
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)


def _is_on_local_disk(directory: Path) -> bool:
    """Return whether write-ahead logging is safe: it needs shared memory, which a network disk does not offer."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return False
    containing = [(len(point), kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return bool(containing) and max(containing)[1] in LOCAL_DISKS


@contextmanager
def _locked(directory: Path, deadline: float) -> Iterator[None]:
    """Lock the directory itself, so that no lock file is left behind. Raises TimeoutError after `deadline`."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _check_server(uri: str, timeout: float) -> None:
    """Ask a server for one experiment. Raises StoreError if it refuses access or is not an MLflow server."""
    endpoint, query = "/api/2.0/mlflow/experiments/search", {"max_results": 1}
    reply = http_request(
        get_default_host_creds(uri),
        endpoint,
        "GET",
        params=query,
        max_retries=0,
        timeout=timeout,
        raise_on_status=False,
    )
    if reply.status_code in (401, 403):
        raise StoreError(f"the server at {shown(uri)} refuses access ({reply.status_code} {line(reply.reason, 40)})")
    try:
        is_mlflow = reply.status_code == 200 and isinstance(reply.json(), dict)
    except ValueError:
        is_mlflow = False
    if not is_mlflow:
        raise StoreError(f"the server at {shown(uri)} is not an MLflow server ({reply.status_code})")


def _within(seconds: float, uri: str, check: Callable[[], None]) -> None:
    """Run `check` for at most `seconds`, name look-ups included. Raises StoreError if it fails or does not return."""
    failure: list[Exception] = []

    def run() -> None:
        try:
            check()
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise StoreError(f"the store at {shown(uri)} did not answer within {seconds:g} s")
    if failure:
        if isinstance(failure[0], StoreError):
            raise failure[0]
        raise StoreError(f"the store at {shown(uri)} cannot be reached: {first_line(failure[0])}") from failure[0]
