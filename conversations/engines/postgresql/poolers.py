"""Whether a pooler between this process and PostgreSQL gives each session a connection of its own.

In PgBouncer's transaction and statement modes it does not. Then settings, prepared statements, locks and
LISTEN of a session are lost or reach another one, and most of that fails silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

TRIES = 10
"""Other clients of the pooler may take a connection between two statements: the proof is tried this often."""

Session = psycopg.Connection[Any]


def shares_sessions(connect: Callable[[], Session]) -> bool:
    """Return whether two sessions, or two statements of one, are shown to share connections."""
    with connect() as first:
        first.autocommit = True
        pid = _pid(first)
        if pid == first.info.backend_pid:  # a pooler makes up the number that it tells its client
            return False
        for _ in range(TRIES):
            with connect() as second:  # in a transaction: it keeps the connection that it has got
                if _pid(second) == pid or _pid(first) != pid:
                    return True
    return False


def _pid(session: Session) -> int:
    (pid,) = session.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    return int(pid)
