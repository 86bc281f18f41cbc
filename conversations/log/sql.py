"""The statements of the hot path that the ORM cannot express as one, for both engines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import psycopg
from django.db import Error, connection
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8

from conversations.engines.lost_commits import LostCommit
from conversations.engines.postgresql import unreplicated


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
    parent_event_id: str | None
    sender_id: int | None
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
    """The changes that an append makes to one row of conversations_conversation."""

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


# PostgreSQL's types of the columns that are not text.
_TYPES = {
    "conversation_id": "bigint",
    "seq": "bigint",
    "timestamp": "timestamptz",
    "cause_seq": "bigint",
    "epoch": "bigint",
    "sender_id": "bigint",
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


def _arrays(columns: Sequence[str]) -> str:
    return ", ".join(f"%b::{_TYPES.get(column, 'text')}[]" for column in columns)


def _values(columns: Sequence[str]) -> str:
    return ", ".join(f"%b::{_TYPES.get(column, 'text')}" for column in columns)


def _times(columns: Sequence[str]) -> list[int]:
    return [place for place, column in enumerate(columns) if _TYPES.get(column) == "timestamptz"]


_EVENT_TIMES, _HEAD_TIMES = _times(EventRow._fields), _times(HeadRow._fields)

_COLUMNS = ", ".join(EventRow._fields)
_INSERT_SQLITE = (
    f"INSERT INTO conversations_event ({_COLUMNS}) VALUES ({', '.join(['%s'] * len(EventRow._fields))})"
)
_INSERT_POSTGRESQL = (
    f"INSERT INTO conversations_event ({_COLUMNS}) SELECT * FROM unnest({_arrays(EventRow._fields)})"
)
_COPY_POSTGRESQL = f"COPY conversations_event ({_COLUMNS}) FROM STDIN"
COPIED_MIN = 100  # at least this many rows are inserted by COPY
# To make and to take apart 23 arrays of one value costs more than to insert that row.
_INSERT_ONE_POSTGRESQL = f"INSERT INTO conversations_event ({_COLUMNS}) VALUES ({_values(EventRow._fields)})"

_MOVED = HeadRow._fields[1:]
_MOVE_SQLITE = (
    f"UPDATE conversations_conversation SET {', '.join(f'{column} = %s' for column in _MOVED)} WHERE id = %s"
)
_MOVE_POSTGRESQL = (
    f"UPDATE conversations_conversation AS c SET {', '.join(f'{column} = n.{column}' for column in _MOVED)} "
    f"FROM unnest({_arrays(HeadRow._fields)}) AS n ({', '.join(HeadRow._fields)}) WHERE c.id = n.id"
)
_MOVE_ONE_POSTGRESQL = (
    "UPDATE conversations_conversation SET "
    f"{', '.join(f'{column} = {_values([column])}' for column in _MOVED)} WHERE id = %b::bigint"
)

Row = TypeVar("Row", bound=tuple[Any, ...])


@contextmanager
def pipeline() -> Iterator[None]:
    """Send the block's statements without waiting for each answer (PostgreSQL).

    If any of them fails, the error is raised at the end of the block.
    """
    if connection.vendor != "postgresql":
        yield
        return
    connection.ensure_connection()
    with connection.wrap_database_errors:
        begins = _begins_here(connection.connection)
        with connection.connection.pipeline():
            if begins:
                _executed("BEGIN", [], prepare=False)
            yield


def _begins_here(session: psycopg.Connection[Any]) -> bool:
    """Return whether a transaction must begin with the next statement.

    psycopg would wait for the answer to its own BEGIN; with autocommit set it sends none. Django resets that
    when the transaction ends.
    """
    if not connection.in_atomic_block or session.info.transaction_status != TransactionStatus.IDLE:
        return False
    session.autocommit = True
    return True


@contextmanager
def last_pipeline(*, commits: bool) -> Iterator[None]:
    """Run a `pipeline` whose last statement commits, if `commits`; Django then has nothing to commit.

    Raise LostCommit if the connection breaks meanwhile: the outcome is unknown then.
    """
    if connection.vendor != "postgresql" or not commits:
        with pipeline():
            yield
        return
    try:
        with pipeline():
            yield
            _executed("COMMIT", [], prepare=False)
    except Error as error:
        unreplicated.require_none(connection)
        if connection.may_have_committed(error):  # type: ignore[attr-defined]
            connection.drop_connection()  # type: ignore[attr-defined]
            raise LostCommit(str(error)) from error.__cause__
        raise


def limit_lock_wait(seconds: float) -> None:
    """Set how long the running transaction waits for a lock, rounded up to whole seconds (PostgreSQL)."""
    whole = max(1, math.ceil(seconds))  # each text is prepared once, and 0 would mean no limit
    _prepared(f"SET LOCAL lock_timeout = '{whole:d}s'", [])


def insert_events(rows: Sequence[EventRow]) -> None:
    if not rows:
        return
    if connection.vendor == "postgresql":
        if len(rows) == 1:
            _prepared(_INSERT_ONE_POSTGRESQL, _typed(rows[0]))
        else:
            _prepared(_INSERT_POSTGRESQL, _by_column(rows))
    else:
        with connection.cursor() as cursor:
            cursor.executemany(_INSERT_SQLITE, [_adapted(row, _EVENT_TIMES) for row in rows])


def copy_in(rows: Sequence[EventRow]) -> bool:
    """Insert many rows by COPY, outside of any `pipeline`; return whether that was done (PostgreSQL).

    It takes a tenth less time than INSERT, but one more round trip.
    """
    if connection.vendor != "postgresql" or len(rows) < COPIED_MIN:
        return False
    with connection.wrap_database_errors:
        connection.ensure_connection()
        with connection.connection.cursor() as cursor, cursor.copy(_COPY_POSTGRESQL) as copy:
            for row in rows:
                copy.write_row(row)
    return True


def copy_events(source_pk: int, target_pk: int, *, after: int = -1, through: int) -> int:
    """Copy a log's events behind `after`, through `through`, to another's end; return their number."""
    columns = ", ".join(EventRow._fields[1:])
    statement = (
        f"INSERT INTO conversations_event (conversation_id, {columns}) SELECT %s, {columns} "
        "FROM conversations_event WHERE conversation_id = %s AND seq > %s AND seq <= %s ORDER BY seq"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [target_pk, source_pk, after, through])
        return int(cursor.rowcount)


def move_heads(rows: Sequence[HeadRow]) -> None:
    """Update each named conversation; the caller holds its lock."""
    if not rows:
        return
    if connection.vendor == "postgresql":
        if len(rows) == 1:
            _prepared(_MOVE_ONE_POSTGRESQL, _typed((*rows[0][1:], rows[0].id)))
        else:
            _prepared(_MOVE_POSTGRESQL, _by_column(rows))
    else:
        with connection.cursor() as cursor:
            cursor.executemany(_MOVE_SQLITE, [(*_adapted(row, _HEAD_TIMES)[1:], row.id) for row in rows])


def locked_heads(columns: Sequence[str], pks: Sequence[int], *, wait: bool) -> Result:
    """Lock the conversations, in the order of `pks`, and return these columns of each (PostgreSQL)."""
    return Result(
        _prepared(
            f"SELECT {', '.join(columns)} FROM conversations_conversation WHERE id{_among(pks)} "
            f"ORDER BY id FOR NO KEY UPDATE{'' if wait else ' SKIP LOCKED'}",
            [_sent(pks)],
        )
    )


def events_with_ids(wanted: Iterable[tuple[int, str]]) -> Result:
    """Return (conversation, event_id, seq, payload) of the events with these ids."""
    return _matching("e.event_id", "text", sorted(wanted), "e.seq, e.payload")


def events_with_wire_ids(wanted: Iterable[tuple[int, int]]) -> Result:
    """Return (conversation, wire_id, seq, dialect) of the events with these numbers of their senders."""
    return _matching("e.wire_id", "bigint", sorted(wanted), "e.seq, e.dialect")


def rows_with_keys(*selects: tuple[str, Sequence[int]]) -> Result:
    """Return the rows of all these queries by one statement; each text ends with the column of the keys."""
    if connection.vendor == "postgresql":
        parts = [f"{select}{_among(keys)}" for select, keys in selects]
        return Result(_prepared(" UNION ALL ".join(parts), [_sent(keys) for _, keys in selects]))
    parts = [f"{select} IN ({', '.join(['%s'] * len(keys))})" for select, keys in selects]
    cursor = connection.cursor()
    cursor.execute(" UNION ALL ".join(parts), [key for _, keys in selects for key in keys])
    return Result(cursor)


def defer_jobs(queue: str, task: str, pks: Sequence[int]) -> None:
    """Defer a job of Procrastinate about each conversation (PostgreSQL), also inside `pipeline`."""
    _prepared(
        "SELECT procrastinate_defer_jobs_v1(ARRAY(SELECT ROW(%b::text, %b::text, 0, NULL, NULL, "
        "jsonb_build_object('pk', pk), NULL)::procrastinate_job_to_defer_v1 "
        "FROM unnest(%b::bigint[]) AS pk))",
        [queue, task, _typed(pks)],
    )


class Result:
    """The rows of a statement, read once; after the end of the block inside `pipeline`."""

    def __init__(self, found: Iterable[Any] = ()) -> None:
        self._found = found

    def rows(self) -> list[Any]:
        return list(self._found)


# The condition that a column is one of these keys, and its parameter (PostgreSQL).
def _among(keys: Sequence[int]) -> str:
    return " = %b::bigint" if len(keys) == 1 else " = ANY(%b::bigint[])"


def _sent(keys: Sequence[int]) -> Int8 | list[Int8]:
    typed: list[Int8] = _typed(keys)
    return typed[0] if len(typed) == 1 else typed


def _matching(column: str, column_type: str, wanted: Sequence[tuple[int, Any]], more: str) -> Result:
    if not wanted:
        return Result()
    if connection.vendor == "postgresql" and len(wanted) == 1:
        return Result(
            _prepared(
                f"SELECT e.conversation_id, {column}, {more} FROM conversations_event AS e "
                f"WHERE e.conversation_id = %b::bigint AND {column} = %b::{column_type}",
                _typed(wanted[0]),
            )
        )
    # Both engines go through the wanted pairs and look each up in the index.
    select = f"SELECT e.conversation_id, {column}, {more} FROM wanted CROSS JOIN conversations_event AS e "
    where = f"WHERE e.conversation_id = wanted.pk AND {column} = wanted.name"
    if connection.vendor == "postgresql":
        pairs = f"SELECT * FROM unnest(%b::bigint[], %b::{column_type}[])"
        return Result(_prepared(f"WITH wanted (pk, name) AS ({pairs}) {select}{where}", _by_column(wanted)))
    pairs = f"VALUES {', '.join(['(%s, %s)'] * len(wanted))}"
    cursor = connection.cursor()
    cursor.execute(
        f"WITH wanted (pk, name) AS ({pairs}) {select}{where}", [value for pair in wanted for value in pair]
    )
    return Result(cursor)


def _prepared(statement: str, parameters: Sequence[Any]) -> psycopg.Cursor[Any]:
    """Run a statement that is planned once per connection, with its values sent separately (PostgreSQL).

    Django's cursor writes each value into the statement's text, which costs more than the insert.
    """
    if connection.queries_logged:  # like Django's cursor, for code that counts statements
        connection.queries_log.append({"sql": statement, "time": "unknown"})
    return _executed(statement, parameters, prepare=True)


def _executed(statement: str, parameters: Sequence[Any], *, prepare: bool) -> psycopg.Cursor[Any]:
    with connection.wrap_database_errors:
        connection.ensure_connection()
        session = connection.connection
        # Only here: while it is set, psycopg keeps the newest 100 texts of all cursors, values included.
        session.prepare_threshold = 0 if prepare else None
        try:
            return psycopg.Cursor(session).execute(statement.encode(), parameters, prepare=prepare)
        finally:
            session.prepare_threshold = None


def _typed(row: Sequence[Any]) -> list[Any]:
    """Return the values with one type for all whole numbers: PostgreSQL plans anew for each type."""
    return [Int8(value) if type(value) is int else value for value in row]


def _by_column(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    columns = map(list, zip(*rows, strict=True))
    return [column if type(column[0]) is str else _typed(column) for column in columns]


def _adapted(row: tuple[Any, ...], times: Sequence[int]) -> list[Any]:
    """Return the values as SQLite stores them; `times` are the places of moments.

    The text of a moment is the one that Django writes and reads. Django's own function reads the settings
    three times for each, which for a long batch takes longer than inserting the rows.
    """
    values = list(row)
    for place in times:
        if (moment := values[place]) is not None:
            values[place] = str(moment.astimezone(UTC).replace(tzinfo=None))
    return values
