"""Make a SQLite file whole by itself: what was written last lies in a write-ahead log beside it until then."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

PATIENCE = 1.0  # seconds to wait for whoever reads or writes the file


def checkpoint(path: Path) -> None:
    """Move the write-ahead log of a SQLite file into it, as far as other processes let us."""
    address = f"{path.as_uri()}?mode=rw"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True, timeout=PATIENCE)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
