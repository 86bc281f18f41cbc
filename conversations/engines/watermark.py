"""Watermarks: up to which key some tables are complete, so that a reader by key skips no row.

PostgreSQL assigns keys before a transaction commits, so a lower key may become visible after a higher one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from django.db import connection

from conversations.engines.tables import EVENT

_SNAPSHOT = """,
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""

Place = TypeVar("Place")


class KeyHorizon(Generic[Place]):
    """The end of some tables, and their watermark: no row up to it can appear later.

    `place` combines the tables' keys, in their order, into one value.
    """

    def __init__(self, place: Callable[..., Place], *tables: str) -> None:
        ends = ", ".join(f"COALESCE((SELECT MAX(id) FROM {table}), 0)" for table in tables)
        self._question = f"SELECT {ends}"
        self._place = place
        self.settled = self.newest = self._marked = place(*[0] * len(tables))
        # When no transaction older than this is running, everything up to the mark is complete.
        self._over_at = -1

    def look(self) -> None:
        """Read the present end and watermark, by one statement."""
        is_postgresql = connection.vendor == "postgresql"
        with connection.cursor() as cursor:
            cursor.execute(self._question + (_SNAPSHOT if is_postgresql else ""))
            row = cursor.fetchone()
        if not is_postgresql:  # one writer at a time: keys become visible in their order
            self.newest = self.settled = self._place(*row)
            return
        *newest, oldest, following = row
        self.newest = self._place(*newest)
        if oldest >= self._over_at:
            self.settled = self._marked
            self._marked, self._over_at = self.newest, following


class EventHorizon(KeyHorizon[int]):
    """The newest event, and the watermark of all events."""

    def __init__(self) -> None:
        super().__init__(int, EVENT)
