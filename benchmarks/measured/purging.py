"""Appends by REST while the server purges a conversation of many events, and while it does not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from uuid import uuid4

from benchmarks import server
from benchmarks.clients import calls
from benchmarks.databases import Database, PostgreSQL
from benchmarks.event import PAYLOAD
from benchmarks.job import ClientFailed

IDLE, BESIDE = "before a purge", "beside a purge"
EVENTS = 1_000_000
TIMES = 300
BETWEEN_S = 0.01
BEGIN_WAIT_S = 60.0
NATIVE = "/api/native/conversations"
WORDS = "some twenty words of what the command has said and what came of it in the end"


def latencies_ms(database: Database, directory: Path) -> dict[str, list[float]]:
    """Return how many ms each append took, idle and beside the purge. Raise ClientFailed if that ended."""
    (public_id,) = database.fill(f"purged-{uuid4().hex}", conversations=1, events=EVENTS)
    pk = database.pk_of(public_id)
    _index(database, pk)
    with _appending(database, directory) as (running, path):
        idle = _appended(running, path)
    _let_it_be_due(database, pk)
    with _appending(database, directory) as (running, path):
        before = _wait_for_the_first_step(database, pk)
        beside = _appended(running, path)
        after = _left(database, pk)
    if not 0 < after < before:
        raise ClientFailed(f"The purge did not run all the time: {before} events before, {after} after.")
    return {IDLE: idle, BESIDE: beside}


@contextmanager
def _appending(database: Database, directory: Path) -> Iterator[tuple[server.Server, str]]:
    with server.convserver(database.url, directory) as running:
        made = json.loads(calls.post(running, NATIVE, {}))["id"]
        yield running, f"{NATIVE}/{made}/events"


def _appended(running: server.Server, path: str) -> list[float]:
    connection = HTTPConnection("127.0.0.1", running.port, timeout=calls.WAIT_S)
    frame = json.dumps({"type": "event", "event": json.loads(PAYLOAD)})
    found = []
    for number in range(TIMES + 2):
        time.sleep(BETWEEN_S)  # otherwise these calls alone would keep the server busy
        began = time.perf_counter()
        connection.request("POST", path, frame, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise ClientFailed(f"{path}: {answer.status} {text[:200]!r}")
        if number >= 2:  # the first imports its view
            found.append((time.perf_counter() - began) * 1000)
    connection.close()
    return found


def _index(database: Database, pk: int) -> None:
    """Give each event its words in the search index, as if the server had indexed them all."""
    words = f"'{WORDS}'::tsvector" if isinstance(database, PostgreSQL) else f"'{WORDS}'"
    key = "event_id" if isinstance(database, PostgreSQL) else "rowid"
    database.execute(
        f"INSERT INTO conversations_searchtext ({key}, words) "
        f"SELECT id, {words} FROM conversations_event WHERE conversation_id = {pk} RETURNING 1",
        "UPDATE conversations_searchprogress SET words_through = "
        "(SELECT max(id) FROM conversations_event) RETURNING 1",
    )


def _let_it_be_due(database: Database, pk: int) -> None:
    """Let the conversation be deleted for long, and the next server look at once for what is due."""
    database.execute(
        "DELETE FROM sessions_app_housekeepinground RETURNING 1",
        "INSERT INTO sessions_app_deletedlimit (id, days, since) "
        f"VALUES (1, 30, {database.minutes_ago('60 * 24 * 90')}) "
        "ON CONFLICT (id) DO UPDATE SET days = 30, since = excluded.since RETURNING 1",
        f"UPDATE conversations_conversation SET deleted_at = {database.minutes_ago('60 * 24 * 90')} "
        f"WHERE id = {pk} RETURNING 1",
    )


def _wait_for_the_first_step(database: Database, pk: int) -> int:
    until = time.monotonic() + BEGIN_WAIT_S
    while (left := _left(database, pk)) == EVENTS:
        if time.monotonic() > until:
            raise ClientFailed("The server did not begin the purge.")
        time.sleep(0.1)
    return left


def _left(database: Database, pk: int) -> int:
    """Return how many events are not removed yet."""
    rows = database.execute(f"SELECT through FROM conversations_purge WHERE conversation_id = {pk}")
    return EVENTS - int(rows[0][0]) - 1 if rows else EVENTS
