"""The three kinds of store under test: a SQLite file, a server over one, a server over PostgreSQL."""

import os
import pwd
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.chaos import processes
from tests.chaos.proxy import Proxy

KINDS = ("sqlite", "server", "postgres")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class SqliteStore:
    """The file `mlflow.db` in the folder of each sweep, MLflow's default."""

    kind = "sqlite"
    proxy: Proxy | None = None

    def __init__(self, home: Path, template: Path) -> None:
        self.home, self.template = home, template
        self.file = home / "mlflow.db"

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def ready_for(self, home: Path) -> dict[str, str]:
        """Create an empty store for a sweep in this folder, and return the environment variables that it needs."""
        self.file = home / "mlflow.db"
        shutil.copy(self.template, self.file)
        return {}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Waits for a locked file."""
        return read_sqlite(self.file, query)


class ServerStore:
    """An `mlflow server` over a SQLite file, behind a proxy."""

    kind = "server"

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.file = home / "mlflow.db"
        self.proxy: Proxy | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def backend(self) -> str:
        return f"sqlite:///{self.file}"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.proxy = self.proxy or Proxy(self.port)
        self.serve()

    def serve(self) -> None:
        """Start the server and wait until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", self.backend]
        command += [
            "--default-artifact-root",
            "mlflow-artifacts:/",
            "--artifacts-destination",
            str(self.home / "files"),
        ]
        environment = os.environ | {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "OMP_NUM_THREADS": "1",
            "CHAOS_HOME": f"{self.home}/",
        }
        with open(self.home / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.home, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return
            except (URLError, OSError):
                if self._process.poll() is not None:
                    raise RuntimeError(f"the MLflow server did not start: see {self.home / 'server.log'}") from None
                time.sleep(0.3)
        raise TimeoutError(f"no MLflow server answers at port {self.port}")

    def signal(self, number: signal.Signals) -> None:
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self._process:
            self._process.wait()
        self._process = None

    def stop(self) -> None:
        self.kill()
        processes.end_all(self.home)
        if self.proxy:
            self.proxy.close()
            self.proxy = None

    def ready_for(self, home: Path) -> dict[str, str]:
        assert self.proxy
        return {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{self.proxy.port}"}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return read_sqlite(self.file, query)


class PostgresStore(ServerStore):
    """An `mlflow server` over its own PostgreSQL cluster: in a folder, at a port of this machine."""

    kind = "postgres"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.postgres_port = free_port()
        self.data = home / "data"
        self.user = _unprivileged()

    @property
    def backend(self) -> str:
        return f"postgresql+psycopg2://chaos@127.0.0.1:{self.postgres_port}/postgres"

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        for folder in (self.home, *self.home.parents[:2]):
            folder.chmod(0o755)  # PostgreSQL runs as another user
        self.data.mkdir()
        if self.user:
            shutil.chown(self.data, self.user)
        self._run("initdb", "--auth=trust", "--username=chaos", "--encoding=UTF8", "--no-sync", "-D", str(self.data))
        self.start_postgres()
        super().start()

    def start_postgres(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -p {self.postgres_port} -k {self.data} -c fsync=off"
        self._run("pg_ctl", "-w", "-D", str(self.data), "-l", str(self.data / "log"), "-o", options, "start")

    def stop_postgres(self, mode: str) -> None:
        self._run("pg_ctl", "-w", "-D", str(self.data), "-m", mode, "stop")

    def stop(self) -> None:
        super().stop()
        with suppress(subprocess.CalledProcessError):
            self.stop_postgres("immediate")

    def connect(self) -> Any:
        import psycopg2

        return psycopg2.connect(self.backend.replace("+psycopg2", ""), connect_timeout=10)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(query.replace("%", "%%"))
            return list(cursor.fetchall())

    def _run(self, program: str, *arguments: str) -> None:
        # to a file: the server that pg_ctl starts would keep a pipe open
        with open(self.home / "postgres.log", "ab") as log:
            command: Sequence[str] = [str(postgres_programs() / program), *arguments]
            subprocess.run(command, check=True, stdout=log, stderr=log, user=self.user, cwd="/", timeout=120)


def read_sqlite(file: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query in a SQLite file that others write to; none if there is no file.

    Raises TimeoutError after 20 s.
    """
    for _ in range(40):
        if not file.exists():
            return []
        try:
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as database:
                return database.execute(query).fetchall()
        except sqlite3.OperationalError:
            time.sleep(0.5)
    raise TimeoutError(f"{file} could not be read")


def postgres_programs() -> Path:
    """Return the folder of PostgreSQL's programs. Raises FileNotFoundError if it is not installed."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not installed and not on_path:
        raise FileNotFoundError("initdb")
    return installed[-1].parent if installed else Path(str(on_path)).parent


def missing(kind: str) -> str:
    """Return one line that says what to install for a kind of store; an empty text if nothing is missing."""
    if kind != "postgres":
        return ""
    try:
        import psycopg2  # noqa: F401
    except ImportError:
        return "PostgreSQL is skipped without psycopg2: pip install psycopg2-binary"
    try:
        postgres_programs()
    except FileNotFoundError:
        return "PostgreSQL is skipped because it is not installed: apt-get install postgresql"
    return ""


def _unprivileged() -> str | None:
    """Return the user to run PostgreSQL as, because it refuses root; None if we are not root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
