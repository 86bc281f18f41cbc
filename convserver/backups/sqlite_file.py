"""SQLite: the copy of a database in use."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from conversations import synced_files

REST_S = 0.002  # between two steps, for programs that write meanwhile


def copy(source: Path, target: Path) -> None:
    """Copy a database in use to a new file, all of one moment: when this begins."""
    # 8 MB at a time
    step_pages = 2000
    with (
        closing(sqlite3.connect(uri(source), uri=True, isolation_level=None)) as live,
        closing(sqlite3.connect(target, isolation_level=None)) as copied,
    ):
        target.chmod(0o600)
        # A transaction that has read keeps its snapshot; without one, each write of others would make the
        # backup begin anew, and under load it would never end. What they write meanwhile stays in the
        # `-wal` file until the copy is complete.
        live.execute("BEGIN")
        live.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        copied.execute("PRAGMA synchronous = OFF")  # the whole file is synced at the end
        live.backup(copied, pages=step_pages, progress=lambda *_: time.sleep(REST_S))
    synced_files.sync(target)


def uri(path: Path) -> str:
    """Return the name by which SQLite opens a file that exists."""
    # SQLite would make a missing file, and a backup of it would be empty.
    return f"file:{quote(str(path))}?mode=rw"
