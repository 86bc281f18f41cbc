"""What a failure of the database means, in sentences that name no host, user or file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from django.db import InterfaceError, InternalError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines.lost_commits import LostCommit
from conversations.engines.postgresql.pool import ALL_USED, NoConnection
from conversations.engines.sqlite3 import files
from conversations.engines.sqlite3.files import FileGone

# The database itself failed; the statement was not at fault.
FAILURES = (OperationalError, InterfaceError, InternalError)

FULL = "The database's disk is full, so nothing can be stored. Free some space."
READ_ONLY = "The database can only be read, so nothing can be stored."
LOCKED = "The database is locked by another program."
EXHAUSTED = "The database has no free connections."
TOO_SLOW = "The database did not answer in time."
NO_MEMORY = "The database is out of memory."
UNKNOWN = (
    "It is not known whether this was stored, since the database failed meanwhile: repeat "
    "it with the same id or Idempotency-Key, or look before you repeat it."
)
SEND_AGAIN = "The server could not do this now. Send it again."
UNREACHABLE = "The database cannot be reached."
DAMAGED = "The database file is damaged. Restore a backup."
NO_DATABASE = "The file is not a database."
FAILED = "The database failed. See the server's log for the cause."

# With less space than this, not even the files beside the database (`-wal`, `-shm`) can be created.
NO_ROOM_BYTES = 64 * 1024

_SQLITE = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: files.READ_ONLY,
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: NO_DATABASE,
    sqlite3.SQLITE_CANTOPEN: "The database file can't be opened.",
    sqlite3.SQLITE_IOERR: "The database file can't be read or written. The disk may be full.",
    sqlite3.SQLITE_PERM: "The server isn't allowed to open the database file.",
}
_POSTGRESQL = {
    "25006": READ_ONLY,
    "53100": FULL,
    "53200": NO_MEMORY,
    "53300": EXHAUSTED,
    "55P03": LOCKED,
    "57014": TOO_SLOW,
}
_OF_ONE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT}
_NO_FREE_CONNECTION = (
    "too many connections",  # for the role, or for the database
    "too many clients",
    "remaining connection slots",
    ALL_USED,
)


def sentence(error: BaseException, connection: BaseDatabaseWrapper | None = None) -> str:
    """Return what is wrong; with the `connection`, a full disk is reported whatever it made fail."""
    if found := known(error, connection):
        return found
    return UNREACHABLE if isinstance(error, OperationalError | InterfaceError) else FAILED


def known(error: BaseException, connection: BaseDatabaseWrapper | None = None) -> str | None:
    """Return what is wrong if the error itself shows it; otherwise None."""
    if isinstance(error, LostCommit):
        return UNKNOWN
    cause = error.__cause__ or error
    if isinstance(cause, FileGone):
        return str(cause)
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        may_be_room = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL)
        if may_be_room and connection is not None and has_no_room(Path(connection.settings_dict["NAME"])):
            return FULL
        return _SQLITE.get(code)
    if sentence := _POSTGRESQL.get(getattr(cause, "sqlstate", None) or ""):
        return sentence
    # A refused connection brings no code, only a text.
    return EXHAUSTED if any(words in str(cause) for words in _NO_FREE_CONNECTION) else None


def to_sender(error: BaseException) -> str:
    """Return the answer to the sender of a frame, on wires that report nothing else about the database."""
    return UNKNOWN if isinstance(error, LostCommit) else SEND_AGAIN


def is_locked(error: BaseException) -> bool:
    """Return whether the failure was a lock that another transaction held."""
    cause = error.__cause__ or error
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_BUSY or getattr(cause, "sqlstate", None) == "55P03"


def is_unconnected(error: BaseException) -> bool:
    """Return whether there was no connection to begin with, so the database got no statement."""
    return isinstance(error.__cause__ or error, NoConnection)


def is_lasting(error: BaseException, connection: BaseDatabaseWrapper) -> bool:
    """Return whether the same statement would fail again at once, on any connection."""
    return known(error, connection) in (FULL, NO_MEMORY, TOO_SLOW)


def may_be_of_one(error: BaseException) -> bool:
    """Return whether one request of several can have caused the failure.

    By its values, by a damaged page, or because it met another transaction.
    """
    if not isinstance(error, OperationalError | InterfaceError):
        return True
    cause = error.__cause__ or error
    state = getattr(cause, "sqlstate", None) or ""
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _OF_ONE or state.startswith(("40", "54", "58"))


def has_no_room(path: Path) -> bool:
    """Return whether the disk of a file, existing or not, is full."""
    return free_bytes(path) < NO_ROOM_BYTES


def free_bytes(path: Path) -> int:
    """Return the free bytes on the disk of a file, existing or not."""
    there = next(each for each in (path, *path.parents) if each.exists())
    found = os.statvfs(there)
    return found.f_bavail * found.f_frsize
