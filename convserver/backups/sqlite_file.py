"""SQLite: the copy of a file in use, and a file that takes the place of another."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from conversations import synced_files
from convserver.backups.failures import BackupError, reason
from convserver.backups.manifest import pieces_of
from convserver.serving.neighbours import FirstPlace

STEP_PAGES = 2000
"""8 MB at a time."""
REST_S = 0.002
"""Between two steps, for those who write beside it."""
COMPANIONS = ("-wal", "-shm", "-journal")
RESTORING = ".restoring-"
"""Part of the name of a file that is being written, before a time."""
KEPT = ".before-"
"""Part of the name of a store that was replaced, before a time."""
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""With these errors nobody can use a file."""
AS_IT_WAS = "The present database was left as it was."
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
    synced_files.sync(target)


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


class Place(NamedTuple):
    """The place of a live database that nobody else uses."""

    live: Path
    is_new: bool
    """Whether there was no file."""
    locked: sqlite3.Connection | None
    """Keeps others away from the file; None if there is none, or if nobody can use it: it is damaged."""


@contextmanager
def alone_with(path: Path) -> Iterator[Place]:
    """Keep everybody else away from a database.

    Raise BackupError if somebody has it open, or if it cannot be opened for another reason than damage.
    """
    with closing(FirstPlace(path)) as first:
        if not first.take():
            raise BackupError(BUSY.format(path=path))
        is_new = not path.exists()
        locked = None if is_new else _locked(path)
        try:
            yield Place(path, is_new, locked)
        finally:
            if locked is not None:
                locked.close()


def _locked(path: Path) -> sqlite3.Connection | None:
    """Return a connection that is alone with a file, whose `-wal` file is empty; None if it is damaged."""
    try:
        connection = sqlite3.connect(_uri(path), uri=True, isolation_level=None, timeout=1)
    except sqlite3.Error as error:
        raise _refusal(path, error) from error
    try:
        # With its write-ahead log a connection locks the file itself in this mode, which every other one
        # that is open prevents. It keeps the lock between transactions.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        connection.close()
        if _code(error) in DAMAGED:
            return None
        raise _refusal(path, error) from error
    return connection


def _refusal(path: Path, error: sqlite3.Error) -> BackupError:
    if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BackupError(BUSY.format(path=path))
    return BackupError(
        f"The database {path} cannot be opened to be replaced: {reason(error)}. Nothing was changed."
    )


def swap(restored: Path, place: Place, kept: Path) -> Path | None:
    """Put the restored store in the place of the live one, and return where that is kept, if there was one.

    Only under `alone_with`. Raise BackupError; then the live store is as it was.

    A file that can be used gets the content of the restored one, and stays the same file. So whoever has
    opened it and waits finds the restored store: SQLite finds a `-wal` file by its name, and a connection to
    a file that was replaced would write to the one beside the new file.
    """
    live, is_new, locked = place
    if locked is not None:
        _keep(locked, live, kept)
        _fill(locked, restored, live, kept)
        with suppress(OSError):  # it is done
            restored.unlink()
        return kept
    if is_new:
        _put_new(restored, live, kept)
        return None
    kept.hardlink_to(live)
    _move_companions(live, kept)
    restored.replace(live)
    synced_files.sync(live.parent)
    return kept


def _keep(locked: sqlite3.Connection, live: Path, kept: Path) -> None:
    """Copy the live store. The copy gets its name when it is complete: a killed restore leaves no half."""
    draft = live.with_name(f"{live.name}{RESTORING}{kept.name}")
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as copied:
            draft.chmod(stat.S_IMODE(live.stat().st_mode))
            copied.execute("PRAGMA synchronous = OFF")  # the whole file is synced at the end
            locked.backup(copied)
        synced_files.sync(draft)
        draft.rename(kept)
        synced_files.sync(live.parent)
    except (sqlite3.Error, OSError) as error:
        draft.unlink(missing_ok=True)
        raise BackupError(
            f"The database {live} cannot be copied to be kept: {reason(error)}. {AS_IT_WAS}"
        ) from error


def _fill(locked: sqlite3.Connection, restored: Path, live: Path, kept: Path) -> None:
    """Write the restored content into the live file, in one transaction."""
    try:
        with closing(sqlite3.connect(_uri(restored), uri=True, isolation_level=None)) as source:
            here, there = _page_size(locked), _page_size(source)
            if here != there:
                raise BackupError(
                    f"The database {live} has pages of {here} bytes, but the backup's have {there}: move it "
                    f"and its -wal file to another place, and restore again. {AS_IT_WAS}"
                )
            source.backup(locked)
    except (sqlite3.Error, BackupError) as error:
        kept.unlink()
        if isinstance(error, BackupError):
            raise
        raise BackupError(f"The database {live} cannot be written: {reason(error)}. {AS_IT_WAS}") from error
    with suppress(sqlite3.Error, OSError):  # it is committed; whoever comes next can do the rest
        locked.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        # What was the journal, if the live file had no write-ahead log before; now it has.
        live.with_name(f"{live.name}-journal").unlink(missing_ok=True)
        synced_files.sync(live.parent)


def _page_size(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA page_size").fetchone()[0])


def _put_new(restored: Path, live: Path, kept: Path) -> None:
    """Give the restored file the name of the live one. Raise BackupError if somebody else has made one."""
    _move_companions(live, kept)
    try:
        live.hardlink_to(restored)
    except FileExistsError as error:
        raise BackupError(f"The database {live} was created meanwhile. {AS_IT_WAS}") from error
    synced_files.sync(live.parent)
    restored.unlink()


def _move_companions(live: Path, kept: Path) -> None:
    """Move those of a damaged or a missing file away: the restored one must not find them."""
    for ending in COMPANIONS:
        companion = live.with_name(f"{live.name}{ending}")
        with suppress(FileNotFoundError):
            if companion.stat().st_size == 0:
                companion.unlink()
            else:
                companion.rename(kept.with_name(f"{kept.name}{ending}"))
    synced_files.sync(live.parent)


def remove_left(live: Path) -> None:
    """Remove what killed restores have left. Only under `alone_with`: then nobody else restores.

    A kept file may be a second name of the live one: what is in it is not replaced.
    """
    for left in live.parent.glob(f"{live.name}{RESTORING}*"):
        left.unlink()
    for kept in live.parent.glob(f"{live.name}{KEPT}*"):
        if live.exists() and kept.samefile(live):
            kept.unlink()


def _code(error: sqlite3.Error) -> int:
    """Return the primary code of SQLite; 0 if the driver itself complains."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _uri(path: Path) -> str:
    return f"file:{quote(str(path))}?mode=rw"
