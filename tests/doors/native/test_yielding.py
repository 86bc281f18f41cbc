"""Long replays and crowds of frames leave the event loop to others between their steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conversations.events import ConversationRef
from conversations.log import writes
from sessions_app.capacity.openings import opening
from sessions_app.live import feed
from sessions_app.sockets.socket import FRAMES_IN_A_ROW, Socket
from tests.conftest import Join
from tests.support.data.events import event

HISTORY = 250
READERS = 3


@pytest.fixture
def history(conversation: ConversationRef) -> None:
    """A conversation that has something to replay."""
    writes.append(conversation, [event(str(number)) for number in range(HISTORY)])


class Rounds:
    """How many rounds the event loop has made."""

    number = 0


@asynccontextmanager
async def counted_rounds() -> AsyncIterator[Rounds]:
    rounds = Rounds()

    async def count() -> None:
        while True:
            rounds.number += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield rounds
    finally:
        counting.cancel()


async def test_of_all_replays_one_step_is_sent_in_each_round_of_the_event_loop(
    conversation: ConversationRef, history: None, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "STEP_EVENTS", 10)
    show, steps = feed.Feed._show, list[int]()

    async def noted(reading: feed.Feed, events: Any) -> None:
        steps.append(rounds.number)
        await show(reading, events)

    monkeypatch.setattr(feed.Feed, "_show", noted)
    async with counted_rounds() as rounds:
        readers = await asyncio.gather(*(join(conversation) for _ in range(READERS)))
        for reader in readers:
            assert [frame["seq"] for frame in await reader.replayed()] == list(range(HISTORY))
    assert len(steps) == READERS * HISTORY // 10
    assert len(set(steps)) == len(steps)


async def test_frames_that_have_come_already_leave_rounds_of_the_event_loop_to_others() -> None:
    async def receive() -> Any:
        return {"type": "websocket.receive", "text": "{}"}

    async def send(message: Any) -> None:
        pass

    scope: Any = {"type": "websocket", "path": "/"}
    socket = Socket(scope, receive, send)
    async with counted_rounds() as rounds:
        for _ in range(3 * FRAMES_IN_A_ROW):
            assert await socket.receive_text() == "{}"
        assert rounds.number >= 3


async def open_some(user_pk: int, count: int, opened: asyncio.Semaphore, go: asyncio.Event) -> None:
    async def open_one() -> None:
        async with opening(user_pk):
            opened.release()
            await go.wait()

    await asyncio.gather(*(open_one() for _ in range(count)))


@pytest.mark.parametrize(("auth", "at_once"), [("accounts", 2), ("local", 6)])
async def test_with_accounts_the_sockets_of_one_user_open_one_after_the_other_and_hold_up_nobody_else(
    auth: str, at_once: int, configured: Callable[..., None]
) -> None:
    configured(auth=auth)
    opened, go = asyncio.Semaphore(0), asyncio.Event()
    opening_all = asyncio.gather(*(open_some(user_pk, 3, opened, go) for user_pk in (1, 2)))
    for _ in range(at_once):
        await opened.acquire()
    await asyncio.sleep(0.05)
    assert opened.locked()
    go.set()
    await opening_all
