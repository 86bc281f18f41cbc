"""How far the keys of some tables are settled: who reads behind them by key passes over nothing.

PostgreSQL gives keys before a transaction commits, so a lower one may show later than a higher one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from django.db import connection

_SNAPSHOT = """,
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""

Place = TypeVar("Place")


class KeyHorizon(Generic[Place]):
    """Where some tables end, and up to where all is settled: what is not there by then never will be.

    `place` makes one value of the tables' keys, in their order.
    """

    def __init__(self, place: Callable[..., Place], *tables: str) -> None:
        ends = ", ".join(f"COALESCE((SELECT MAX(id) FROM {table}), 0)" for table in tables)
        self._question = f"SELECT {ends}"
        self._place = place
        self.settled = self.newest = self._marked = place(*[0] * len(tables))
        self._over_at = -1
        """Once no transaction older than this runs, all up to the mark is settled."""

    def look(self) -> None:
        """See where everything stands now, by one statement."""
        is_postgresql = connection.vendor == "postgresql"
        with connection.cursor() as cursor:
            cursor.execute(self._question + (_SNAPSHOT if is_postgresql else ""))
            row = cursor.fetchone()
        if not is_postgresql:  # one writer at a time: keys show in their order
            self.newest = self.settled = self._place(*row)
            return
        *newest, oldest, following = row
        self.newest = self._place(*newest)
        if oldest >= self._over_at:
            self.settled = self._marked
            self._marked, self._over_at = self.newest, following
