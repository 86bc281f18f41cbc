"""Appends that share a commit: each caller gets its own answer, whatever happens to the others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from channels.layers import get_channel_layer
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from psycopg.errors import (
    DeadlockDetected,
    DiskFull,
    IoError,
    OutOfMemory,
    ProgramLimitExceeded,
    QueryCanceled,
)

import conversations.log.append
from conversations import live
from conversations.events import Appended
from conversations.exceptions import ConversationBusy, ConversationError, EventConflict
from conversations.log import writes
from conversations.log.append import AppendOutcome, AppendRequest
from conversations.models import ConversationRef, Event
from conversations.store import creation
from sessions_app import astore, connected_threads
from sessions_app.capacity import append_queue
from tests.conftest import Join, on_postgresql
from tests.support.data.events import event, payload
from tests.support.people.clients import WAIT_S, database_url

pytestmark = [pytest.mark.usefixtures("live"), pytest.mark.no_second_try]

COUNT = 50


class Scripted:
    """The commits of the server: a test watches, holds up or breaks them."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        """How many requests each call brought."""
        self.before: list[Any] = []
        """What to call before each of the first calls."""
        self.after: list[Any] = []
        """What to call after each of the first calls was committed."""
        self._append_many = writes.append_many

    def append_many(
        self, requests: Sequence[AppendRequest], *, wait: bool = False
    ) -> list[AppendOutcome | ConversationError]:
        """Append, with what the test wants to happen around it."""
        self.batches.append(len(requests))
        if self.before:
            self.before.pop(0)()
        outcomes = self._append_many(requests, wait=wait)
        if self.after:
            self.after.pop(0)()
        return outcomes


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Let the server append as a test wants."""
    script = Scripted()
    monkeypatch.setattr(writes, "append_many", script.append_many)
    return script


@pytest.fixture
def talks(alice: User) -> list[ConversationRef]:
    return [creation.create(alice) for _ in range(COUNT)]


@contextmanager
def locked_elsewhere(conversation: ConversationRef) -> Iterator[psycopg.Connection]:
    """Hold a conversation's lock in a transaction of another program, until that is committed."""
    with psycopg.connect(database_url()) as outside:
        outside.execute(
            "SELECT 1 FROM conversations_conversation WHERE id = %s FOR UPDATE", [conversation.pk]
        )
        yield outside


@pytest.fixture
def spared(database: None) -> int:
    """The connection of the tests themselves, by the number of its server process."""
    connection.ensure_connection()
    return int(connection.connection.info.backend_pid)


def leave_idle(count: int) -> None:
    """Leave so many connections in the pool."""
    all_open = threading.Barrier(count)

    def use() -> None:
        connection.ensure_connection()
        all_open.wait(WAIT_S)
        connection.close()

    with ThreadPoolExecutor(count) as threads:
        for used in [threads.submit(use) for _ in range(count)]:
            used.result()


def break_connection() -> None:
    raise OperationalError("server closed the connection unexpectedly")


async def seqs_of(*appends: asyncio.Future[list[Appended]]) -> list[int]:
    async with asyncio.timeout(WAIT_S):
        return [each.seq for appended in await asyncio.gather(*appends) for each in appended]


async def log_of(conversation: ConversationRef) -> list[tuple[int, str]]:
    """Return the seqs and ids of what is stored."""
    rows = Event.objects.of(conversation).oldest_first().values_list("seq", "event_id")
    return await astore.call(lambda: list(rows))


async def test_what_arrives_while_a_commit_runs_shares_the_next_one(
    talks: list[ConversationRef], scripted: Scripted
) -> None:
    begun, gate = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(begun.set)
        gate.wait(WAIT_S)

    scripted.before.append(hold)
    first = astore.append_soon(talks[0], [event()])
    await begun.wait()
    others = [astore.append_soon(talk, [event()]) for talk in talks[1:]]
    gate.set()
    assert await seqs_of(first, *others) == [0] * COUNT
    assert scripted.batches == [1, COUNT - 1]


async def test_a_batch_is_bounded(
    conversation: ConversationRef, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_queue, "BATCH_MAX_EVENTS", 8)
    appends = [astore.append_soon(conversation, [event(), event()]) for _ in range(10)]
    assert await seqs_of(*appends) == list(range(20))
    assert scripted.batches == [4, 4, 2]


async def test_appends_of_one_caller_keep_their_order(conversation: ConversationRef) -> None:
    appends = [astore.append_soon(conversation, [event()]) for _ in range(200)]
    assert await seqs_of(*appends) == list(range(200))


@on_postgresql
async def test_a_locked_conversation_holds_up_no_other_and_keeps_its_order(
    talks: list[ConversationRef],
) -> None:
    locked, others = talks[20], talks[:20] + talks[21:]
    with locked_elsewhere(locked) as outside:
        appends = {talk.pk: astore.append_soon(talk, [event()]) for talk in talks}
        assert await seqs_of(*(appends[talk.pk] for talk in others)) == [0] * (COUNT - 1)
        later = [astore.append_soon(locked, [event()]) for _ in range(5)]
        assert await seqs_of(astore.append_soon(others[0], [event()])) == [1]
        assert not any(append.done() for append in (appends[locked.pk], *later))
        outside.commit()
        assert await seqs_of(appends[locked.pk], *later) == [0, 1, 2, 3, 4, 5]


@on_postgresql
async def test_a_conversation_that_stays_locked_is_reported_busy(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations.log.append, "LOCK_TIMEOUT_S", 1)
    with locked_elsewhere(conversation), pytest.raises(ConversationBusy, match="Try again"):
        await astore.append(conversation, [event()])
    assert await seqs_of(astore.append_soon(conversation, [event()])) == [0]


@on_postgresql
async def test_those_who_have_waited_with_one_in_vain_are_refused_with_it(
    conversation: ConversationRef, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations.log.append, "LOCK_TIMEOUT_S", 1)
    with locked_elsewhere(conversation):
        appends = [astore.append_soon(conversation, [event()]) for _ in range(COUNT)]
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ConversationBusy}
    assert scripted.batches == [COUNT, 1]
    assert await seqs_of(astore.append_soon(conversation, [event()])) == [0]


async def test_what_waits_for_one_conversation_holds_up_no_reader_and_no_other_change(
    talks: list[ConversationRef],
) -> None:
    go = threading.Event()

    def wait(conversation: ConversationRef) -> bool:
        return go.wait(WAIT_S)

    def pk_of(conversation: ConversationRef) -> int:
        return conversation.pk

    locked, other = talks[:2]
    waiting = [asyncio.create_task(astore.change(wait, locked)) for _ in range(2 * astore.CHANGERS)]
    await asyncio.sleep(0)
    async with asyncio.timeout(WAIT_S):
        assert await astore.change(pk_of, other) == other.pk
        assert await astore.call(pk_of, other) == other.pk
    assert not any(task.done() for task in waiting)
    go.set()
    assert all(await asyncio.gather(*waiting))


@on_postgresql
async def test_order_is_kept_when_a_lock_is_freed_while_a_failed_batch_is_tried_one_by_one(
    talks: list[ConversationRef],
) -> None:
    locked, failing = talks[:2]
    tries: list[int] = []
    with locked_elsewhere(locked) as outside:

        def also(appended: Sequence[Appended]) -> None:
            tries.append(len(tries))
            if len(tries) == 2:  # alone now, between the two that found the conversation locked
                outside.commit()
            raise ConversationError("This one fails.")

        first = astore.append_soon(locked, [event()])
        failed = astore.append_soon(failing, [event()], also=also)
        second = astore.append_soon(locked, [event()])
        with pytest.raises(ConversationError, match="This one fails"):
            await failed
        assert await seqs_of(first, second) == [0, 1]


async def test_a_conflict_is_told_to_its_caller_alone(talks: list[ConversationRef]) -> None:
    await astore.call(writes.append, talks[20], [event("a", event_id="taken")])
    bad = event("b", event_id="taken")
    appends = [
        astore.append_soon(talk, [bad if number == 20 else event()]) for number, talk in enumerate(talks)
    ]
    with pytest.raises(EventConflict):
        await appends.pop(20)
    assert await seqs_of(*appends) == [0] * (COUNT - 1)


async def test_what_also_raises_is_told_to_its_caller_alone(talks: list[ConversationRef]) -> None:
    def fail(appended: Sequence[Appended]) -> None:
        raise LookupError("nothing there")

    appends = [
        astore.append_soon(talk, [event()], also=fail if number == 20 else None)
        for number, talk in enumerate(talks)
    ]
    with pytest.raises(LookupError, match="nothing there"):
        await appends.pop(20)
    assert await seqs_of(*appends) == [0] * (COUNT - 1)
    assert await astore.call(Event.objects.count) == COUNT - 1


async def test_each_caller_gets_its_own_error(talks: list[ConversationRef]) -> None:
    def failing(number: int) -> Any:
        def also(appended: Sequence[Appended]) -> None:
            raise ConversationError(f"error {number}")

        return also

    appends = [astore.append_soon(talk, [event()], also=failing(number)) for number, talk in enumerate(talks)]
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == [f"error {number}" for number in range(COUNT)]


@on_postgresql
async def test_an_append_whose_connection_was_killed_is_stored_once(conversation: ConversationRef) -> None:
    killed: list[int] = []

    def kill_once(appended: Sequence[Appended]) -> None:
        if not killed:
            connection.ensure_connection()
            killed.append(connection.connection.info.backend_pid)
            with psycopg.connect(database_url()) as outside:
                outside.execute("SELECT pg_terminate_backend(%s, 5000)", killed)

    appended = astore.append_soon(conversation, [event(event_id="a")], also=kill_once)
    assert await seqs_of(appended) == [0]
    assert len(killed) == 1
    assert await log_of(conversation) == [(0, "a")]


@on_postgresql
async def test_appends_go_on_after_the_database_dropped_every_connection(
    talks: list[ConversationRef], spared: int
) -> None:
    leave_idle(8)
    await seqs_of(astore.append_soon(talks[0], [event()]))
    with psycopg.connect(database_url(), autocommit=True) as outside:
        outside.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid NOT IN (pg_backend_pid(), %s)",
            [spared],
        )
    assert await seqs_of(*(astore.append_soon(talk, [event()]) for talk in talks)) == [1] + [0] * (COUNT - 1)


async def test_an_append_that_was_committed_although_the_connection_broke_is_stored_once(
    conversation: ConversationRef, scripted: Scripted
) -> None:
    scripted.after.append(break_connection)
    assert await seqs_of(astore.append_soon(conversation, [event(event_id="a")])) == [0]
    assert scripted.batches == [1, 1]
    assert await log_of(conversation) == [(0, "a")]


async def test_an_append_that_cannot_be_stored_fails_and_the_next_is_tried_anew(
    conversation: ConversationRef, scripted: Scripted
) -> None:
    scripted.before += [break_connection] * connected_threads.TRIES
    with pytest.raises(OperationalError):
        await astore.append(conversation, [event()])
    assert await seqs_of(astore.append_soon(conversation, [event()])) == [0]


def failing_by(cause: Exception) -> Callable[[], None]:
    """Return a function that fails as Django does for this error of a driver."""

    def fail() -> None:
        raise OperationalError(str(cause)) from cause

    return fail


async def outcomes_of(talks: Sequence[ConversationRef]) -> list[type[object]]:
    """Return the types of what is answered to an append to each, all at once."""
    appends = [astore.append_soon(talk, [event()]) for talk in talks]
    async with asyncio.timeout(WAIT_S):
        return [type(each) for each in await asyncio.gather(*appends, return_exceptions=True)]


@pytest.mark.parametrize("cause", [DiskFull(), OutOfMemory(), QueryCanceled()], ids=repr)
async def test_a_batch_whose_connection_did_not_break_is_tried_once(
    talks: list[ConversationRef], scripted: Scripted, cause: Exception
) -> None:
    scripted.before.append(failing_by(cause))
    assert await outcomes_of(talks[:3]) == [OperationalError] * 3
    assert scripted.batches == [3]


async def test_a_batch_whose_connection_broke_is_repeated_as_a_whole(
    talks: list[ConversationRef], scripted: Scripted
) -> None:
    scripted.before += [break_connection] * connected_threads.TRIES
    assert await outcomes_of(talks[:3]) == [OperationalError] * 3
    assert scripted.batches == [3] * connected_threads.TRIES


def damaged_page() -> Exception:
    """Return SQLite's error for a page that it cannot read."""
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


@pytest.mark.parametrize(
    "cause", [damaged_page(), IoError(), ProgramLimitExceeded(), DeadlockDetected()], ids=repr
)
async def test_a_batch_that_one_append_may_have_failed_is_tried_one_by_one(
    talks: list[ConversationRef], scripted: Scripted, cause: Exception
) -> None:
    scripted.before += [failing_by(cause)] * connected_threads.TRIES
    assert await outcomes_of(talks[:3]) == [list] * 3
    assert scripted.batches == [3] * connected_threads.TRIES + [1] * 3


async def test_the_append_of_a_cancelled_caller_is_stored_all_the_same(
    conversation: ConversationRef, scripted: Scripted
) -> None:
    begun, gate = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(begun.set)
        gate.wait(WAIT_S)

    scripted.before.append(hold)
    caller = asyncio.create_task(astore.append(conversation, [event(event_id="a")]))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gate.set()
    assert await seqs_of(astore.append_soon(conversation, [event(event_id="b")])) == [1]
    assert await log_of(conversation) == [(0, "a"), (1, "b")]


async def test_a_future_that_is_cancelled_itself_hurts_nobody(conversation: ConversationRef) -> None:
    first, second = (astore.append_soon(conversation, [event()]) for _ in range(2))
    first.cancel()
    assert await seqs_of(second) == [1]


async def test_closing_finishes_what_was_queued(talks: list[ConversationRef]) -> None:
    appends = [astore.append_soon(talk, [event()]) for talk in talks]
    await astore.close()
    assert [append.done() for append in appends] == [True] * COUNT
    assert await seqs_of(*appends) == [0] * COUNT


@on_postgresql
async def test_closing_waits_for_a_locked_conversation(talks: list[ConversationRef]) -> None:
    with locked_elsewhere(talks[0]) as outside:
        late = astore.append_soon(talks[0], [event()])
        await seqs_of(astore.append_soon(talks[1], [event()]))
        closing = asyncio.create_task(astore.close())
        await asyncio.sleep(0)
        outside.commit()
        await closing
    assert late.done()
    assert await seqs_of(late) == [0]


async def test_a_hint_that_cannot_be_sent_fails_no_append(
    hints_by_layer: None, conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*arguments: Any) -> None:
        raise ConnectionError("the hint channel is down")

    monkeypatch.setitem(vars(get_channel_layer()), "group_send", fail)
    socket = await join(conversation)
    await socket.send(f'{{"type": "event", "id": "a", "event": {payload()}}}')
    assert (await socket.until("ack", id="a"))["seq"] == 0
    assert await seqs_of(astore.append_soon(conversation, [event()])) == [1]
    (appended,) = await astore.call(writes.append, conversation, [event()])
    assert appended.seq == 2


async def test_a_hint_channel_that_hangs_holds_up_no_append(
    hints_by_layer: None, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*arguments: Any) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setitem(vars(get_channel_layer()), "group_send", hang)
    assert await seqs_of(*(astore.append_soon(conversation, [event()]) for _ in range(3))) == [0, 1, 2]
    (appended,) = await astore.call(writes.append, conversation, [event()])
    assert appended.seq == 3


async def test_hints_of_one_group_are_sent_one_after_the_other_and_those_of_another_beside_them(
    hints_by_layer: None, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, int]] = []
    go, other, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def send(group: str, hint: Any) -> None:
        if group == "slow":
            await go.wait()
        sent.append((group, hint["number"]))
        if group == "quick":
            other.set()
        if len(sent) == 4:
            done.set()

    monkeypatch.setitem(vars(get_channel_layer()), "group_send", send)
    for number in range(3):
        live.announce("slow", {"kind": "polled", "number": number})
    live.announce("quick", {"kind": "polled", "number": 9})
    await asyncio.wait_for(other.wait(), WAIT_S)
    go.set()
    await asyncio.wait_for(done.wait(), WAIT_S)
    assert sent == [("quick", 9), ("slow", 0), ("slow", 1), ("slow", 2)]


@on_postgresql
async def test_appends_go_on_after_a_column_has_got_another_type(conversation: ConversationRef) -> None:
    await astore.append(conversation, [event()])
    alter = "ALTER TABLE conversations_conversation ALTER COLUMN last_message TYPE "
    with psycopg.connect(database_url(), autocommit=True) as outside:
        outside.execute(alter + "text")
        try:
            await astore.append(conversation, [event()])
        finally:
            outside.execute(alter + "varchar(200)")
    await astore.append(conversation, [event()])
