"""SQLite: the copy of a file in use, and a file that takes the place of another."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from convserver.backups import directories
from convserver.backups.failures import BackupError
from convserver.backups.manifest import pieces_of
from convserver.serving.neighbours import FirstPlace

STEP_PAGES = 2000
"""8 MB at a time."""
REST_S = 0.002
"""Between two steps, for those who write beside it."""
COMPANIONS = ("-wal", "-shm", "-journal")
BUSY = (
    "The database {path} is in use: stop the server, and every other program that has it open, and try "
    "again. Nothing was changed."
)


def copy(source: Path, target: Path) -> None:
    """Copy a database in use to a new file, all of one moment: when this begins.

    Writers go on meanwhile: what they add stays in the `-wal` file until the copy is complete.
    """
    with (
        closing(sqlite3.connect(_uri(source), uri=True, isolation_level=None)) as live,
        closing(sqlite3.connect(target, isolation_level=None)) as copied,
    ):
        target.chmod(0o600)
        # A transaction that has read keeps its snapshot; without one, each write of others would make the
        # backup begin anew, and under load it would never end.
        live.execute("BEGIN")
        live.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        copied.execute("PRAGMA synchronous = OFF")  # the whole file is synced at the end
        live.backup(copied, pages=STEP_PAGES, progress=lambda *_: time.sleep(REST_S))
    directories.sync(target)


def put(source: Path, target: Path) -> str:
    """Write a copy of a file, sync it, and return the SHA-256 of what was written, in hex."""
    digest = hashlib.sha256()
    with target.open("xb") as out:
        for piece in pieces_of(source):
            digest.update(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Keep everybody else away from a database, if there is one. Raise BackupError if somebody has it open.

    Afterwards what was in its `-wal` file is in the file itself.
    """
    with closing(FirstPlace(path)) as place:
        if not place.take():
            raise BackupError(BUSY.format(path=path))
        if not path.exists():
            yield
            return
        with closing(_locked(path)):
            yield


def _locked(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(_uri(path), uri=True, isolation_level=None, timeout=1)
    try:
        # With its write-ahead log a connection locks the file itself in this mode, which every other one
        # that is open prevents.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.DatabaseError as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise BackupError(BUSY.format(path=path)) from error
        return sqlite3.connect(":memory:")  # damaged: nobody can use it, and it is kept as it is
    return connection


def swap(restored: Path, live: Path, kept: Path) -> Path | None:
    """Put the restored file in the place of the live one, and return where that is kept, if there was one.

    At every moment there is one of the two under the live name. Only under `alone_with`.
    """
    had_one = live.exists()
    if had_one:
        kept.hardlink_to(live)
    for ending in COMPANIONS:
        companion = live.with_name(f"{live.name}{ending}")
        with suppress(FileNotFoundError):
            if companion.stat().st_size == 0:
                companion.unlink()
            else:  # of a damaged file; the restored one must not find it
                companion.rename(kept.with_name(f"{kept.name}{ending}"))
    directories.sync(live.parent)
    restored.replace(live)
    directories.sync(live.parent)
    return kept if had_one else None


def _uri(path: Path) -> str:
    return f"file:{quote(str(path))}?mode=rw"
