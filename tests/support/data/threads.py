"""Work that several threads do at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import connection, connections


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Call `work` with each number below `count`, all at the same moment, each on its own connection."""
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait(30)
        try:
            work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))


def is_somebody_waiting() -> bool:
    """Say whether anybody waits for a lock in this database of PostgreSQL's."""
    with connection.cursor() as cursor:
        # A transaction would go on seeing those who were there when it first asked.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock')"
        )
        return bool(cursor.fetchone()[0])
