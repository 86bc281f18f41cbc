"""What others are answered while somebody keeps one conversation locked and many wait to change it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import event, server
from benchmarks.clients.rest import TOLD_WITHIN_S
from benchmarks.databases import Database
from benchmarks.job import Job, Question, Result, carry_out

WRITERS = 40
EVERY_S = 0.1
IDLE, BESIDE = "idle before", "beside a lock"
WAITS = "who waits for the lock"
WRITTEN = ("append", "health")
"""Questions that write something, which nobody can while the file is locked that SQLite has for all."""
_APPENDED = json.dumps({"action": "run", "args": {"command": event.COMMAND}})
QUESTIONS = {
    "get": ("/api/native/conversations/{}", '"last_seq":', ""),
    "append": ("/api/conversations/{}/events", '"success":true', _APPENDED),
    "alive": ("/alive", '"ok"', ""),
    "health": ("/health", "OK", ""),
}
"""By name an address, what stands in each answer, and what is posted, if anything is."""
TOLD_WITHIN_MS = 1000 * TOLD_WITHIN_S


def latencies_ms(
    database: Database, directory: Path, free: str, taken: str, seconds: float
) -> dict[str, list[float]]:
    """Return how many ms each answer took, by question, as `get idle before` and `get beside a lock`.

    `taken` is locked for so long; WAITS is how long its writers waited. Raise ClientFailed if any of them was
    told anything but to try again.
    """
    names = [name for name in QUESTIONS if database.engine == "PostgreSQL" or name not in WRITTEN]
    with server.convserver(database.url, directory) as running:
        questions = [
            Question(running.port, path.format(free), expected, body)
            for path, expected, body in (QUESTIONS[name] for name in names)
        ]
        times = int(seconds / EVERY_S)
        idle = carry_out(Job(sort="ask", questions=questions, times=times // 2, every_s=EVERY_S))
        paths = [f"/api/native/conversations/{taken}"] * WRITERS
        waiting = Job(
            sort="rename", port=running.port, paths=paths, questions=questions, times=times, every_s=EVERY_S
        )
        with database.locked(taken):
            beside = carry_out(waiting)
    waits_ms = beside["latencies_ms"].pop()
    return {**_named(names, IDLE, idle), **_named(names, BESIDE, beside), WAITS: waits_ms}


def _named(names: Sequence[str], when: str, result: Result) -> dict[str, list[float]]:
    return {f"{name} {when}": answers for name, answers in zip(names, result["latencies_ms"], strict=True)}
