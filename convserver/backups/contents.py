"""What a store holds, and whether it is whole, as far as it can tell by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.log.append import chain

PROBLEMS_MAX = 20  # at most this many problems are named
# A payload that is longer than this is read by itself: a thousand of the longest do not fit into memory.
LARGE_BYTES = 16 * 1024

# A payload as it is stored: SQLite's file may hold what is no text, and its driver would refuse it.
_BYTES = {"sqlite": "CAST(payload AS BLOB)", "postgresql": "convert_to(payload, 'UTF8')"}
_LENGTH = {"sqlite": "LENGTH(CAST(payload AS BLOB))", "postgresql": "OCTET_LENGTH(payload)"}
_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename",
}
# Not the guards of this version alone: a backup of another one has other guards.
_TRIGGERS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
    "WHERE relnamespace = quote_ident(current_schema())::regnamespace AND NOT tgisinternal "
    "AND tgenabled IN ('O', 'A')",
}


class Contents(NamedTuple):
    """What a store holds."""

    migrations: list[str]  # as `app.name`, sorted
    counts: dict[str, int]  # the number of rows of each table
    heads: str  # SHA-256 over the heads of all conversations, in hex
    triggers: list[str]  # the names of those that are switched on, sorted


class Head(NamedTuple):
    """What a conversation's row says of its log."""

    pk: int
    public_id: str
    next_seq: int
    digest: str


def contents(connection: BaseDatabaseWrapper) -> Contents:
    """Return what a store holds: all of one snapshot if the caller's transaction is one."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES[connection.vendor])
        counts = {}
        for (table,) in cursor.fetchall():
            # Virtual tables of SQLite's full text search, and their parts, are no content.
            if not table.startswith(("conversations_searchtext", "conversations_titletext", "sqlite_")):
                cursor.execute(f"SELECT COUNT(*) FROM {connection.ops.quote_name(table)}")  # noqa: S608
                counts[table] = int(cursor.fetchone()[0])
        cursor.execute("SELECT app, name FROM django_migrations")
        migrations = sorted(f"{app}.{name}" for app, name in cursor.fetchall())
        cursor.execute(_TRIGGERS[connection.vendor])
        triggers = sorted(name for (name,) in cursor.fetchall())
    return Contents(migrations, counts, heads_digest(connection), triggers)


def heads_digest(connection: BaseDatabaseWrapper) -> str:
    """Return the SHA-256 over the ids, lengths and digests of all logs, in hex."""
    digest = hashlib.sha256()
    # Outside a transaction PostgreSQL would store a copy of all rows for the cursor (WITH HOLD).
    with transaction.atomic(using=connection.alias):
        for head in _heads(connection):
            digest.update(f"{head.public_id} {head.next_seq} {head.digest}\n".encode())
    return digest.hexdigest()


def problems(connection: BaseDatabaseWrapper) -> list[str]:
    """Return what is damaged in a store, a sentence each, at most PROBLEMS_MAX; none if it is whole.

    Check SQLite's file, and the seqs, digests and head of each log. Backups and restores use this;
    `convserver verify` uses `conversations.verification`. It reads all payloads.
    """
    with transaction.atomic(using=connection.alias):
        return list(islice(_problems(connection), PROBLEMS_MAX))


def _problems(connection: BaseDatabaseWrapper) -> Iterator[str]:
    if connection.vendor == "sqlite":
        yield from _damage_of_file(connection)
    else:
        with connection.cursor() as cursor:
            # The index has the order; a sort of all payloads would need as much room on the disk.
            cursor.execute("SET LOCAL enable_sort = off")
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT conversation_id FROM conversations_purge")
        purged = {pk for (pk,) in cursor.fetchall()}  # their events were removed for good, or are being
    # Heads and events come in the order of their keys, so both are read once, side by side.
    logs = groupby(_events(connection), key=itemgetter(0))
    log = next(logs, None)
    for head in _heads(connection):
        is_empty = log is None or log[0] != head.pk
        problem = _problem_of_log(head, iter(()) if log is None or is_empty else log[1])
        if problem is not None and head.pk not in purged:
            yield problem
        if not is_empty:
            log = next(logs, None)


def _problem_of_log(head: Head, events: Iterator[tuple[Any, ...]]) -> str | None:
    """Return the first problem of one log; None if it is whole."""
    seq, digest = -1, ""
    for seq, (_, found, event_id, found_digest, payload) in enumerate(events):
        if found != seq:
            return f"Conversation {head.public_id}: event {seq} is missing; the next one is {found}."
        digest = chain(digest, seq=seq, event_id=event_id, payload=bytes(payload))
        if digest != found_digest:
            return (
                f"Conversation {head.public_id}: event {seq} was changed, or does not follow those before it."
            )
    if head.next_seq != seq + 1 or (head.digest and head.digest != digest):
        return (
            f"Conversation {head.public_id}: its row says that it has {head.next_seq} events, "
            f"but its log has {seq + 1}, or ends differently."
        )
    return None


def _damage_of_file(connection: BaseDatabaseWrapper) -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})")
        for (said,) in cursor.fetchall():
            if said != "ok":
                yield f"The file is damaged: {said}."
        cursor.execute("PRAGMA foreign_key_check")
        for table, *_ in cursor.fetchmany(PROBLEMS_MAX):
            yield f"A row of {table} refers to a row that does not exist."


def _heads(connection: BaseDatabaseWrapper) -> Iterator[Head]:
    statement = "SELECT id, public_id, next_seq, head_digest FROM conversations_conversation ORDER BY id"
    return (Head(*row) for row in _rows(connection, statement))


def _events(connection: BaseDatabaseWrapper) -> Iterator[tuple[Any, ...]]:
    """Return every event's conversation, seq, id, digest and the bytes of its payload, in order."""
    payload, length = _BYTES[connection.vendor], _LENGTH[connection.vendor]
    for pk, *place, short in _rows(
        connection,
        f"SELECT id, conversation_id, seq, event_id, digest, "  # noqa: S608
        f"CASE WHEN {length} <= {LARGE_BYTES} THEN {payload} END FROM conversations_event "
        "ORDER BY conversation_id, seq",
    ):
        yield *place, _payload_of(connection, pk) if short is None else short


def _payload_of(connection: BaseDatabaseWrapper, pk: int) -> bytes:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_BYTES[connection.vendor]} FROM conversations_event WHERE id = %s",  # noqa: S608
            [pk],
        )
        row = cursor.fetchone()
    return b"" if row is None else bytes(row[0])


def _rows(connection: BaseDatabaseWrapper, statement: str) -> Iterator[tuple[Any, ...]]:
    # The rows of a table do not fit into memory
    rows_at_once = 1000
    with connection.chunked_cursor() as cursor:
        cursor.execute(statement)
        while rows := cursor.fetchmany(rows_at_once):
            yield from rows
