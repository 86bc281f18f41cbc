"""The commit order of changes in lists, independent of clocks: each has its transaction's number.

PostgreSQL numbers its transactions itself, and shows which of them have ended. SQLite has one writer at a
time, so a counter is in commit order. Triggers number the changes of conversations (`guards`).
"""

from __future__ import annotations

from typing import NamedTuple

from django.db import connection
from django.db.models import BigIntegerField, Func

_REACH = {
    "postgresql": "SELECT pg_snapshot_xmin(at)::text::bigint, pg_snapshot_xmax(at)::text::bigint "
    "FROM pg_current_snapshot() AS at",
    "sqlite": "SELECT number + 1, number + 1 FROM (SELECT COALESCE(MAX(number), 0) AS number "
    "FROM conversations_changenumber)",
}
# SQLite: draw the next number.
COUNT_ON = (
    "INSERT INTO conversations_changenumber (id, number) VALUES (1, 1) "
    "ON CONFLICT (id) DO UPDATE SET number = number + 1"
)
COUNTED = "(SELECT number FROM conversations_changenumber)"
# PostgreSQL: the number of the running transaction, and of every change in it.
TRANSACTION = "pg_current_xact_id()::text::bigint"


class Reach(NamedTuple):
    """How far the numbers have come."""

    settled: int  # every change with a lower number is visible now, or was rolled back
    end: int  # no transaction has this number or a higher one yet; a row with one is from another server


def reach() -> Reach:
    """Return how far the numbers have come; later queries see all changes that are settled."""
    with connection.cursor() as cursor:
        cursor.execute(_REACH[connection.vendor])
        return Reach(*cursor.fetchone())


def number() -> Func:
    """Return the number of a change that the running transaction makes, as a column's new value."""
    if connection.vendor == "postgresql":
        return Func(template=TRANSACTION, output_field=BigIntegerField())
    with connection.cursor() as cursor:
        cursor.execute(COUNT_ON)
    return Func(template=COUNTED, output_field=BigIntegerField())
