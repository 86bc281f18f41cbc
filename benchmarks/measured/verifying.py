"""`verify` on a store of a million events, beside a bare scan that hashes the same payloads."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from benchmarks import event, server
from benchmarks.clients import calls
from benchmarks.databases import DATABASE_URL, TEMPLATE_ID, Database, PostgreSQL, SQLite
from benchmarks.job import ClientFailed

CONVERSATIONS, EVENTS = 1_000, 1_000
NATIVE = "/api/native/conversations"
FETCHED = 2_000
_NAME = "verified"
_SAID = "The tests pass."
_TURN = ("message", "tool_call", "tool_result", "message", "turn")
"""The kinds of the events of one turn."""


class Took(NamedTuple):
    """How long both take, in seconds, and how much memory the command has at most."""

    verify_s: float
    scan_s: float
    peak_mb: float


def measured(engine: str, directory: Path, events: int = EVENTS) -> Took:
    """Fill a database of the engine with CONVERSATIONS of so many events, and verify and scan it.

    Raise ClientFailed if the command fails or calls the store damaged.
    """
    database: Database = PostgreSQL(DATABASE_URL) if engine == "PostgreSQL" else SQLite(directory)
    try:
        _fill(database, directory, events)
        verify_s, peak_mb = _verified(database, directory, CONVERSATIONS * events)
        began = time.perf_counter()
        scanned = sum(1 for payload in _payloads(database) if sha256(payload.encode()).digest())
        scan_s = time.perf_counter() - began
        if scanned != CONVERSATIONS * events:
            raise ClientFailed(f"The scan has read {scanned} events.")
        return Took(verify_s, scan_s, peak_mb)
    finally:
        database.remove()


def _fill(database: Database, directory: Path, events: int) -> None:
    """Make conversations with the same log; their events lie mixed, as if all had grown at once."""
    with server.convserver(database.url, directory) as running:
        calls.post(running, NATIVE, {"id": TEMPLATE_ID})
    rows = [_row(*link) for link in event.chain(events, event.PAYLOAD)]
    facts = {"next_seq": str(events), "head_digest": rows[-1]["digest"], "last_message": f"'{_SAID}'"}
    database.execute(database.copies(_NAME, CONVERSATIONS, facts))
    first = database.pk_of(f"{_NAME}-0")
    columns, into = list(rows[0]), f"INSERT INTO conversations_event (conversation_id, {', '.join(rows[0])})"
    values = ", ".join(f"({first}, {', '.join(row.values())})" for row in rows)
    database.execute(
        f"INSERT INTO conversations_event (conversation_id, {', '.join(columns)}) VALUES {values}"
    )
    copied = ", ".join(f"e.{column}" for column in columns)
    database.execute(
        f"{into} SELECT c.id, {copied} "
        f"FROM conversations_event AS e CROSS JOIN conversations_conversation AS c "
        f"WHERE e.conversation_id = {first} AND c.public_id LIKE '{_NAME}-%' AND c.id <> {first} "
        "ORDER BY e.seq, c.id",
        *database.analysis(),
    )


def _row(seq: int, event_id: str, digest: str) -> dict[str, str]:
    """Return the columns of an event, as SQL."""
    kind = _TURN[seq % len(_TURN)]
    moment = "'2026-01-01 00:00:00.000001+00'"
    return event.COLUMNS | {
        "seq": str(seq),
        "event_id": f"'{event_id}'",
        "timestamp": moment,
        "received_at": moment,
        "kind": f"'{kind}'",
        "cause_seq": str(seq - 1) if kind == "tool_result" else "NULL",
        "turn_id": "NULL" if seq % len(_TURN) == 0 else f"'{seq // len(_TURN):032x}'",
        "text": f"'{_SAID}'" if kind == "message" else f"'{event.COMMAND}'",
        "digest": f"'{digest}'",
    }


def _verified(database: Database, directory: Path, events: int) -> tuple[float, float]:
    """Return how long the command takes, and its memory in MB at most."""
    own = {"DATABASE_URL": database.url, "CONVSERVER_DATA_DIR": str(directory)}
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "convserver", "verify", "--json"],
        env=server.environment() | own,
        cwd=server.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        memory = server.Memory(running.pid)
        with memory.watched():
            said, problems = running.communicate()
    lasted = time.perf_counter() - began
    result: dict[str, Any] = json.loads(said or b"{}")
    if result.get("outcome") != "whole":
        raise ClientFailed(f"verify: {said.decode()[:1000]} {problems.decode()[-1000:]}")
    if result["events"] != events:
        raise ClientFailed(f"verify has read {result['events']} events.")
    return lasted, memory.peak_mb


def _payloads(database: Database) -> Iterator[str]:
    """Yield the payloads as they lie in the table."""
    statement = "SELECT payload FROM conversations_event"
    if isinstance(database, PostgreSQL):
        with psycopg.connect(database.url) as connection, connection.cursor("scan") as cursor:
            cursor.itersize = FETCHED
            for (payload,) in cursor.execute(statement):
                yield payload
    elif isinstance(database, SQLite):
        own = database.connect()
        for (payload,) in own.execute(statement):
            yield payload
        own.close()
