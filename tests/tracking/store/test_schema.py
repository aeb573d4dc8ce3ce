"""New stores are copied from one that MLflow has made: they cannot be told apart, and a bad cache does no harm."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from store_workers import at_once, connect_in_own_folder

from featurelab.tracking.store import schema
from featurelab.tracking.store.connect import connect

NOT_TOLD_APART = {"creation_time", "last_update_time"}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "featurelab"


@pytest.fixture
def filled(cache, template):
    """The cache after a store was made."""
    schema.keep(template)
    return schema._template()


def _content(path: Path) -> dict[str, object]:
    """Return everything that a database holds: the schema, and the rows of each table."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        items = [tuple(row) for row in database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")]
        rows = {
            name: [{k: v for k, v in dict(row).items() if k not in NOT_TOLD_APART} for row in rows]
            for kind, name, _, _ in items
            if kind == "table" and (rows := database.execute(f"SELECT * FROM {name}").fetchall())
        }
        settings = [tuple(database.execute(f"PRAGMA {name}").fetchone()) for name in ("page_size", "user_version")]
    # MLflow writes the constraints of a table in any order
    lines = [(*names, sorted(line.strip(" ,") for line in (sql or "").splitlines())) for *names, sql in items]
    return {"schema": sorted(lines), "rows": rows, "settings": settings}


def _new(home: Path) -> Path:
    home.mkdir()
    connect(f"sqlite:///{home}/mlflow.db", timeout=60)
    return home / "mlflow.db"


@pytest.mark.parametrize("name", ["home", "100% #1"])
def test_a_copied_store_holds_what_mlflow_itself_makes(filled, tmp_path, monkeypatch, name):
    with monkeypatch.context() as patched:
        patched.setattr(
            "mlflow.store.db.utils._initialize_tables", lambda engine: pytest.fail("MLflow ran its migrations")
        )
        ours = _content(_new(tmp_path / name))
    own = tmp_path / "mlflow.db"
    SqlAlchemyStore(f"sqlite:///{own}", str(tmp_path / name / "mlruns")).engine.dispose()
    assert ours == _content(own)
    assert str(tmp_path / name) in str(ours["rows"])


def test_the_first_store_fills_the_cache_and_the_cache_names_no_folder(cache, tmp_path):
    _new(tmp_path / "first")
    (kept,) = cache.iterdir()
    assert str(tmp_path).encode() not in kept.read_bytes()
    assert _content(kept)["rows"].keys() == {"alembic_version", "workspaces"}


def _is_directory(kept: Path) -> None:
    kept.unlink()
    kept.mkdir()


def _is_link(kept: Path) -> None:
    kept.rename(kept.with_name("elsewhere.db"))
    kept.symlink_to(kept.with_name("elsewhere.db"))


def _is_older(kept: Path) -> None:
    with closing(sqlite3.connect(kept)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")


def _has_a_garbled_page(kept: Path) -> None:
    with kept.open("r+b") as file:
        file.seek(4096 * 9)
        file.write(b"\xff" * 4096)


DAMAGE = {
    "empty": lambda kept: os.truncate(kept, 0),
    "cut": lambda kept: os.truncate(kept, 40_000),
    "garbage": lambda kept: kept.write_text("notes " * 999),
    "garbled page": _has_a_garbled_page,
    "older": _is_older,
    "directory": _is_directory,
    "link": _is_link,
    "fifo": lambda kept: (kept.unlink(), os.mkfifo(kept)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_is_not_used_and_can_be_replaced(filled, template, tmp_path, damage):
    DAMAGE[damage](filled)
    copy = tmp_path / "mlflow.db"
    assert not schema.copy_to(copy)
    assert not copy.exists() or not copy.stat().st_size, "MLflow fills an empty file"
    schema.keep(template)
    assert schema.copy_to(copy) == (damage != "directory")
    assert {path.name for path in filled.parent.iterdir()} <= {filled.name, "elsewhere.db"}


def test_a_store_made_beside_a_damaged_cache_is_whole_and_mends_the_cache(filled, template, tmp_path):
    filled.write_text("notes " * 999)
    assert _content(_new(tmp_path / "home"))["schema"] == _content(template)["schema"]
    assert schema.copy_to(tmp_path / "mlflow.db")


@pytest.mark.parametrize("place", ["/proc", "/dev/null"])
def test_a_store_is_made_where_no_cache_can_be(template, tmp_path, monkeypatch, place):
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    assert _content(_new(tmp_path / "home"))["schema"] == _content(template)["schema"]


def test_a_user_without_a_home_has_no_cache(template, tmp_path, monkeypatch):
    def no_home() -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    schema.keep(template)
    assert not schema.copy_to(tmp_path / "mlflow.db")


def test_a_cache_of_another_user_is_left_alone(cache, template):
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    cache.mkdir(parents=True)
    os.chown(cache, 65534, 65534)
    schema.keep(template)
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="resource limits of Linux")
def test_a_full_disk_leaves_no_half_store_in_the_cache(cache, template):
    import resource
    import signal

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        schema.keep(template)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert list(cache.iterdir()) == []


def test_processes_that_start_at_once_fill_one_cache(cache, tmp_path):
    assert at_once(3, connect_in_own_folder, str(tmp_path), str(cache.parent)) == ["1"] * 3
    assert len(list(cache.iterdir())) == 1
    assert schema.copy_to(tmp_path / "mlflow.db")
