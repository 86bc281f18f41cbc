"""Who reads a long history lets calls pass, and comes to its end all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from conversations.models import ConversationRef
from conversations.store import ConversationStore
from convserver import asgi
from sessions_app import courtesy
from tests.conftest import Join
from tests.events import event

HISTORY = 250
FOR_EVER_S = 1_000.0


@pytest.fixture
def history(conversation: ConversationRef, store: ConversationStore) -> list[int]:
    """The seqs of a conversation that has something to replay."""
    store.append(conversation, [event(str(number)) for number in range(HISTORY)])
    return list(range(HISTORY))


class HeldAnswers:
    """An application whose answers wait until they are let go: at first the beginning, then the end."""

    def __init__(self) -> None:
        self.asked, self.begin, self.end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.set()
        await self.begin.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.end.wait()
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldAnswers:
    answers = HeldAnswers()
    monkeypatch.setattr(asgi, "http", answers)
    return answers


async def test_a_history_waits_for_a_call_until_its_answer_begins(
    conversation: ConversationRef,
    history: list[int],
    held: HeldAnswers,
    join: Join,
    rest: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(courtesy, "GIVE_WAY_S", FOR_EVER_S)
    calling = asyncio.create_task(rest.get("/api/conversations"))
    await held.asked.wait()
    reader = await join(conversation)
    await reader.until("hello")
    assert await reader.receives_nothing(within_s=0.2)
    held.begin.set()
    assert [frame["seq"] for frame in await reader.replayed()] == history
    held.end.set()
    await calling


async def test_calls_that_never_cease_do_not_stop_a_history(
    conversation: ConversationRef, history: list[int], join: Join
) -> None:
    with courtesy.courtesy().call():
        reader = await join(conversation)
        assert [frame["seq"] for frame in await reader.replayed()] == history


async def test_of_several_readers_one_has_its_turn_in_each_round_of_the_event_loop() -> None:
    rounds: list[int] = [0]
    turns: list[int] = []

    async def count() -> None:
        while len(turns) < 3:
            rounds[0] += 1
            await asyncio.sleep(0)

    async def read() -> None:
        await courtesy.courtesy().give_way()
        turns.append(rounds[0])

    await asyncio.gather(count(), *(read() for _ in range(3)))
    assert len(set(turns)) == 3
