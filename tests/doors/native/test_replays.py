"""What a server holds of a log for readers that take nothing: little, once for all, and not for ever."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from conversations.events import ConversationRef, EventEnvelope
from conversations.log import writes
from convserver.asgi import application
from sessions_app import astore
from sessions_app.sockets import socket
from tests.support.data.events import event
from tests.support.people.scripted_agent import until_here

EVENTS = 200
EVENT_BYTES = 16 * 1024
PAGE_MAX_BYTES = 512 * 1024
REFERENCES_FROM_HERE = 2
"""To a variable that is asked about: its own, and that of the argument."""


class Reader:
    """The server's end of a native socket, whose client takes no event until it is let."""

    def __init__(self, conversation: ConversationRef, after: int) -> None:
        self.seqs: list[int] = []
        self.is_stalled = asyncio.Event()
        self.may_read = asyncio.Event()
        self.has_read_all = asyncio.Event()
        self.code: int | None = None
        self._left = asyncio.Event()
        self._received = iter([{"type": "websocket.connect"}])
        self.serving = asyncio.create_task(self._serve(conversation, after))

    async def leave(self) -> None:
        """Disconnect, and return once the server has done with it."""
        self._left.set()
        await self.serving

    async def _serve(self, conversation: ConversationRef, after: int) -> None:
        headers = [(b"host", b"localhost")]
        path, query = f"/ws/conversations/{conversation.public_id}", f"after={after}".encode()
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": query,
            "headers": headers,
            "subprotocols": [],
        }
        served: Any = application
        await served(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        for message in self._received:
            return message
        await self._left.wait()
        return {"type": "websocket.disconnect", "code": 1005}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.close":
            self.code = message["code"]
        elif message["type"] == "websocket.send":
            await self._take(json.loads(message["text"]))

    async def _take(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "event":
            self.is_stalled.set()
            await self.may_read.wait()
            self.seqs.append(frame["seq"])
        elif frame["type"] == "replay_complete":
            self.has_read_all.set()


Joined = Callable[..., Reader]


@pytest.fixture
async def joined(live: None, conversation: ConversationRef) -> AsyncIterator[Joined]:
    """Join a long log with a client that takes no event yet."""
    readers: list[Reader] = []

    def join(*, after: int = -1) -> Reader:
        readers.append(Reader(conversation, after))
        return readers[-1]

    yield join
    for reader in readers:
        await reader.leave()


@pytest.fixture
def pages(conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch) -> list[list[EventEnvelope]]:
    """What is read of a long log, page by page."""
    writes.append(conversation, [event("x" * EVENT_BYTES) for _ in range(EVENTS)])
    pages: list[list[EventEnvelope]] = []
    read_after = astore.read_after

    async def noted(*arguments: Any, **bounds: Any) -> list[EventEnvelope]:
        pages.append(await read_after(*arguments, **bounds))
        return list(pages[-1])

    monkeypatch.setattr(astore, "read_after", noted)
    return pages


@pytest.fixture
def without_collection() -> Iterator[None]:
    """Nobody looks for garbage."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_log_is_read_no_further_than_a_reader_takes_it(
    joined: Joined, pages: list[list[EventEnvelope]]
) -> None:
    reader = joined()
    await reader.is_stalled.wait()
    assert sum(len(each["payload"]) for page in pages for each in page) < PAGE_MAX_BYTES + 2 * EVENT_BYTES
    reader.may_read.set()
    await reader.has_read_all.wait()
    assert reader.seqs == list(range(EVENTS))


async def test_readers_at_the_same_place_of_a_log_share_what_is_read_of_it(
    joined: Joined, pages: list[list[EventEnvelope]]
) -> None:
    readers = [joined() for _ in range(5)]
    for reader in readers:
        await reader.is_stalled.wait()
    assert len(pages) == 1
    for reader in readers:
        reader.may_read.set()
    for reader in readers:
        await reader.has_read_all.wait()
    assert [reader.seqs for reader in readers] == [list(range(EVENTS))] * 5


@pytest.mark.no_second_try
async def test_a_reader_that_shares_a_page_is_shown_what_was_stored_since_it_was_read(
    joined: Joined, pages: list[list[EventEnvelope]], conversation: ConversationRef
) -> None:
    first = joined(after=EVENTS - 10)
    await first.is_stalled.wait()
    await astore.append(conversation, [event()])
    second = joined(after=EVENTS - 10)
    await second.is_stalled.wait()
    for reader in (first, second):
        reader.may_read.set()
        await reader.has_read_all.wait()
    assert second.seqs == list(range(EVENTS - 9, EVENTS + 1))


@pytest.mark.parametrize("end", ["leaves", "is closed"])
async def test_what_a_reader_did_not_take_is_not_kept_when_it_ends(
    joined: Joined,
    pages: list[list[EventEnvelope]],
    without_collection: None,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    if end == "is closed":
        monkeypatch.setattr(socket, "SLOW_READER_S", 0.1)
    reader = joined()
    await reader.is_stalled.wait()
    ((*_, last),) = pages
    text = last["payload"]
    pages.clear()
    del last
    if end == "leaves":
        await reader.leave()
    await reader.serving
    assert reader.code == (4408 if end == "is closed" else None)
    await until_here(lambda: sys.getrefcount(text) == REFERENCES_FROM_HERE)
