"""Locks that are held for long, and slow statements, without any value of a statement.

On PostgreSQL a role sees the statements of its own sessions. On SQLite the process knows its own writers,
and whether another program blocks them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import structlog
from django.apps import apps
from django.db import connection

from conversations.engines.sqlite3 import other_writers, turns
from conversations.models import Conversation

BLOCKED_S = 1.0
"""A statement that waits for a lock is shown after this long."""
HELD_S = 10.0
"""An idle transaction that holds locks on our tables, or a writer on SQLite, is shown after this long."""
SLOW_S = 15.0
"""A statement is shown after this long, except a backup's or a command's."""
SHOWN_MAX = 50

logger = structlog.stdlib.get_logger(__name__)


class LockWait(NamedTuple):
    """A long wait or a lock that is held for long."""

    key: str
    """Identifies it while it lasts."""
    holder: str
    doing: str
    """A sentence about the holder's activity."""
    waiting: str
    """The waiting process and its statement; empty without one."""
    seconds: float
    conversation: str | None
    is_lock: bool = True
    """False for a statement that is merely slow."""
    session: int | None = None
    """The number by which PostgreSQL ends the holder."""


def found() -> list[LockWait]:
    """Return the present waits, the longest first: by one statement on PostgreSQL, none on SQLite."""
    waits = _on_postgresql() if connection.vendor == "postgresql" else _on_sqlite()
    by_key: dict[str, LockWait] = {}
    for wait in sorted(waits, key=lambda wait: (wait.conversation is None, -wait.seconds)):
        by_key.setdefault(wait.key, wait)  # of several that wait for one holder, keep one
    return sorted(by_key.values(), key=lambda wait: -wait.seconds)


_logged: set[str] = set()


def log(waits: Sequence[LockWait]) -> None:
    """Log each wait of at least HELD_S once."""
    long = {wait.key: wait for wait in waits if wait.seconds >= HELD_S}
    for key in long.keys() - _logged:
        wait = long[key]
        logger.warning(
            "A lock is held for long" if wait.is_lock else "A statement takes long",
            holder=wait.holder,
            doing=wait.doing or None,
            waiting=wait.waiting or None,
            seconds=round(wait.seconds, 1),
            conversation=wait.conversation,
        )
    # A key that is gone is forgotten, so that a new wait for the same holder is logged.
    _logged.clear()
    _logged.update(long)


_SESSIONS = f"""
SELECT waiter.pid, waiter.application_name, waiter.query,
    EXTRACT(EPOCH FROM clock_timestamp() - waiter.query_start),
    holder.pid, holder.application_name, holder.state, holder.query,
    EXTRACT(EPOCH FROM clock_timestamp() - holder.xact_start),
    (SELECT conversation.public_id FROM pg_locks AS row JOIN {Conversation._meta.db_table} AS conversation
        ON conversation.ctid = format('(%%s,%%s)', row.page, row.tuple)::tid
        WHERE row.pid = waiter.pid AND row.locktype = 'tuple'
            AND row.relation = '{Conversation._meta.db_table}'::regclass LIMIT 1)
FROM pg_stat_activity AS waiter
LEFT JOIN LATERAL unnest(CASE waiter.wait_event_type WHEN 'Lock' THEN pg_blocking_pids(waiter.pid) END)
    AS blocking(pid) ON true
LEFT JOIN pg_stat_activity AS holder ON holder.pid = blocking.pid
WHERE waiter.datname = current_database() AND waiter.pid <> pg_backend_pid()
    AND waiter.backend_type = 'client backend' AND waiter.state = 'active'
    AND waiter.query_start < clock_timestamp() - make_interval(
        secs => CASE waiter.wait_event_type WHEN 'Lock' THEN %(blocked)s ELSE %(slow)s END)
UNION ALL
SELECT NULL, NULL, NULL, NULL, holder.pid, holder.application_name, holder.state, holder.query,
    EXTRACT(EPOCH FROM clock_timestamp() - holder.xact_start), NULL
FROM pg_stat_activity AS holder
WHERE holder.datname = current_database() AND holder.state LIKE 'idle in transaction%%'
    AND holder.xact_start < clock_timestamp() - make_interval(secs => %(held)s)
    AND EXISTS (SELECT 1 FROM pg_locks AS lock JOIN pg_class AS class ON class.oid = lock.relation
        WHERE lock.pid = holder.pid AND lock.mode <> 'AccessShareLock' AND class.relkind = 'r')
LIMIT {SHOWN_MAX}
"""  # noqa: S608 - constants


class _Session(NamedTuple):
    waiter: int | None
    waiter_name: str | None
    waiter_query: str | None
    waited_s: float | None
    holder: int | None
    holder_name: str | None
    holder_state: str | None
    holder_query: str | None
    held_s: float | None
    conversation: str | None


# Backups and commands run long statements by their nature.
_TAKES_ITS_TIME = re.compile(r"pg_dump|pg_restore|convserver (?!serve|worker)")


def _on_postgresql() -> Iterator[LockWait]:
    with connection.cursor() as cursor:
        cursor.execute(_SESSIONS, {"blocked": BLOCKED_S, "slow": SLOW_S, "held": HELD_S})
        rows = [_Session(*row) for row in cursor.fetchall()]
    # A holder that blocks others is shown with them, and not once more as idle.
    blocking = {row.holder for row in rows if row.waiter is not None}
    for row in rows:
        if row.holder is None:
            if not _TAKES_ITS_TIME.match(row.waiter_name or ""):
                name = _session(row.waiter_name, row.waiter)
                doing = f"It runs {without_values(row.waiter_query)}."
                wait = (f"slow {row.waiter}", name, doing, "", _s(row.waited_s), None)
                yield LockWait(*wait, is_lock=False, session=row.waiter)
        elif row.waiter is not None or row.holder not in blocking:
            yield _held(row)


def _held(row: _Session) -> LockWait:
    last = without_values(row.holder_query)
    is_idle = (row.holder_state or "").startswith("idle")
    waiting = _session(row.waiter_name, row.waiter) if row.waiter is not None else ""
    return LockWait(
        f"held {row.holder}",
        _session(row.holder_name, row.holder),
        f"It is idle in its transaction, after {last}." if is_idle else f"It runs {last}.",
        f"{waiting}, {without_values(row.waiter_query)}" if waiting else "",
        max(_s(row.held_s), _s(row.waited_s)),
        row.conversation,
        session=row.holder,
    )


def _s(seconds: object) -> float:
    return float(str(seconds or 0))


def _session(name: str | None, pid: int | None) -> str:
    """Return a session's name for people; that of our processes has the number already."""
    return name if name and name.startswith("convserver ") else f"{name or 'a program'} (session {pid})"


_WORD = re.compile(r"\s*(?:/\*.*?\*/\s*)*([A-Za-z]+)", re.DOTALL)
_TABLE = re.compile(r'\b(?:FROM|INTO|UPDATE|JOIN|TABLE|ONLY)\s+(?:"?\w+"?\.)?"?(\w+)"?', re.IGNORECASE)
_KINDS = frozenset(
    {
        *("SELECT", "INSERT", "UPDATE", "DELETE", "LOCK", "COPY", "BEGIN", "COMMIT", "ROLLBACK", "FETCH"),
        *("ALTER", "CREATE", "DROP", "TRUNCATE", "VACUUM", "ANALYZE", "REINDEX", "CLUSTER", "WITH", "SET"),
    }
)


def without_values(statement: str | None) -> str:
    """Return a statement's kind and the first of our tables that it names, and nothing else of it."""
    word = _WORD.match(statement or "")
    kind = word[1].upper() if word else ""
    # Another word may be anything, even a part of a value.
    if kind not in _KINDS:
        return "a statement"
    named = (name for name in _TABLE.findall(statement or "") if name in _tables())
    table = next(named, None)
    return f"{kind} on {table}" if table else kind


@cache
def _tables() -> frozenset[str]:
    return frozenset(model._meta.db_table for model in apps.get_models(include_auto_created=True))


def _on_sqlite() -> Iterable[LockWait]:
    path = str(connection.settings_dict["NAME"])
    of_file = turns.of_file(path)
    held, locked_out_since = of_file.held, of_file.locked_out_since
    since = locked_out_since or (held.since if held else None)
    if since is None or (seconds := time.monotonic() - since) < (BLOCKED_S if locked_out_since else HELD_S):
        return []
    holder = other_writers.other_writer(path)
    if holder is None and locked_out_since is None and held is not None:
        holder = f"this server's thread {held.thread}"
    waiting = f"{of_file.waiting} threads of this server" if of_file.waiting else ""
    return [LockWait("file", holder or "another program", "", waiting, seconds, None)]
