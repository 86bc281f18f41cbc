"""Threads of the store that all users share: one who keeps many of them leaves some to the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import EventEnvelope
from conversations.log import reads, writes
from conversations.models import ConversationQuerySet, ConversationRef
from conversations.store import creation
from sessions_app import astore
from sessions_app.live import status
from sessions_app.models import ApiToken
from tests.conftest import Join, on_postgresql
from tests.store.test_group_commit import locked_elsewhere
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S

pytestmark = pytest.mark.usefixtures("live", "accounts")


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """What held threads wait for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def talks(alice: User) -> list[ConversationRef]:
    """More conversations of alice's than there are threads of any sort."""
    return [creation.create(alice) for _ in range(2 * astore.CHANGERS)]


@pytest.fixture
def bobs(bob: User) -> ConversationRef:
    """A conversation of bob's, with one event."""
    conversation = creation.create(bob, conversation_id="bobs")
    writes.append(conversation, [event()])
    return conversation


@pytest.fixture
async def tasks() -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Tasks that are waited for at the end."""
    started: list[asyncio.Task[Any]] = []
    yield started
    await asyncio.gather(*started)


async def test_one_users_reads_leave_a_thread_to_others(
    talks: list[ConversationRef],
    bobs: ConversationRef,
    tasks: list[asyncio.Task[Any]],
    go: threading.Event,
) -> None:
    def hold(conversation: ConversationRef) -> bool:
        return go.wait(2 * WAIT_S)

    tasks += [asyncio.create_task(astore.call(hold, talk)) for talk in talks]
    await asyncio.sleep(0)
    async with asyncio.timeout(WAIT_S):
        assert len(await astore.read_after(bobs, -1)) == 1
    assert not any(task.done() for task in tasks)
    go.set()


async def test_one_users_replays_do_not_keep_another_from_joining(
    talks: list[ConversationRef],
    bobs: ConversationRef,
    alice: User,
    bob: User,
    join: Join,
    go: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_after, reading = reads.read_after, threading.Semaphore(0)

    def held(conversation: ConversationRef, *args: Any, **bounds: Any) -> list[EventEnvelope]:
        if conversation.owner_id == alice.pk:
            reading.release()
            assert go.wait(WAIT_S)
        return read_after(conversation, *args, **bounds)

    read_by_her = talks[: 2 * astore.READERS]
    for talk in read_by_her:
        await astore.call(writes.append, talk, [event()])
    monkeypatch.setattr(reads, "read_after", held)
    hers, his = [(await astore.call(ApiToken.issue, user.pk, "laptop"))[1] for user in (alice, bob)]
    sockets = [await join(talk, token=hers) for talk in read_by_her]
    assert await asyncio.to_thread(reading.acquire, timeout=WAIT_S)
    reader = await join(bobs, token=his)
    assert len(await reader.replayed()) == 1
    go.set()
    for socket in sockets:
        assert len(await socket.replayed()) == 1


@pytest.mark.parametrize("follow", ["false", "true"])
async def test_the_state_that_a_join_shows_is_read_in_its_users_share(
    bobs: ConversationRef, bob: User, join: Join, monkeypatch: pytest.MonkeyPatch, follow: str
) -> None:
    token = (await astore.call(ApiToken.issue, bob.pk, "laptop"))[1]
    reading, states, counts = astore.database()._reading, status.states, list[bool]()

    def noted(rows: ConversationQuerySet) -> dict[int, status.ConversationState]:
        counts.append(reading.is_used_up(bob.pk, astore.READERS // 2))
        return states(rows)

    monkeypatch.setattr(status, "states", noted)
    reader = await join(bobs, token=token, follow=follow)
    await reader.until("hello")
    assert counts == [True]


async def test_one_users_changes_leave_a_thread_to_others(
    talks: list[ConversationRef],
    bobs: ConversationRef,
    tasks: list[asyncio.Task[Any]],
    go: threading.Event,
) -> None:
    def hold(conversation: ConversationRef) -> bool:
        return go.wait(2 * WAIT_S)

    def pk_of(conversation: ConversationRef) -> int:
        return conversation.pk

    tasks += [asyncio.create_task(astore.change(hold, talk)) for talk in talks]
    await asyncio.sleep(0)
    async with asyncio.timeout(WAIT_S):
        assert await astore.change(pk_of, bobs) == bobs.pk
    go.set()


async def test_a_thread_is_taken_until_it_ends_also_if_nobody_waits_for_it_any_more(
    talks: list[ConversationRef], bobs: ConversationRef, go: threading.Event
) -> None:
    def hold(conversation: ConversationRef) -> bool:
        return go.wait(2 * WAIT_S)

    for talk in talks:
        leaving = asyncio.create_task(astore.call(hold, talk))
        await asyncio.sleep(0.01)
        leaving.cancel()
    async with asyncio.timeout(WAIT_S):
        assert len(await astore.read_after(bobs, -1)) == 1
    go.set()


@on_postgresql
async def test_one_users_locked_conversations_leave_a_thread_to_the_locked_ones_of_others(
    talks: list[ConversationRef], bobs: ConversationRef
) -> None:
    with ExitStack() as locks:
        for talk in talks[: 2 * astore.CONTENDED]:
            locks.enter_context(locked_elsewhere(talk))
        lock = locked_elsewhere(bobs)
        outside = lock.__enter__()
        hers: Sequence[asyncio.Future[Any]] = [
            astore.append_soon(talk, [event()]) for talk in talks[: 2 * astore.CONTENDED]
        ]
        await astore.append(talks[-1], [event()])  # by now they lag behind
        his = astore.append_soon(bobs, [event()])
        await astore.append(talks[-1], [event()])
        outside.commit()
        async with asyncio.timeout(WAIT_S):
            assert [each.seq for each in await his] == [1]
        assert not any(each.done() for each in hers)
        lock.__exit__(None, None, None)
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*hers)
