"""Appends of several users: who shares the next commit, and how much of one user's may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import Appended, ConversationRef
from conversations.exceptions import ConversationError, TooManyWaiting
from conversations.log import writes
from conversations.log.append import AppendOutcome, AppendRequest
from conversations.store import creation
from sessions_app import astore
from sessions_app.capacity import append_queue
from tests.conftest import Join, on_postgresql
from tests.support.data.events import event, payload
from tests.support.people.clients import WAIT_S

pytestmark = pytest.mark.usefixtures("live")

EVENTS_MAX = 50
BYTES_MAX = 256 * 1024
QUANTUM_BYTES = 8 * 1024
SOON_S = 0.1
"""What nothing holds up is done sooner."""


class FirstCommit:
    """The first commit, which is held up while others queue behind it; all are noted."""

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        """The conversations of the appends of each."""
        self._begun, self._go = threading.Event(), threading.Event()
        self._append_many = writes.append_many

    def append_many(
        self, requests: Sequence[AppendRequest], *, wait: bool = False
    ) -> list[AppendOutcome | ConversationError]:
        """Append once the test lets it."""
        self.commits.append([request.conversation.public_id for request in requests])
        self._begun.set()
        assert self._go.wait(WAIT_S)
        return self._append_many(requests, wait=wait)

    async def hold(self, conversation: ConversationRef) -> asyncio.Future[list[Appended]]:
        """Begin it with one event; return once it runs."""
        held = astore.append_soon(conversation, [event()])
        await self.begun()
        return held

    async def begun(self) -> None:
        """Wait until it runs."""
        assert await asyncio.to_thread(self._begun.wait, WAIT_S)

    def let_go(self) -> None:
        self._go.set()


@pytest.fixture
async def first(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FirstCommit]:
    """Hold up the server's first commit, and let it make small ones."""
    commit = FirstCommit()
    monkeypatch.setattr(astore, "WRITERS", 1)  # two divide the users between them
    monkeypatch.setattr(writes, "append_many", commit.append_many)
    monkeypatch.setattr(append_queue, "BATCH_MAX_EVENTS", EVENTS_MAX)
    monkeypatch.setattr(append_queue, "BATCH_MAX_BYTES", BYTES_MAX)
    monkeypatch.setattr(append_queue, "QUANTUM_BYTES", QUANTUM_BYTES)
    yield commit
    commit.let_go()


@pytest.fixture
def bobs(bob: User) -> ConversationRef:
    """An empty conversation of bob's."""
    return creation.create(bob, conversation_id="bobs")


@pytest.fixture
def talks(alice: User) -> list[ConversationRef]:
    """Ten conversations of alice's."""
    return [creation.create(alice) for _ in range(10)]


async def seqs_of(*appends: asyncio.Future[list[Appended]]) -> list[int]:
    async with asyncio.timeout(WAIT_S):
        return [each.seq for appended in await asyncio.gather(*appends) for each in appended]


async def test_an_append_without_events_waits_like_any_other(
    conversation: ConversationRef, first: FirstCommit
) -> None:
    held = await first.hold(conversation)
    empty = astore.append_soon(conversation, [])
    first.let_go()
    async with asyncio.timeout(WAIT_S):
        assert len(await held) == 1
        assert await empty == []


@pytest.mark.parametrize(
    ("count", "text"), [(20 * EVENTS_MAX, "small"), (20, "long" * (BYTES_MAX // 16))], ids=["many", "long"]
)
async def test_however_much_one_user_appends_anothers_event_is_in_the_next_commit(
    talks: list[ConversationRef], bobs: ConversationRef, first: FirstCommit, count: int, text: str
) -> None:
    held = await first.hold(talks[0])
    flood = [astore.append_soon(talks[number % len(talks)], [event(text)]) for number in range(count)]
    other = astore.append_soon(bobs, [event()])
    first.let_go()
    assert await seqs_of(held, other) == [0, 0]
    await seqs_of(*flood)
    assert "bobs" in first.commits[1]
    assert len(first.commits) > 4
    in_a_turn = 1 + QUANTUM_BYTES // (append_queue.EVENT_BYTES + len(text))
    assert len(first.commits[1]) <= in_a_turn + 1  # the other's, who does not wait for a full commit


@on_postgresql
async def test_anothers_event_is_committed_while_a_batch_is_being_written(
    conversation: ConversationRef, bobs: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, append_many = threading.Event(), threading.Event(), writes.append_many

    def held(requests: Sequence[AppendRequest], *, wait: bool = False) -> Any:
        if any(request.conversation.pk == conversation.pk for request in requests):
            begun.set()
            assert go.wait(WAIT_S)
        return append_many(requests, wait=wait)

    monkeypatch.setattr(writes, "append_many", held)
    first = astore.append_soon(conversation, [event()])
    assert await asyncio.to_thread(begun.wait, WAIT_S)
    second = astore.append_soon(conversation, [event()])
    try:
        assert await seqs_of(astore.append_soon(bobs, [event()])) == [0]
        assert not first.done()
    finally:
        go.set()
    assert await seqs_of(first, second) == [0, 1]


async def test_while_two_users_flood_each_has_about_half_of_every_commit(
    conversation: ConversationRef, bobs: ConversationRef, first: FirstCommit
) -> None:
    held = await first.hold(conversation)
    text = "x" * (BYTES_MAX // 32)
    flood = [astore.append_soon(conversation, [event(text)]) for _ in range(160)]
    flood += [astore.append_soon(bobs, [event(text)]) for _ in range(160)]
    first.let_go()
    await seqs_of(held, *flood)
    bytes_of_one = QUANTUM_BYTES + len(text)
    full = [commit for commit in first.commits[1:] if len(set(commit)) == 2]
    assert len(full) >= len(first.commits) - 4
    for commit in full:
        assert abs(commit.count("bobs") - commit.count("talk")) * len(text) <= 2 * bytes_of_one


async def test_a_batch_that_fills_a_commit_lets_others_go_first_and_is_stored_whole(
    conversation: ConversationRef, bobs: ConversationRef, first: FirstCommit
) -> None:
    held = await first.hold(conversation)
    batch = astore.append_soon(conversation, [event("x" * 1_000) for _ in range(4 * EVENTS_MAX)])
    others = [astore.append_soon(bobs, [event()]) for _ in range(3)]
    first.let_go()
    assert await seqs_of(held, batch) == list(range(4 * EVENTS_MAX + 1))
    assert await seqs_of(*others) == [0, 1, 2]
    assert first.commits == [["talk"], ["bobs"] * 3, ["talk"]]


async def test_what_comes_behind_a_batch_of_the_same_connection_stays_behind_it(
    conversation: ConversationRef, bobs: ConversationRef, first: FirstCommit
) -> None:
    held = await first.hold(conversation)
    batch = astore.append_soon(conversation, [event("x" * 1_000) for _ in range(4 * EVENTS_MAX)])
    small = astore.append_soon(conversation, [event()])
    other = astore.append_soon(bobs, [event()])
    first.let_go()
    assert await seqs_of(held, batch, small) == list(range(4 * EVENTS_MAX + 2))
    assert await seqs_of(other) == [0]


async def test_while_too_much_of_one_users_waits_none_of_their_sockets_is_read_on(
    talks: list[ConversationRef],
    bobs: ConversationRef,
    join: Join,
    first: FirstCommit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_queue, "USER_MAX_BYTES", 1)
    sockets = [await join(talk) for talk in talks]
    for socket in sockets:
        for name in ("a", "b"):
            await socket.send(f'{{"type": "event", "id": "{name}", "event": {payload()}}}')
    await first.begun()
    other = astore.append_soon(bobs, [event()])
    first.let_go()
    for socket in sockets:
        assert (await socket.until("ack", id="a"))["seq"] == 0
        assert (await socket.until("ack", id="b"))["seq"] == 1
    assert await seqs_of(other) == [0]
    hers = [[talk for talk in commit if talk != "bobs"] for commit in first.commits]
    assert max(map(len, hers)) == 1


async def test_a_request_waits_for_room_of_its_own_user_and_is_told_when_to_come_again(
    conversation: ConversationRef,
    bobs: ConversationRef,
    rest: httpx.AsyncClient,
    first: FirstCommit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_queue, "USER_MAX_BYTES", 1)
    monkeypatch.setattr(append_queue, "ROOM_WAIT_S", 0.05)
    held = await first.hold(conversation)
    path = f"/api/native/conversations/{conversation.public_id}/events"
    frame = f'{{"type": "event", "id": "late", "event": {payload()}}}'
    headers = {"content-type": "application/json"}
    refused = await rest.post(path, content=frame, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (503, "too_many_waiting")
    assert int(refused.headers["retry-after"]) > 0
    other = astore.append_soon(bobs, [event()])
    first.let_go()
    assert await seqs_of(held, other) == [0, 0]
    taken = await rest.post(path, content=frame, headers=headers)
    assert (taken.status_code, taken.json()["seq"]) == (200, 1)


async def test_those_who_wait_for_room_get_it_in_their_order_also_if_one_of_them_leaves(
    conversation: ConversationRef, bobs: ConversationRef, first: FirstCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_queue, "USER_MAX_BYTES", 1)
    monkeypatch.setattr(append_queue, "ROOM_WAIT_S", 0.01)
    held = await first.hold(conversation)
    order: list[int] = []

    async def append(number: int) -> None:
        await astore.room(conversation)
        order.append(number)
        await astore.append(conversation, [event()])

    waiting = []
    for number in range(4):
        waiting.append(asyncio.create_task(append(number)))
        await asyncio.sleep(0)
    await astore.room(bobs)  # which is another user's, and there at once
    waiting[1].cancel()
    with pytest.raises(TooManyWaiting, match="Wait"):
        await astore.room_soon(conversation)
    assert order == []
    first.let_go()
    await asyncio.gather(*waiting, return_exceptions=True)
    await held
    assert order == [0, 2, 3]


async def test_a_user_who_got_room_and_did_not_use_it_is_not_remembered(
    conversation: ConversationRef, first: FirstCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_queue, "USER_MAX_BYTES", 1)
    held = await first.hold(conversation)
    waiting = asyncio.create_task(astore.room(conversation))
    await asyncio.sleep(0)
    queue = astore.database().queue
    assert queue.users == 1
    first.let_go()
    await asyncio.gather(held, waiting)
    assert queue.users == 0
