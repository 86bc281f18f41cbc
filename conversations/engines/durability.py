"""Whether the database's present settings put a commit on the disk before it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Warning
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

SQLITE_FULL = 2


def weaknesses(connection: BaseDatabaseWrapper) -> list[str]:
    """Return one sentence for each setting under which a power cut could lose an acknowledged event."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA synchronous")
            (level,) = cursor.fetchone()
            return [] if level >= SQLITE_FULL else ["SQLite runs with synchronous below FULL."]
        found = []
        for name in ("synchronous_commit", "fsync", "full_page_writes"):
            cursor.execute(f"SHOW {name}")
            (value,) = cursor.fetchone()
            if value == "off":
                found.append(f"PostgreSQL runs with {name}={value}.")
        return found


def check_durability(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn about such settings in Django's checks, which `serve` runs."""
    return [
        Warning(
            f"{sentence} A power cut may lose what was acknowledged.",
            hint="Set it back to its default.",
            id="conversations.W001",
        )
        for alias in databases or ()
        for sentence in weaknesses(connections[alias])
    ]
