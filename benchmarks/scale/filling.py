"""A database of a size, with the server's own tables, filled by the database itself.

Every event is a copy of a recorded one, with ids, times and a digest of its own; of the digests only the
length is right. Events are stored in the order of a busy server, many conversations in turns.
That decides how full the pages of the indexes are. The triggers that a fill would start are off meanwhile
(`session_replication_role`): only foreign keys have one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import server
from benchmarks.databases import TEMPLATE_ID, PostgreSQL
from benchmarks.job import Job, carry_out
from benchmarks.scale.recordings import Recorded, recorded

EVENTS = 200
"""In each conversation."""
AT_ONCE = 200
"""Conversations that grow in turns."""
OWN = 100
"""Conversations of each user, also of the one who asks."""
NAME = "scale"
POOL = "scale_pool"
"""The recorded events, as the log stores them: copies take over what is compressed."""

_POOL_COLUMNS = (
    *("dialect", "type", "kind", "source", "tool_call_id", "parent_event_id"),
    *("brings_envelope", "hidden", "is_input", "text", "payload", "size"),
)
_TURN = "CASE WHEN pool.source = 'user' THEN NULL ELSE md5(({pk})::text || '/' || {seq} / 20) END"


def fill(database: PostgreSQL, events: int, directory: Path, say: Callable[[str], None]) -> None:
    """Make the tables and so many events, unless the database has them already."""
    if _count(database) >= events:
        say(f"{database.name} is filled already")
        return
    with server.convserver(database.url, directory) as running:
        path = f"/ws/conversations/{TEMPLATE_ID}?after=-1"
        carry_out(Job(sort="append", port=running.port, paths=[path], after=[-1], seconds=0.1))
    conversations = events // EVENTS
    first_pk = _make_conversations(database, conversations)
    with psycopg.connect(database.url, autocommit=True) as connection:
        _make_pool(connection, recorded())
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET work_mem = '128MB'")
        for first in range(0, conversations, AT_ONCE):
            count = min(AT_ONCE, conversations - first)
            connection.execute(_appends(), {"pk": first_pk + first, "count": count})
            if (first // AT_ONCE) % 25 == 0:
                say(f"{database.name}: {(first + count) * EVENTS:,} events")
        connection.execute(
            "UPDATE conversations_searchprogress "
            "SET words_through = (SELECT MAX(id) FROM conversations_event)"
        )
        connection.execute("VACUUM (ANALYZE)")


def _count(database: PostgreSQL) -> int:
    """Return about how many events there are."""
    ((name,),) = database.execute("SELECT to_regclass('conversations_event')::text")
    if name is None:
        return 0
    ((count,),) = database.execute("SELECT COALESCE(MAX(id), 0) FROM conversations_event")
    return int(count)


def _make_conversations(database: PostgreSQL, count: int) -> int:
    """Make the conversations and their owners, and return the first key."""
    others = max(count // OWN - 1, 1)
    database.execute(
        "INSERT INTO auth_user (username, password, is_superuser, first_name, last_name, email, is_staff, "
        f"is_active, date_joined) SELECT 'scale-' || n, '', FALSE, '', '', '', FALSE, TRUE, now() "
        f"FROM {database.series(others)}",
        "ANALYZE auth_user",
    )
    ((first_user,),) = database.execute("SELECT MIN(id) FROM auth_user WHERE username LIKE 'scale-%'")
    made_at = database.minutes_ago(f"{count} - n")
    times = dict.fromkeys(("created_at", "updated_at", "listed_at", "last_message_at"), made_at)
    owner = f"CASE WHEN n % {max(count // OWN, 1)} = 0 THEN t.owner_id ELSE {first_user} + n % {others} END"
    more = {
        "owner_id": owner,
        "next_seq": str(EVENTS),
        "head_digest": "repeat('0', 64)",
        "last_message": "repeat('What was asked last. ', 5)",
        "repository": "'example/repository-' || n % 10",
    }
    database.execute(database.copies(NAME, count, {**times, **more}))
    return database.pk_of(f"{NAME}-0")


def _make_pool(connection: psycopg.Connection[Any], events: list[Recorded]) -> None:
    connection.execute(f"CREATE TABLE {POOL} (LIKE conversations_event, words text[])")
    columns = ", ".join(_POOL_COLUMNS)
    values = ", ".join(["%s"] * len(_POOL_COLUMNS))
    for seq, (payload, reading, words) in enumerate(events):
        is_input = reading.kind == "message" and reading.source == "user"
        row = (
            *(reading.dialect.value, reading.type, reading.kind.value, reading.source),
            *(reading.tool_call_id, reading.parent_event_id),
            *(
                reading.brings_envelope,
                reading.hidden,
                is_input,
                reading.text,
                payload,
                len(payload.encode()),
            ),
        )
        connection.execute(
            f"INSERT INTO {POOL} (id, conversation_id, seq, event_id, turn_id, digest, timestamp, "
            f"received_at, words, {columns}) VALUES ({seq}, 0, {seq}, repeat('0', 32), repeat('0', 32), "
            f"repeat('0', 64), now(), now(), %s, {values})".encode(),
            (words, *row),
        )
    connection.execute(f"ANALYZE {POOL}")


def _appends() -> bytes:
    """Return the statement that lets `count` conversations from `pk` on grow in turns, each to EVENTS."""
    columns = ", ".join(_POOL_COLUMNS)
    values = ", ".join(f"pool.{column}" for column in _POOL_COLUMNS)
    pk, seq = "%(pk)s + n %% %(count)s", "n / %(count)s"
    turn = _TURN.format(pk=pk, seq=seq)
    return f"""
        INSERT INTO conversations_event (
            conversation_id, seq, event_id, turn_id, epoch, cause_seq, wire_id, timestamp, received_at,
            digest, {columns}
        )
        SELECT {pk}, {seq}, replace(gen_random_uuid()::text, '-', ''), {turn}, 1,
            CASE WHEN pool.kind = 'tool_result' THEN {seq} - 1 END,
            CASE WHEN pool.dialect = 'v0' THEN {seq} END,
            now() + n * interval '1 millisecond', now() + n * interval '1 millisecond',
            md5(n::text) || md5(random()::text), {values}
        FROM generate_series(0, %(count)s * {EVENTS} - 1) AS series (n)
        JOIN {POOL} AS pool
            ON pool.seq = (n / %(count)s + 37 * (n %% %(count)s)) %% (SELECT COUNT(*) FROM {POOL})
    """.encode()
