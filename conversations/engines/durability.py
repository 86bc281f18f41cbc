"""Whether acknowledged events survive a power cut and the loss of a primary, by the present settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Warning
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines.sqlite3 import library, marks

SQLITE_FULL = 2
BELOW_FULL = "SQLite runs with synchronous below FULL, so a power cut may lose the newest events."


def weaknesses(connection: BaseDatabaseWrapper) -> list[str]:
    """Return one sentence for each setting under which an acknowledged event could be lost."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA synchronous")
            (level,) = cursor.fetchone()
            found = [] if (weakness := of_library(connection)) is None else [weakness]
            if level < SQLITE_FULL:
                found.append(BELOW_FULL)
            return found
        found = []
        for name in ("synchronous_commit", "fsync", "full_page_writes"):
            cursor.execute(f"SHOW {name}")
            (value,) = cursor.fetchone()
            if value == "off":
                found.append(f"PostgreSQL runs with {name}={value}: a power cut may lose the newest events.")
        return [*found, *asynchronous_standby(cursor)]


def of_library(connection: BaseDatabaseWrapper) -> str | None:
    """Return a sentence if the engine is a SQLite that can lose a commit."""
    return library.weakness() if connection.vendor == "sqlite" else None


def of_file(connection: BaseDatabaseWrapper) -> str | None:
    """Return a sentence if a SQLite file lacks events that were acknowledged."""
    return marks.sentence(connection.settings_dict["NAME"]) if connection.vendor == "sqlite" else None


def asynchronous_standby(cursor: Any) -> list[str]:
    """Return a sentence if a standby follows and no commit waits for one."""
    # A role without the right to see them is shown neither the state nor the slot of a standby.
    cursor.execute(
        "SELECT coalesce(sync_state IN ('sync', 'quorum') AND current_setting('synchronous_commit')"
        " IN ('on', 'remote_apply'), false) FROM pg_stat_replication"
        " WHERE coalesce(state, 'streaming') = 'streaming'"
    )
    are_synchronous = [is_so for (is_so,) in cursor.fetchall()]
    if not are_synchronous or any(are_synchronous):
        return []
    return ["PostgreSQL has a standby that may not be synchronous: promoted, it may lack the newest events."]


def check_durability(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn about such settings in Django's checks, which `serve` runs."""
    return [
        Warning(
            f"{sentence} What was acknowledged may be lost.",
            hint="docs/operation.md says what an acknowledgement means then.",
            id="conversations.W001",
        )
        for alias in databases or ()
        for sentence in weaknesses(connections[alias])
    ]
