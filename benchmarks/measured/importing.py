"""What others are answered while the server imports the library of models, for the first answer of one."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from benchmarks import server
from benchmarks.clients import calls
from benchmarks.databases import Database
from benchmarks.event import PAYLOAD
from benchmarks.job import ClientFailed

IDLE, BESIDE = "before the library", "beside the library's import"
TIMES = 100
"""How often each question is asked of the idle server."""
LEAST = 10
"""An import during which fewer are answered says nothing."""
BETWEEN_S = 0.005
IMPORT_WAIT_S = 60.0
NATIVE = "/api/native/conversations"
QUESTIONS = ("get", "list", "append", "alive")


class _Question(NamedTuple):
    path: str
    body: str = ""


def latencies_ms(database: Database, directory: Path) -> dict[str, list[float]]:
    """Return how many ms each answer took, by question, each idle and beside the import.

    Raise ClientFailed if too few were answered during the import, or if it does not end.
    """
    with socket.create_server(("127.0.0.1", 0)) as model:
        model.setblocking(False)
        address = f"http://127.0.0.1:{model.getsockname()[1]}/v1"
        named = {"LLM_MODEL": "openai/none", "LLM_API_KEY": "none", "LLM_BASE_URL": address}
        with server.convserver(database.url, directory, **named) as running:
            asked, appended = (json.loads(calls.post(running, NATIVE, {}))["id"] for _ in range(2))
            questions = _questions(asked, appended)
            _ask(running, questions, lambda times: times == 2)  # the first of each imports its view
            idle = _ask(running, questions, lambda times: times == TIMES)
            calls.post(running, f"{NATIVE}/{asked}/events", {"type": "message", "text": "Hello"})
            until = time.monotonic() + IMPORT_WAIT_S
            beside = _ask(running, questions, lambda times: _is_asked(model, until))
    if len(beside[-1]) < LEAST:
        raise ClientFailed(f"Only {len(beside[-1])} answers came during the import.")
    found: dict[str, list[float]] = {}
    for name, before, during in zip(QUESTIONS, idle, beside, strict=True):
        found[f"{name} {IDLE}"], found[f"{name} {BESIDE}"] = before, during
    return found


def _questions(asked: str, appended: str) -> list[_Question]:
    frame = json.dumps({"type": "event", "event": json.loads(PAYLOAD)})
    return [
        _Question(f"{NATIVE}/{asked}"),
        _Question(f"{NATIVE}?limit=20"),
        _Question(f"{NATIVE}/{appended}/events", frame),
        _Question("/alive"),
    ]


def _ask(
    running: server.Server, questions: Sequence[_Question], is_over: Callable[[int], bool]
) -> list[list[float]]:
    """Ask in turns until it is over, which is asked with the number of turns, and return ms by question."""
    found: list[list[float]] = [[] for _ in questions]
    connection = HTTPConnection("127.0.0.1", running.port, timeout=calls.WAIT_S)
    times = 0
    while not is_over(times):
        for question, latencies_ms in zip(questions, found, strict=True):
            time.sleep(BETWEEN_S)  # otherwise these calls alone would keep the server busy
            latencies_ms.append(_answered_in_ms(connection, question))
        times += 1
    connection.close()
    return found


def _answered_in_ms(connection: HTTPConnection, question: _Question) -> float:
    began_at = time.perf_counter()
    method, body = ("POST", question.body) if question.body else ("GET", None)
    connection.request(method, question.path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise ClientFailed(f"{question.path}: {answer.status} {text[:200]!r}")
    return (time.perf_counter() - began_at) * 1000


def _is_asked(model: socket.socket, until: float) -> bool:
    """Say whether the library has connected to the model's server. Raise ClientFailed from `until` on."""
    try:
        model.accept()[0].close()
    except BlockingIOError:
        if time.monotonic() > until:
            raise ClientFailed(f"The model was not asked within {IMPORT_WAIT_S:.0f} s.") from None
        return False
    return True
