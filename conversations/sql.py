"""The few statements of the hot path that the ORM cannot say as one: each for both engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from django.db import connection


class EventRow(NamedTuple):
    """One row of conversations_event, in the order of its columns' names here."""

    conversation_id: int
    seq: int
    event_id: str
    dialect: str
    type: str
    kind: str
    source: str
    timestamp: datetime
    cause_seq: int | None
    turn_id: str | None
    epoch: int | None
    tool_call_id: str | None
    wire_id: int | None
    brings_envelope: bool
    hidden: bool
    is_input: bool
    text: str
    payload: str
    size: int
    digest: str
    received_at: datetime


class HeadRow(NamedTuple):
    """What an append changes of one row of conversations_conversation."""

    id: int
    next_seq: int
    head_digest: str
    asked_through: int
    last_message: str
    last_message_at: datetime | None
    accumulated_cost: float
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    updated_at: datetime
    listed_at: datetime


_TYPES = {
    "conversation_id": "bigint",
    "seq": "bigint",
    "timestamp": "timestamptz",
    "cause_seq": "bigint",
    "epoch": "bigint",
    "wire_id": "bigint",
    "brings_envelope": "boolean",
    "hidden": "boolean",
    "is_input": "boolean",
    "size": "integer",
    "received_at": "timestamptz",
    "id": "bigint",
    "next_seq": "bigint",
    "asked_through": "bigint",
    "last_message_at": "timestamptz",
    "accumulated_cost": "double precision",
    "prompt_tokens": "bigint",
    "completion_tokens": "bigint",
    "total_tokens": "bigint",
    "updated_at": "timestamptz",
    "listed_at": "timestamptz",
}
"""PostgreSQL's types of the columns that are not text."""


def _arrays(columns: Sequence[str]) -> str:
    return ", ".join(f"%s::{_TYPES.get(column, 'text')}[]" for column in columns)


_COLUMNS = ", ".join(EventRow._fields)
_INSERT_SQLITE = (
    f"INSERT INTO conversations_event ({_COLUMNS}) VALUES ({', '.join(['%s'] * len(EventRow._fields))})"
)
_INSERT_POSTGRESQL = (
    f"INSERT INTO conversations_event ({_COLUMNS}) SELECT * FROM unnest({_arrays(EventRow._fields)})"
)

_MOVED = HeadRow._fields[1:]
_MOVE_SQLITE = (
    f"UPDATE conversations_conversation SET {', '.join(f'{column} = %s' for column in _MOVED)} WHERE id = %s"
)
_MOVE_POSTGRESQL = (
    f"UPDATE conversations_conversation AS c SET {', '.join(f'{column} = n.{column}' for column in _MOVED)} "
    f"FROM unnest({_arrays(HeadRow._fields)}) AS n ({', '.join(HeadRow._fields)}) WHERE c.id = n.id"
)

Row = TypeVar("Row", bound=tuple[Any, ...])


def limit_lock_wait(seconds: int) -> None:
    """Let the running transaction wait this long for a lock, no longer (PostgreSQL)."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{seconds:d}s'")


def insert_events(rows: Sequence[EventRow]) -> None:
    """Insert all rows."""
    if not rows:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_INSERT_POSTGRESQL, _by_column(rows))
        else:
            cursor.executemany(_INSERT_SQLITE, [_adapted(row) for row in rows])


def move_heads(rows: Sequence[HeadRow]) -> None:
    """Update each named conversation; its lock is held."""
    if not rows:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_MOVE_POSTGRESQL, _by_column(rows))
        else:
            cursor.executemany(_MOVE_SQLITE, [(*_adapted(row)[1:], row.id) for row in rows])


def events_with_ids(wanted: Iterable[tuple[int, str]]) -> list[tuple[int, str, int, str]]:
    """Return (conversation, event_id, seq, payload) of the events with these ids."""
    return _matching("e.event_id", "text", sorted(wanted), "e.seq, e.payload")


def events_with_wire_ids(wanted: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return (conversation, wire_id, seq) of the events whose V0 sender numbered them so."""
    return _matching("e.wire_id", "bigint", sorted(wanted), "e.seq")


def _matching(column: str, column_type: str, wanted: Sequence[tuple[int, Any]], more: str) -> list[Any]:
    if not wanted:
        return []
    # Both engines walk the wanted pairs and look each up in the index.
    if connection.vendor == "postgresql":
        pairs = f"SELECT * FROM unnest(%s::bigint[], %s::{column_type}[])"
        parameters: list[Any] = _by_column(wanted)
    else:
        pairs = f"VALUES {', '.join(['(%s, %s)'] * len(wanted))}"
        parameters = [value for pair in wanted for value in pair]
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH wanted (pk, name) AS ({pairs}) SELECT e.conversation_id, {column}, {more} "
            f"FROM wanted CROSS JOIN conversations_event AS e "
            f"WHERE e.conversation_id = wanted.pk AND {column} = wanted.name",
            parameters,
        )
        return list(cursor.fetchall())


def _by_column(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _adapted(row: tuple[Any, ...]) -> list[Any]:
    adapt = connection.ops.adapt_datetimefield_value
    return [adapt(value) if isinstance(value, datetime) else value for value in row]
