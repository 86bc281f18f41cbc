"""Memory: what a burst of long requests has needed is given back to the system, by a server of its own."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from sessions_app.capacity import heap
from tests.support.people.clients import HTTP, Server
from tests.support.wires.network import wait_until

MB = 1024 * 1024
REQUESTS = 6
LONG = 8 * MB


def resident_mb(pid: int) -> float:
    """Return the memory of a process that is not on the disk."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


def ask(server: Server, number: int) -> set[int]:
    """Store a long event and a long draft in a conversation, and read both; return the statuses."""
    talk = f"{server.url}/api/native/conversations/long-{number}"
    made = HTTP.post(f"{server.url}/api/native/conversations", json={"id": f"long-{number}"})
    event = {"action": "message", "source": "user", "args": {"content": "x" * LONG}}
    image = f"data:image/png;base64,{'A' * LONG}"
    answers = [
        made,
        HTTP.post(f"{talk}/events", json={"type": "event", "event": event}),
        HTTP.put(f"{talk}/draft", json={"text": "", "images": [image], "version": 0}),
        HTTP.get(f"{talk}/events"),
        HTTP.get(f"{talk}/draft"),
        HTTP.get(f"{talk}/export?format=jsonl"),
    ]
    return {answer.status_code for answer in answers}


@pytest.mark.one_engine
@pytest.mark.slow
def test_what_a_burst_of_long_requests_needed_is_given_back(server: Server, alice: User) -> None:
    server.start()
    ask(server, REQUESTS)  # the first of each kind loads what the others need, too
    before = resident_mb(server.pid)
    with ThreadPoolExecutor(REQUESTS) as pool:
        for statuses in pool.map(lambda number: ask(server, number), range(REQUESTS)):
            assert statuses <= {200, 201}
    wait_until(lambda: resident_mb(server.pid) < before + 96)


def test_where_nothing_watches_memory_garbage_is_collected_as_python_does_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heap, "_library", None)
    usual = gc.get_threshold()
    try:
        heap.bound()
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*usual)
