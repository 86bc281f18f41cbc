"""A list that comes back is told of every change since, in whatever order clocks and commits went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from conversations import change_order
from conversations.cursors import KeyCursor
from conversations.log import writes
from conversations.models import Conversation, ConversationRef
from conversations.store import changes, creation, deletion
from sessions_app import astore
from sessions_app.live import drafts, marks
from sessions_app.live.drafts import Edit
from sessions_app.sockets.native import list_reader as native_list
from tests.conftest import Dial, on_postgresql
from tests.doors.native.test_list_socket import PATH, no_hints, opened, polled, quick_poll, shown_with
from tests.support.data.events import event
from tests.support.people.clients import Client, database_url

__all__ = ["no_hints", "quick_poll"]

pytestmark = pytest.mark.no_second_try

HOUR = timedelta(hours=1)
THOUGHT = '{"action": "think", "source": "agent", "args": {"thought": "Hm."}}'
ELSEWHERE = 2**62
"""A number that a server gave which has seen very many changes."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], Any]:
    """Let the clock stand still at a moment for a while."""

    @contextmanager
    def standing(moment: datetime) -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(timezone, "now", lambda: moment)
            yield

    return standing


async def cursor_of(dial: Dial) -> str:
    """Return where a list stands that is opened and left now."""
    client = await dial(PATH)
    cursor: str = (await client.receive())["cursor"]
    await client.leave()
    return cursor


async def shown_since(dial: Dial, cursor: str, user: User) -> list[dict[str, Any]]:
    """Return what a list that comes back is shown, up to a change that is made after that."""
    client = await dial(PATH, query={"since": cursor})
    await client.until("hello")
    await astore.call(lambda: Conversation.objects.create(owner=user, public_id="the last"))
    await astore.call(drafts.write, user.pk, None, Edit(text="", images=[], version=0))
    await client.until("draft", conversation=None)
    return client.frames


def titles(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["conversation"]["title"] for frame in frames if frame["type"] == "conversation"]


def by_hand(statement: str) -> bytes:
    """Return a statement that changes a conversation's title as of a minute ago."""
    return (
        f"UPDATE conversations_conversation SET listed_at = now() - interval '1 minute', {statement}".encode()
    )


# Clocks


def write_draft(conversation: ConversationRef) -> object:
    return drafts.write(conversation.owner_id, conversation, Edit(text="", images=[], version=0))


CHANGES: dict[str, Callable[[ConversationRef], object]] = {
    "title": lambda conversation: changes.retitle(conversation, "changed"),
    "message": lambda conversation: writes.append(conversation, [event("changed")]),
    "deletion": lambda conversation: deletion.soft_delete(conversation),
    "mark": lambda conversation: marks.mark(conversation.owner_id, conversation, pinned=True),
    "draft": write_draft,
}


def is_changed(frame: dict[str, Any]) -> bool:
    """Say whether a frame tells of one of CHANGES."""
    if frame["type"] == "draft":
        return bool(frame["conversation"] == "talk")
    state = frame.get("conversation", {})
    said = "changed" in (state.get("title"), state.get("last_message"))
    return bool(said or state.get("deleted") or state.get("pinned"))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_under_a_clock_that_has_jumped_back_is_told(
    conversation: ConversationRef,
    alice: User,
    dial: Dial,
    clock: Callable[[datetime], Any],
    change: Callable[[ConversationRef], object],
) -> None:
    cursor = await cursor_of(dial)
    with clock(timezone.now() - HOUR):
        await astore.call(change, conversation)
    assert any(map(is_changed, await shown_since(dial, cursor, alice)))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_at_the_same_moment_as_the_one_before_is_told(
    alice: User, dial: Dial, clock: Callable[[datetime], Any], change: Callable[[ConversationRef], object]
) -> None:
    with clock(timezone.now()):
        conversation = await astore.call(lambda: creation.create(alice, conversation_id="talk"))
        cursor = await cursor_of(dial)
        await astore.call(change, conversation)
    assert any(map(is_changed, await shown_since(dial, cursor, alice)))


async def test_a_message_of_a_conversation_that_another_clock_has_put_ahead_is_told(
    conversation: ConversationRef, alice: User, dial: Dial, clock: Callable[[datetime], Any]
) -> None:
    now = timezone.now() + HOUR
    await astore.call(lambda: Conversation.objects.update(listed_at=now))
    cursor = await cursor_of(dial)
    with clock(now):
        await astore.call(writes.append, conversation, [event("changed")])
    assert any(map(is_changed, await shown_since(dial, cursor, alice)))


async def test_a_lost_hint_of_a_change_under_a_clock_that_has_jumped_back_costs_one_poll(
    quick_poll: None,
    no_hints: None,
    conversation: ConversationRef,
    dial: Dial,
    clock: Callable[[datetime], Any],
) -> None:
    client = await opened(dial)
    with clock(timezone.now() - HOUR):
        await astore.call(changes.retitle, conversation, "changed")
    await shown_with(client, title="changed")


# Commits


@on_postgresql
async def test_a_change_that_was_begun_before_the_cursor_and_committed_after_it_is_told(
    conversation: ConversationRef, alice: User, dial: Dial
) -> None:
    other = await astore.call(lambda: creation.create(alice, conversation_id="other"))
    with psycopg.connect(database_url()) as late:
        late.execute(by_hand("title = 'late' WHERE public_id = 'talk'"))
        await astore.call(changes.retitle, other, "early")
        cursor = await cursor_of(dial)
    assert "late" in titles(await shown_since(dial, cursor, alice))


@on_postgresql
async def test_a_change_by_a_transaction_that_began_before_another_change_of_the_same_conversation_is_told(
    conversation: ConversationRef, alice: User, dial: Dial
) -> None:
    with psycopg.connect(database_url()) as late:
        late.execute("SELECT pg_current_xact_id()")
        await astore.call(changes.retitle, conversation, "early")
        cursor = await cursor_of(dial)
        late.execute(by_hand("title = 'late' WHERE public_id = 'talk'"))
    assert "late" in titles(await shown_since(dial, cursor, alice))


@on_postgresql
async def test_a_draft_that_was_begun_before_the_cursor_and_committed_after_it_is_told(
    conversation: ConversationRef, alice: User, dial: Dial
) -> None:
    await astore.call(write_draft, conversation)
    with psycopg.connect(database_url()) as late:
        late.execute(
            "UPDATE sessions_app_draft SET version = 2, updated_at = now() - interval '1 minute', "
            "written_in = pg_current_xact_id()::text::bigint"
        )
        await astore.call(changes.retitle, conversation, "early")
        cursor = await cursor_of(dial)
    assert {"type": "draft", "conversation": "talk", "version": 2} in await shown_since(dial, cursor, alice)


@on_postgresql
async def test_a_poll_finds_what_was_begun_before_the_last_poll_and_committed_after_it(
    quick_poll: None, no_hints: None, conversation: ConversationRef, alice: User, dial: Dial
) -> None:
    client = await opened(dial)
    with psycopg.connect(database_url()) as late:
        late.execute(by_hand("title = 'late' WHERE public_id = 'talk'"))
        await astore.call(lambda: creation.create(alice, conversation_id="other", title="early"))
        await shown_with(client, title="early")
        await polled(client, 2)
    await shown_with(client, title="late")


async def test_many_changes_of_one_transaction_are_shown_page_by_page_and_none_is_lost(
    alice: User, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_list, "PAGE_MAX", 2)
    cursor = await cursor_of(dial)
    rows = [Conversation(public_id=f"{n}", title=f"{n}", owner=alice) for n in range(5)]
    await astore.call(Conversation.objects.bulk_create, rows)
    assert titles(await shown_since(dial, cursor, alice))[:5] == [f"{n}" for n in range(5)]


ROWS, WRITERS = 4, 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, WRITERS - 1), st.integers(0, ROWS - 1)),
        st.tuples(st.sampled_from(["commit", "rollback"]), st.integers(0, WRITERS - 1), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 1), st.just(0)),
    ),
    max_size=25,
)


class Writers:
    """Transactions that change titles under clocks of their own, each row by one at a time."""

    def __init__(self, pks: list[int]) -> None:
        self._pks = pks
        self._connections = [connection.copy() for _ in range(WRITERS)]
        self._holding: dict[int, set[int]] = {}
        self._version = 0

    def change(self, writer: int, row: int) -> None:
        """Change a row, unless another transaction would have to end before."""
        others = [held for by, held in self._holding.items() if by != writer]
        if any(row in held for held in others) or (others and connection.vendor == "sqlite"):
            return
        if writer not in self._holding:
            self._connections[writer].set_autocommit(False)
            self._holding[writer] = set()
        self._holding[writer].add(row)
        self._version += 1
        moment = timezone.now() - (-1) ** self._version * HOUR
        with self._connections[writer].cursor() as cursor:
            cursor.execute(
                "UPDATE conversations_conversation SET title = %s, listed_at = %s WHERE id = %s",
                [str(self._version), moment, self._pks[row]],
            )

    def commit(self, writer: int, row: int) -> None:
        self._end(writer, self._connections[writer].commit)

    def rollback(self, writer: int, row: int) -> None:
        """Take back what a writer has changed."""
        self._end(writer, self._connections[writer].rollback)

    def close(self) -> None:
        """End all, some in the middle."""
        for each in self._connections:
            each.close()

    def _end(self, writer: int, end: Callable[[], None]) -> None:
        if self._holding.pop(writer, None) is not None:
            end()
            self._connections[writer].set_autocommit(True)


class Reader:
    """A list that comes back from time to time."""

    def __init__(self) -> None:
        self._settled = change_order.reach().settled
        self.titles = dict(Conversation.objects.values_list("pk", "title"))

    def come_back(self) -> None:
        """Read what changed since."""
        reach = change_order.reach()
        rows = Conversation.objects.changed_from(self._settled, 0, end=reach.end)
        self.titles |= dict(rows.values_list("pk", "title"))
        self._settled = reach.settled


# Whatever an example leaves behind, the next one begins with its readers there.
@hypothesis_settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
@example(steps=[("change", 0, 0), ("change", 1, 1), ("commit", 1, 0), ("read", 0, 0), ("commit", 0, 0)])
def test_whoever_reads_what_changed_since_has_all_that_is_committed(
    alice: User, steps: list[tuple[str, int, int]]
) -> None:
    rows = [Conversation.objects.get_or_create(owner=alice, public_id=f"row-{n}")[0] for n in range(ROWS)]
    writers, readers = Writers([row.pk for row in rows]), [Reader(), Reader()]
    try:
        for act, who, row in [*steps, ("read", 0, 0), ("read", 1, 0)]:
            if act == "read":
                readers[who].come_back()
                assert readers[who].titles == dict(Conversation.objects.values_list("pk", "title"))
            else:
                getattr(writers, act)(who, row)
    finally:
        writers.close()


# Cursors

cursors_move = pytest.mark.skipif(
    connection.vendor != "sqlite",
    reason="PostgreSQL holds cursors back while anybody's transaction is open, in other databases too",
)


@cursors_move
async def test_who_comes_back_is_told_the_new_cursor_when_all_was_shown(
    conversation: ConversationRef, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_list, "HEARTBEAT_S", 0.02)
    cursor = await cursor_of(dial)
    await astore.call(changes.retitle, conversation, "changed")
    client = await dial(PATH, query={"since": cursor})
    assert (await client.until("hello"))["cursor"] == cursor
    await until_cursor_is_beyond(client, cursor)
    assert "changed" in titles(client.frames)


async def until_cursor_is_beyond(client: Client, cursor: str) -> str:
    """Return the first cursor that the heartbeats bring which is another one."""
    while (newer := (await client.until("heartbeat"))["cursor"]) == cursor:
        pass
    return str(newer)


@cursors_move
async def test_a_heartbeat_brings_the_cursor_of_the_last_poll(
    quick_poll: None, alice: User, conversation: ConversationRef, dial: Dial
) -> None:
    client = await opened(dial)
    await astore.call(changes.retitle, conversation, "changed")
    cursor = await until_cursor_is_beyond(client, client.frames[0]["cursor"])
    await client.leave()
    await astore.call(changes.retitle, conversation, "changed again")
    assert "changed again" in titles(await shown_since(dial, cursor, alice))


async def test_a_page_goes_on_from_the_cursor_that_it_was_written_with(
    conversation: ConversationRef,
    alice: User,
    dial: Dial,
    rest: httpx.AsyncClient,
    clock: Callable[[datetime], Any],
) -> None:
    cursor = str((await rest.get("/")).text).partition(' data-cursor="')[2].partition('"')[0]
    with clock(timezone.now() - HOUR):
        await astore.call(changes.retitle, conversation, "changed")
    assert "changed" in titles(await shown_since(dial, cursor, alice))


async def test_a_cursor_beyond_all_changes_is_refused_and_what_follows_is_shown(
    conversation: ConversationRef, dial: Dial
) -> None:
    ahead = KeyCursor(ELSEWHERE).encode()
    client = await dial(PATH, query={"since": ahead})
    assert (await client.until("hello"))["cursor"] != ahead
    error = await client.until("error")
    assert (error["code"], error["id"]) == ("cursor_ahead", None)
    await astore.call(changes.retitle, conversation, "changed")
    await shown_with(client, title="changed")


async def test_numbers_that_another_server_gave_hide_no_change_and_are_not_shown_anew(
    conversation: ConversationRef, alice: User, dial: Dial
) -> None:
    await astore.call(lambda: creation.create(alice, conversation_id="other", title="other"))
    await astore.call(lambda: Conversation.objects.update(listed_in=ELSEWHERE))
    cursor = await cursor_of(dial)
    await astore.call(changes.retitle, conversation, "changed")
    found = titles(await shown_since(dial, cursor, alice))
    assert "changed" in found
    assert "other" not in found


def test_an_event_that_is_no_message_changes_no_list(conversation: ConversationRef) -> None:
    numbers = Conversation.objects.values_list("listed_in", flat=True)
    before = numbers.get()
    writes.append(conversation, [event(raw=THOUGHT)])
    assert numbers.get() == before
    writes.append(conversation, [event("said")])
    assert (numbers.get() or 0) > (before or 0)
