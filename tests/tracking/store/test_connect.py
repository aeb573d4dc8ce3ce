from __future__ import annotations

import contextlib
import http.server
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from mlflow.tracking._tracking_service.utils import _get_default_tracking_uri
from store_workers import at_once, connect_and_name

from featurelab.tracking.errors import StoreError
from featurelab.tracking.store.addresses import sqlite_path
from featurelab.tracking.store.connect import attach, connect, resolve
from featurelab.tracking.store.places import copied_from
from featurelab.tracking.store.store import Store


def test_importing_tracking_loads_neither_mlflow_nor_torch():
    code = "import sys, tracking; print([name for name in ('mlflow', 'torch', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("directory", ["with space", "100% #1"])
def test_the_default_store_is_the_one_that_mlflow_ui_shows(directory, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / directory).mkdir()
    monkeypatch.chdir(tmp_path / directory)
    assert _get_default_tracking_uri() == "sqlite:///mlflow.db"
    assert sqlite_path(resolve()) == tmp_path / directory / "mlflow.db"
    assert resolve(resolve()) == resolve()
    store = connect(timeout=60)
    store.experiment_id("system/figure")
    with sqlite3.connect("mlflow.db") as database:  # a relative path, as `mlflow ui` opens it
        assert ("system/figure",) in database.execute("SELECT name FROM experiments").fetchall()
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert set(os.listdir()) <= {"mlflow.db", "mlflow.db-wal", "mlflow.db-shm"}


def test_the_environment_names_the_store_and_an_argument_overrides_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///from_environment.db")
    assert resolve() == f"sqlite:///{tmp_path}/from_environment.db"
    assert resolve("sqlite:///argument.db") == f"sqlite:///{tmp_path}/argument.db"
    assert resolve("http://host:5000/") == "http://host:5000"


def test_eight_processes_create_one_store_and_one_experiment(tmp_path):
    experiment_ids = set(at_once(8, connect_and_name, f"sqlite:///{tmp_path}/mlflow.db"))
    assert experiment_ids == {"1"}
    assert {path.name for path in tmp_path.iterdir()} <= {"mlflow.db", "mlflow.db-wal", "mlflow.db-shm"}
    assert attach(f"sqlite:///{tmp_path}/mlflow.db").client.get_experiment("1").name == "system/figure"


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    database.close()


def _other_tracker(path: Path) -> None:
    """Create a database of another program with tables named like those of MLflow."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE experiments (name TEXT)")
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES ('0123456789ab')")
    database.close()


UNUSABLE = {
    "missing_directory": ("sqlite:///{}/missing/mlflow.db", lambda home: None, "no directory|no store"),
    "parent_is_a_file": ("sqlite:///{}/file/mlflow.db", lambda home: (home / "file").touch(), "no directory|no store"),
    "directory_in_place_of_the_file": ("sqlite:///{}/d", lambda home: (home / "d").mkdir(), "not a plain file"),
    "not_a_database": ("sqlite:///{}/t", lambda home: (home / "t").write_text("notes " * 99), "not a database"),
    "another_database": ("sqlite:///{}/o.db", lambda home: _foreign(home / "o.db"), "not one of MLflow"),
    "another_tracker": ("sqlite:///{}/o.db", lambda home: _other_tracker(home / "o.db"), "not one of MLflow"),
    "fifo": ("sqlite:///{}/f", lambda home: os.mkfifo(home / "f"), "not a plain file"),
    "cannot_be_written": ("sqlite:////proc/mlflow.db", lambda home: None, "/proc/mlflow.db"),
    "in_memory": ("sqlite:///:memory:", lambda home: None, "memory"),
    "plain_directory": ("file://{}", lambda home: None, "sqlite:///mlflow.db"),
    "nobody_listens": ("http://127.0.0.1:9", lambda home: None, "connection refused"),
    "unknown_host": ("http://no-such-host.invalid", lambda home: None, "no-such-host.invalid"),
    "password_is_not_shown": ("postgresql://me:secret@127.0.0.1:9/x", lambda home: None, "me:\\*\\*\\*@127"),
}


@pytest.mark.parametrize("create", [True, False], ids=["to write", "to read"])
@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_store_is_refused_in_one_line_and_nothing_is_created_or_changed(case, create, tmp_path):
    uri, prepare, reason = UNUSABLE[case]
    prepare(tmp_path)
    before = {path: path.read_bytes() if path.is_file() else b"" for path in tmp_path.rglob("*")}
    with pytest.raises(StoreError, match=reason) as caught:
        connect(uri.format(tmp_path), timeout=5, create=create)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert {path: path.read_bytes() if path.is_file() else b"" for path in tmp_path.rglob("*")} == before


@contextlib.contextmanager
def _as_nobody():
    """Run without the rights of root, for whom file modes do not count."""
    if os.getuid() == 0:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        if os.getresuid()[2] == 0:
            os.setresuid(0, 0, 0)


@pytest.mark.parametrize("name", ["mlflow.db", "new.db"])
def test_a_read_only_store_is_refused(template, name):
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(template, Path(directory) / "mlflow.db")
        os.chmod(Path(directory) / "mlflow.db", 0o444)
        os.chmod(directory, 0o555)
        with _as_nobody(), pytest.raises(StoreError, match=r"not writable|Permission denied"):
            connect(f"sqlite:///{directory}/{name}")
        assert os.listdir(directory) == ["mlflow.db"]
        os.chmod(directory, 0o755)


def test_a_missing_store_is_not_created_when_only_reading(tmp_path):
    with pytest.raises(StoreError, match="there is no store"):
        connect(f"sqlite:///{tmp_path}/mlflow.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_store(tmp_path):
    (tmp_path / "mlflow.db").touch()
    assert connect(f"sqlite:///{tmp_path}/mlflow.db", timeout=60).experiment_id("a/b") == "1"


def test_connecting_to_a_silent_server_fails_after_the_timeout():
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, pytest.raises(StoreError, match=r"timed out|did not answer"):
        connect(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.5)


@pytest.mark.parametrize(("code", "reason"), [(200, "not an MLflow server"), (404, "not an MLflow"), (401, "refuses")])
def test_a_server_that_is_not_mlflow_is_refused(code, reason):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(code)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        with pytest.raises(StoreError, match=reason):
            connect(f"http://127.0.0.1:{site.server_port}", timeout=5)
        site.shutdown()


def test_a_locked_database_is_waited_for_until_the_timeout(template, tmp_path):
    uri = f"sqlite:///{shutil.copy(template, tmp_path / 'mlflow.db')}"
    other = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="database is locked"):
        connect(uri, timeout=0.3)
    threading.Timer(0.5, other.rollback).start()
    assert isinstance(connect(uri, timeout=20), Store)


@pytest.mark.parametrize("create", [True, False], ids=["to write", "to read"])
def test_a_store_of_another_mlflow_version_is_refused_with_advice_and_not_migrated(template, tmp_path, create):
    path = Path(shutil.copy(template, tmp_path / "mlflow.db"))
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
        database.execute("DROP TABLE issues")  # as in an older version: MLflow would add the table
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=re.escape(f"mlflow db upgrade sqlite:///{tmp_path}/mlflow.db")):
        connect(f"sqlite:///{tmp_path}/mlflow.db", create=create)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["mlflow.db"]


def test_an_empty_file_is_left_empty_when_only_reading(tmp_path):
    (tmp_path / "mlflow.db").touch()
    with pytest.raises(StoreError, match="is empty: nothing has been recorded there yet"):
        connect(f"sqlite:///{tmp_path}/mlflow.db", create=False)
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("mlflow.db", 0)]


def test_a_copied_store_is_recognised_by_its_artifact_locations(template, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    path = Path(shutil.copy(template, here / "mlflow.db"))
    store = attach(f"sqlite:///{path}")
    store.experiment_id("system/figure with space")
    elsewhere = {"other": "s3://bucket/mlruns/other", "data": str(tmp_path / "data"), "file": "file:///data/mlruns/x"}
    for name, location in elsewhere.items():
        store.client.create_experiment(name, artifact_location=location)
    (tmp_path / "template").mkdir()
    store.client._tracking_client.store.engine.dispose()
    with sqlite3.connect(path) as database:  # the template was made in another folder
        database.execute("UPDATE experiments SET artifact_location = ? WHERE experiment_id = 0", (f"{here}/mlruns/0",))
    database.close()
    assert copied_from(path) == ""
    shutil.copytree(here, tmp_path / "there")
    copied = copied_from(tmp_path / "there" / "mlflow.db")
    assert copied == (
        f"the store {tmp_path}/there/mlflow.db is a copy: artifacts of its experiments are read and written in "
        f"{here}/mlruns"
    )
    shutil.rmtree(here)
    assert copied_from(tmp_path / "there" / "mlflow.db") == copied
    (tmp_path / "here").symlink_to(tmp_path / "there")
    assert copied_from(tmp_path / "there" / "mlflow.db") == "", "the same folder by another name"


def test_a_real_server_answers(server):
    assert connect(server.uri).client.get_experiment("0").name == "Default"
