"""Whether a pooler between this process and PostgreSQL gives each session its own connection.

PgBouncer does not in its transaction and statement modes. Then settings, prepared statements, locks and
LISTEN of a session are lost or reach another one, mostly silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

# Other clients of the pooler may take a connection between two statements: the proof is tried this often.
TRIES = 10

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
