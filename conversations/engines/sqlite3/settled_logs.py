"""A write-ahead log that a process left behind: what is only in memory of it becomes safe before it is used.

After a sync has failed, Linux keeps the pages in memory and never writes them again, though later syncs
succeed. A process that died then leaves a log that reads well and has a gap on the disk. Commits behind the
gap would be acknowledged and lost with the next power cut: SQLite ends at the first frame that is damaged.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from conversations import synced_files


def settle(database: str, *, wait_s: float) -> None:
    """Write the log of a database once more, byte by byte, and sync it. Raise sqlite3.OperationalError.

    Nothing happens where there is no log, or where SQLite cannot open the database: the connection that
    follows reports that.
    """
    log = Path(f"{Path(database).resolve()}-wal")  # SQLite follows links
    if not log.exists() or not log.stat().st_size:
        return
    failed: OSError | None = None
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(database, timeout=wait_s, isolation_level=None)) as connection,
    ):
        # While this process may write, no other one appends to the log or begins it anew.
        connection.execute("BEGIN IMMEDIATE")
        failed = _rewritten(log)
        connection.execute("ROLLBACK")
    if failed is not None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR, "SQLITE_IOERR"
        raise error from failed


def _rewritten(log: Path) -> OSError | None:
    try:
        synced_files.rewrite(log)
    except FileNotFoundError:
        return None  # SQLite has removed a log that belongs to no content of the file
    except OSError as error:
        return error
    return None
