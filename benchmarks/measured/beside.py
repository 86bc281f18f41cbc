"""The same events in this server and in an agent server of OpenHands, and the same questions to both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from benchmarks.clients import calls
from benchmarks.job import ClientFailed, Job, Question, carry_out
from benchmarks.server import Server

PAGE, EVENTS = 100, 1_000
"""Events of the page, and at least in the conversation, all of which a join brings."""
PAGE_KEY, JOIN_KEY = "page of V1 events", "join of V1 events"
BATCH = 500
"""Events that are recorded here together."""
OURS, THEIRS = "/agent", ""
"""Where each server has the routes that are asked."""
SAID = "word " * 40
"""The text of a message, of typical size."""


class Shared(NamedTuple):
    """A conversation that both servers have."""

    public_id: str
    event_ids: list[str]


def theirs(key: str) -> str:
    """Return the name of what the agent server came to."""
    return f"{key}, agent server"


def shared(ours: Server, other: Server, directory: Path) -> Shared:
    """Create the events on the agent server, and store the same ones here. Raise ClientFailed."""
    # No model is asked: the messages start no run, and the title is not to be made.
    model = {"model": "openai/unreachable", "api_key": "none", "base_url": "http://127.0.0.1:9/v1"}
    start = {
        "agent": {"kind": "Agent", "llm": model, "tools": []},
        "workspace": {"kind": "LocalWorkspace", "working_dir": str(directory / "shared")},
        "autotitle": False,
    }
    public_id = json.loads(calls.post(other, "/api/conversations", start))["id"]
    path = f"/api/conversations/{public_id}/events"
    message = {"role": "user", "content": [{"type": "text", "text": SAID}], "run": False}
    while int(calls.get(other, f"{path}/count")) < EVENTS:
        calls.post(other, path, message)
    events = list(_shown(other, path))
    _record(ours, public_id, events)
    if list(_shown(ours, OURS + path)) != events:
        raise ClientFailed("The two servers do not show the same events.")
    return Shared(public_id, [event["id"] for event in events])


def pages(own: Shared, ours: Server, other: Server, times: int) -> Iterator[tuple[str, float]]:
    """Ask for the first page; yield how many of them each server answers in a second, one after the other."""
    path = f"/api/conversations/{own.public_id}/events/search?limit={PAGE}"
    found_ms = _medians_ms(Job(sort="ask", times=times), path, own.event_ids[PAGE - 1], ours, other)
    for key, took_ms in zip((PAGE_KEY, theirs(PAGE_KEY)), found_ms, strict=True):
        yield key, 1000 / took_ms


def joins(own: Shared, ours: Server, other: Server, times: int) -> Iterator[tuple[str, float]]:
    """Open the socket of the events; yield how many ms each server takes until the last of all is there."""
    path = f"/sockets/events/{own.public_id}?resend_mode=all"
    job = Job(sort="join", times=times // 4, events=len(own.event_ids))
    found_ms = _medians_ms(job, path, own.event_ids[-1], ours, other)
    yield from zip((JOIN_KEY, theirs(JOIN_KEY)), found_ms, strict=True)


def _medians_ms(job: Job, path: str, last_id: str, ours: Server, other: Server) -> list[float]:
    """Return how long the answers of both take whose last event has this id; they are asked in turns."""
    expected = f'"id":"{last_id}"'
    questions = [Question(ours.port, OURS + path, expected), Question(other.port, path, expected)]
    return [median(each) for each in carry_out(replace(job, questions=questions))["latencies_ms"]]


def _shown(running: Server, path: str) -> Iterator[dict[str, Any]]:
    """Yield all events that a server shows, page by page."""
    more: dict[str, Any] = {}
    while True:
        page = json.loads(calls.get(running, f"{path}/search?{urlencode({'limit': PAGE, **more})}"))
        yield from page["items"]
        if not page["next_page_id"]:
            return
        more = {"page_id": page["next_page_id"]}


def _record(ours: Server, public_id: str, events: Sequence[dict[str, Any]]) -> None:
    native = "/api/native/conversations"
    own_id = UUID(public_id).hex
    calls.post(ours, native, {"id": own_id, "version": "V1"})
    for first in range(0, len(events), BATCH):
        items = [{"id": event["id"], "event": event} for event in events[first : first + BATCH]]
        calls.post(ours, f"{native}/{own_id}/events", {"type": "events", "events": items})
