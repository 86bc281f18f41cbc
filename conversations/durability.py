"""Whether a commit is on the disk when it returns, as the database is set up right now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Warning
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

SQLITE_FULL = 2


def weaknesses(connection: BaseDatabaseWrapper) -> list[str]:
    """Return each setting under which an acknowledged event could be lost by a power cut, as a sentence."""
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
    """Warn of such settings in Django's checks, which `serve` runs."""
    return [
        Warning(
            f"{sentence} A power cut may lose what was acknowledged.",
            hint="Set it back to its default.",
            id="conversations.W001",
        )
        for alias in databases or ()
        for sentence in weaknesses(connections[alias])
    ]
