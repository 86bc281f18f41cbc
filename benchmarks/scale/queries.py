"""How long the calls take that clients wait for, on databases of several sizes in turns."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks import event, server
from benchmarks.databases import PostgreSQL
from benchmarks.job import Job, Question, carry_out
from benchmarks.measured import appends
from benchmarks.scale.filling import EVENTS, NAME

K = TypeVar("K")
ASKED = 10
"""Conversations of the one who asks that are read."""
TIMES = 20
"""How often each question is asked."""
APPENDERS = 16
APPEND_S = 3.0
ROUNDS = 3
_APPENDED = json.dumps({"type": "event", "event": json.loads(event.PAYLOAD)})
_LOG = "/api/native/conversations/{}/events"
ONCE = {
    "the list, first page of 20": ("/api/native/conversations?limit=20", '"conversations":'),
    "the list, V0": ("/api/conversations?limit=20", '"results":'),
}
SEARCHES = {
    "search, a word of 1 in 110 events": ("/api/native/search?q=jsdelivr&limit=20", '"hits":'),
    "search, a frequent word": ("/api/native/search?q=workspace&limit=20", '"hits":'),
    "search, a word that never occurs": ("/api/native/search?q=zzyzx&limit=20", '"hits":'),
}
EACH = {
    "a page of 100 events": (_LOG + f"?after={EVENTS // 2 - 1}&limit=100", '"events":', ""),
    "one conversation": ("/api/native/conversations/{}", '"last_seq":', ""),
    "an append by REST": (_LOG, '"seq":', _APPENDED),
}


def latencies_ms(
    databases: Mapping[K, PostgreSQL], directory: Path, *, indexed: Collection[K]
) -> dict[str, dict[K, float]]:
    """Return by call and size the median; every call is made on each size before the next one.

    Searches are asked of the `indexed` ones only. Raise ClientFailed.
    """
    asked: list[tuple[str, K]] = []
    questions: list[Question] = []
    with ExitStack() as stack:
        ports = {
            size: stack.enter_context(server.convserver(database.url, directory)).port
            for size, database in databases.items()
        }
        own = {size: _own(database) for size, database in databases.items()}
        for name, (path, expected) in {**ONCE, **SEARCHES}.items():
            for size, port in ports.items():
                if name in SEARCHES and size not in indexed:
                    continue
                asked.append((name, size))
                questions.append(Question(port, path, expected))
        for name, (path, expected, body) in EACH.items():
            for place in range(ASKED):
                for size, port in ports.items():
                    asked.append((name, size))
                    questions.append(Question(port, path.format(own[size][place]), expected, body))
        result = carry_out(Job(sort="ask", questions=questions, times=TIMES))
    found: dict[str, dict[K, list[float]]] = {}
    for (name, size), answers_ms in zip(asked, result["latencies_ms"], strict=True):
        found.setdefault(name, {}).setdefault(size, []).extend(answers_ms)
    return {name: {size: median(each) for size, each in by_size.items()} for name, by_size in found.items()}


def appends_per_s(databases: Mapping[K, PostgreSQL], directory: Path) -> dict[K, float]:
    """Return by size the median rate of APPENDERS sockets, each to a conversation of its own.

    Raise ClientFailed.
    """
    rates: dict[K, list[float]] = {size: [] for size in databases}
    with ExitStack() as stack:
        running = {
            size: stack.enter_context(server.convserver(database.url, directory))
            for size, database in databases.items()
        }
        for _ in range(ROUNDS):
            for size, database in databases.items():
                ids = _own(database)[:APPENDERS]
                job = appends.by_socket(database, running[size], ids, seconds=APPEND_S)
                rates[size].append(appends.carry_out_on(database, ids, job)["rate"])
    return {size: median(each) for size, each in rates.items()}


def _own(database: PostgreSQL) -> list[str]:
    """Return the ids of conversations of the one who asks, spread over the log."""
    rows = database.execute(
        "SELECT public_id FROM conversations_conversation AS c JOIN auth_user AS u ON u.id = c.owner_id "
        f"WHERE public_id LIKE '{NAME}-%' AND username NOT LIKE 'scale-%' ORDER BY c.id"
    )
    return [public_id for (public_id,) in rows]
