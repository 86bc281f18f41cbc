"""Checkpoints of SQLite between its writers: what is in the write-ahead log is copied into the file.

By itself, SQLite does it in a commit, once the log is long.
"""

from __future__ import annotations

from django.db import connection

from conversations.engines.sqlite3 import turns


def turns_ended() -> int:
    """Return how many writes of this process have ended so far: nothing is to be copied while it stays."""
    return turns.of_file(str(connection.settings_dict["NAME"])).ended


def copy_committed() -> None:
    """Copy what is committed into the file, as far as no reader needs the old pages.

    It takes a turn among the writers of this process. Raise DatabaseError, also if there is no turn in time.
    """
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
        cursor.fetchall()
