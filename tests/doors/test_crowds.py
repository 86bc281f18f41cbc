"""The hints of a conversation that very many follow."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from conversations import live as hints
from conversations.events import ConversationRef
from conversations.hints import Hint
from conversations.log import writes
from sessions_app import astore
from sessions_app.live import hub
from sessions_app.live.event_cache import RecentEvents
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S

pytestmark = pytest.mark.one_engine

GROUP = "conversation.1"
READERS = 5
SEQS = list(range(6))


class Taking:
    """A reader that has room: it is shown every event at once."""

    def __init__(self, steps: list[str]) -> None:
        self.shown: list[int] = []
        self.all_shown = asyncio.Event()
        self._steps = steps

    def take(self, hint: Hint, characters: int) -> bool:
        self._steps.append(f"shown {hint['last_seq']}")
        self.shown.append(hint["last_seq"])
        if self.shown[-1] == SEQS[-1]:
            self.all_shown.set()
        return True


async def test_other_work_goes_on_while_a_crowd_is_shown_events(
    live: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "PASSED_AT_ONCE", 2)
    steps: list[str] = []
    readers = [Taking(steps) for _ in range(READERS)]
    async with AsyncExitStack() as until_left, asyncio.TaskGroup() as tasks:
        following = []
        for reader in readers:
            subscription = await until_left.enter_async_context(hub.hub().subscribe(GROUP))
            subscription.take_at_once = reader.take
            following.append(tasks.create_task(subscription.next()))
        other = tasks.create_task(_work(steps))
        await asyncio.sleep(0)  # all wait
        for seq in SEQS:
            hints.announce(GROUP, {"kind": "appended", "last_seq": seq, "events": []})
        async with asyncio.timeout(WAIT_S):
            for reader in readers:
                await reader.all_shown.wait()
        for task in (other, *following):
            task.cancel()
    assert [reader.shown for reader in readers] == [SEQS] * READERS
    first, last = steps.index("shown 0"), len(steps) - steps[::-1].index("shown 0")
    assert "other work" in steps[first:last]


async def _work(steps: list[str]) -> None:
    while True:
        await asyncio.sleep(0)
        steps.append("other work")


async def test_the_frames_of_each_of_several_hints_are_joined_once_for_a_crowd_that_is_behind(
    conversation: ConversationRef,
) -> None:
    await astore.call(writes.append, conversation, [event() for _ in SEQS])
    log = await astore.read_after(conversation, -1)
    recent, waiting = RecentEvents(), (log[:2], log[2:5], log[5:])
    recent.keep(conversation.pk, log)

    def joined() -> list[bytes]:
        return [
            recent.framed_together("wire", conversation, events, lambda each: each["payload"])
            for events in waiting
        ]

    first = joined()
    for _ in range(READERS):
        assert all(again is once for again, once in zip(joined(), first, strict=True))
    assert b"".join(first).count(log[0]["payload"].encode()) == len(SEQS)
