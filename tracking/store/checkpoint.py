"""Move the write-ahead log of a SQLite file into the file, so that a copy of the file alone is complete."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

PATIENCE = 1.0  # seconds to wait for other readers and writers of the file


def checkpoint(path: Path) -> None:
    """Move the write-ahead log of a SQLite file into it, as far as other processes allow. Ignores failures."""
    address = f"{path.as_uri()}?mode=rw"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True, timeout=PATIENCE)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
