"""A conversation that is imported from JSON lines, beside a bare bulk insert of the same rows."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psycopg

from benchmarks import event, server
from benchmarks.databases import Database, PostgreSQL, SQLite
from benchmarks.job import ClientFailed
from conversations.events import EventEnvelope
from conversations.transcripts import jsonl
from conversations.transcripts.jsonl import Beside

EVENTS = 20_000
FEW = 100
"""Events of another import, whose time is that of the command itself."""
BATCH = 500
"""Rows of one transaction, as in an import."""
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Took(NamedTuple):
    """One run of the command."""

    seconds: float
    peak_mb: float


def measured(database: Database, directory: Path) -> tuple[float, float, float]:
    """Return events/s of an import, events/s of the bare insert, and by how many MB the import grew.

    Raise ClientFailed if the command fails.
    """
    few, many = (_imported(database, directory, count) for count in (FEW, EVENTS))
    rate = (EVENTS - FEW) / (many.seconds - few.seconds)
    return rate, _inserted(database, EVENTS), many.peak_mb - few.peak_mb


def _imported(database: Database, directory: Path, count: int) -> Took:
    file = exported(directory, count)
    own = {"DATABASE_URL": database.url, "CONVSERVER_DATA_DIR": str(directory)}
    command = [sys.executable, "-m", "convserver", "import", "convserver", str(file)]
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        env=server.environment() | own,
        cwd=server.ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as running:
        memory = server.Memory(running.pid)
        with memory.watched():
            _, said = running.communicate()
    if running.returncode:
        raise ClientFailed(f"import of {count} events: {said.decode()[-1000:]}")
    return Took(time.perf_counter() - began, memory.peak_mb)


def exported(directory: Path, count: int) -> Path:
    """Write a conversation with so many events, under an id that nobody has."""
    lines, texts = jsonl.Lines(), []
    chain = list(event.chain(count, event.PAYLOAD))
    for seq, event_id, _ in chain:
        at = _BEGAN + timedelta(seconds=seq)
        beside = Beside(received_at=at, epoch=None, is_input=False, wire_id=None)
        texts.append(lines.write([(_envelope(seq, event_id, at), beside)]))
    about = {"id": uuid4().hex, "version": "V0", "title": "Moved in"}
    file = directory / f"moving-in-{count}.jsonl"
    head = jsonl.manifest(conversation=about, events=count, head_digest=chain[-1].digest)
    file.write_text("".join([head, *texts, lines.end()]))
    return file


def _envelope(seq: int, event_id: str, at: datetime) -> EventEnvelope:
    return EventEnvelope(
        seq=seq,
        fingerprint="",
        id=event_id,
        dialect="v0",
        type="run",
        kind="tool_call",
        source="agent",
        timestamp=jsonl.written(at),
        cause=None,
        turn=None,
        tool_call_id=None,
        hidden=False,
        brings_envelope=False,
        text=event.COMMAND,
        payload=event.PAYLOAD,
    )


def _inserted(database: Database, count: int) -> float:
    """Return rows/s of inserts with many rows each, one transaction for each."""
    (public_id,) = database.fill(f"bulk-{uuid4().hex}", conversations=1, events=1)
    pk = database.pk_of(public_id)
    columns = ", ".join(("conversation_id", "seq", "event_id", "timestamp", "received_at", *event.COLUMNS))
    began = time.perf_counter()
    if isinstance(database, PostgreSQL):
        with psycopg.connect(database.url, autocommit=True) as connection:
            for first in range(1, count + 1, BATCH):
                connection.execute(_insert(database, columns, pk, first).encode())
    elif isinstance(database, SQLite):
        own = database.connect()
        for first in range(1, count + 1, BATCH):
            own.execute(_insert(database, columns, pk, first))
        own.close()
    return count / (time.perf_counter() - began)


def _insert(database: Database, columns: str, pk: int, first: int) -> str:
    values = ", ".join(event.COLUMNS.values())
    rows = ", ".join(
        f"({pk}, {seq}, '{uuid4().hex}', {database.now}, {database.now}, {values})"
        for seq in range(first, first + BATCH)
    )
    return f"INSERT INTO conversations_event ({columns}) VALUES {rows}"
