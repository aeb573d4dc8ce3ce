"""Faults of the store: locked, stopped, killed, restarted, replaced."""

import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from typing import Any

from tests.chaos.faults.catalogue import Impossible, Victim, fault
from tests.chaos.stores import PostgresStore, ServerStore

SERVED = ("server", "postgres")


def _server(victim: Victim) -> ServerStore:
    assert isinstance(victim.store, ServerStore)
    return victim.store


def _postgres(victim: Victim) -> PostgresStore:
    assert isinstance(victim.store, PostgresStore)
    return victim.store


@fault("store", stores=("sqlite", "server"), weight=2)
def sqlite_locked_for_seconds(victim: Victim) -> None:
    with closing(sqlite3.connect(victim.store.file, timeout=20, isolation_level=None)) as database:
        try:
            database.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            raise Impossible("the file was always locked") from None
        time.sleep(victim.random.uniform(2, 6))
        database.execute("ROLLBACK")


@fault("store", stores=("sqlite",), weight=2)
def sqlite_immutable_for_seconds(victim: Victim) -> None:
    # not mlflow.db-shm: SQLite maps it into memory, and the kernel kills a process that writes to it then (SIGBUS)
    files = [str(path) for path in victim.home.folder.glob("mlflow.db*") if not path.name.endswith("-shm")]
    if subprocess.run(["chattr", "+i", *files], capture_output=True).returncode:
        raise Impossible("chattr is not permitted here")
    time.sleep(victim.random.uniform(2, 5))
    subprocess.run(["chattr", "-i", *files], capture_output=True)


@fault("store", stores=("sqlite",), codes=(1, 2), reasons=(r"was removed or replaced while it was in use",))
def sqlite_file_moved_away(victim: Victim) -> None:
    _without_its_file(victim, lambda: None)


@fault("store", stores=("sqlite",), codes=(1, 2), reasons=(r"was removed or replaced while it was in use",))
def sqlite_file_replaced(victim: Victim) -> None:
    template = getattr(victim.store, "template", None)
    _without_its_file(victim, lambda: shutil.copy(template, victim.store.file) if template else None)


def _without_its_file(victim: Victim, meanwhile: Any) -> None:
    files = list(victim.home.folder.glob("mlflow.db*"))
    for path in files:
        path.rename(f"{path}.away")
    meanwhile()
    victim.driver.ended(150)
    for path in victim.home.folder.glob("mlflow.db*"):
        if not path.name.endswith(".away"):
            path.unlink()
    for path in files:
        path.with_name(f"{path.name}.away").rename(path)


@fault("store", stores=SERVED, weight=2)
def server_stopped_for_seconds(victim: Victim) -> None:
    _server(victim).signal(signal.SIGSTOP)
    time.sleep(victim.random.uniform(2, 8))
    _server(victim).signal(signal.SIGCONT)


@fault("store", stores=SERVED, weight=2)
def server_killed_and_restarted(victim: Victim) -> None:
    _server(victim).kill()
    time.sleep(victim.random.uniform(0, 3))
    _server(victim).serve()


@fault("store", stores=SERVED, codes=(-9,))
def server_and_driver_killed(victim: Victim) -> None:
    _server(victim).kill()
    victim.driver.process.send_signal(signal.SIGKILL)
    _server(victim).serve()


@fault("store", stores=("postgres",), weight=2)
def postgres_table_locked_for_seconds(victim: Victim) -> None:
    with closing(_postgres(victim).connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '20s'")
        cursor.execute("LOCK TABLE metrics, runs, tags IN ACCESS EXCLUSIVE MODE")
        time.sleep(victim.random.uniform(2, 6))
        connection.rollback()


@fault("store", stores=("postgres",), weight=3)
def postgres_connections_ended(victim: Victim) -> None:
    for _ in range(victim.random.randint(1, 4)):
        with closing(_postgres(victim).connect()) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        time.sleep(0.5)


@fault("store", stores=("postgres",), weight=2)
def postgres_restarted(victim: Victim) -> None:
    _postgres(victim).stop_postgres("fast")
    time.sleep(victim.random.uniform(0, 3))
    _postgres(victim).start_postgres()


@fault("store", stores=("postgres",), weight=2)
def postgres_crashes(victim: Victim) -> None:
    with suppress(subprocess.CalledProcessError):
        _postgres(victim).stop_postgres("immediate")
    time.sleep(victim.random.uniform(0, 3))
    _postgres(victim).start_postgres()
