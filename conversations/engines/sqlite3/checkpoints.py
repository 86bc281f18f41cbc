"""Checkpoints of SQLite between its writers: they copy the write-ahead log into the file.

By itself, SQLite does it in a commit, once the log is long.
"""

from __future__ import annotations

import secrets

from django.db import connection, transaction

from conversations.engines.sqlite3 import marks, turns
from conversations.engines.sqlite3.marks import FileHeader, Keeper

COUNT_S = 10  # the shortest time between two increments of the header's count: each costs a commit

_keepers: dict[str, Keeper] = {}  # by path: of the databases that this process serves


def slots_ended() -> int:
    """Return how many writes of this process have ended; while it stays, there is nothing to copy."""
    return turns.of_file(str(connection.settings_dict["NAME"])).ended


def copy_committed() -> None:
    """Copy committed pages into the file, as far as no reader needs the old ones.

    It takes a slot among the writers of this process. Raise DatabaseError, also if there is no slot in time.
    """
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
        cursor.fetchall()


def begin_mark() -> None:
    """Begin to keep the file's mark; log it if the database lacks events that the mark knows (SQLite)."""
    if connection.vendor != "sqlite":
        return
    header, events = _found()
    if not header.id:
        header = header._replace(id=1 + secrets.randbelow(2**31 - 1))
        _set("application_id", header.id)
    path = str(connection.settings_dict["NAME"])
    keeper = _keepers[path] = Keeper(path, header)
    keeper.note_missing(events)


def mark() -> None:
    """Record how far the log has come. It takes no slot, except for the count every COUNT_S.

    Raise DatabaseError.
    """
    path = str(connection.settings_dict["NAME"])
    if (keeper := _keepers.get(path)) is None:
        return
    salts = marks.salts_of(path)
    header, events = _found()
    keeper.note(salts, header.counted, events)
    if keeper.is_count_due(COUNT_S):
        _set("user_version", (header.counted + 1) % 2**31)


def _found() -> tuple[FileHeader, int]:
    """Return the numbers of the header, and the newest of an event, of one transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT a.application_id, u.user_version, coalesce((SELECT seq FROM sqlite_sequence "
            "WHERE name = 'conversations_event'), 0) "
            "FROM pragma_application_id AS a, pragma_user_version AS u"
        )
        id, count, events = cursor.fetchone()
    return FileHeader(id, count), events


def _set(pragma: str, value: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {pragma} = {value:d}")
