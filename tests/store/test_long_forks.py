"""Forks of long logs: copied in short transactions, by any process, and hidden until they are whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations import access
from conversations.domain_events import DomainEvent
from conversations.exceptions import ConversationNotFound, ForkUnfinished
from conversations.log import writes
from conversations.log.append import chain
from conversations.models import Conversation, ConversationRef, Event, Purge, UnfinishedFork
from conversations.store import ConversationExists, copying, creation, forks, purging
from conversations.store.copying import Progress
from sessions_app import astore, background
from sessions_app.models import RecordedChange
from sessions_app.retention import user_deletions
from sessions_app.retention.failures import RetentionFailures
from sessions_app.webhooks import transport
from tests.support.data.events import event
from tests.support.people.scripted_agent import until

pytestmark = pytest.mark.no_second_try

EVENTS = 7


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "AT_ONCE_EVENTS", 3)
    monkeypatch.setattr(copying, "STEP_EVENTS", 2)


@pytest.fixture
def source(alice: User) -> ConversationRef:
    """A conversation with some messages."""
    ref = creation.create(alice, conversation_id="source", title="Source")
    writes.append(ref, [event(f"text {number}", event_id=f"e{number}") for number in range(EVENTS)])
    return ref


@pytest.fixture
def begun(alice: User, source: ConversationRef) -> ConversationRef:
    """A fork of all of it, of which nothing is copied yet."""
    return forks.fork(alice, source, conversation_id="fork", title="Fork")


def columns_of(conversation: ConversationRef) -> list[dict[str, Any]]:
    rows = Event.objects.of(conversation).oldest_first().values()
    return [{**row, "id": None, "conversation_id": None} for row in rows]


def test_a_long_fork_is_copied_in_steps_and_is_like_any_other_at_the_end(
    alice: User, source: ConversationRef, begun: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [copying.progress(begun)]
    while copying.step(begun.pk):
        seen.append(copying.progress(begun))
    assert seen == [Progress(count, EVENTS) for count in (0, 2, 4, 6)]
    assert columns_of(begun) == columns_of(source)
    monkeypatch.setattr(forks, "AT_ONCE_EVENTS", 1_000)
    at_once = forks.fork(alice, source, title="Fork")
    own = ("id", "public_id", "created_at", "updated_at", "listed_at", "listed_in")
    first, second = (
        {name: value for name, value in row.items() if name not in own}
        for row in Conversation.objects.filter(pk__in=[begun.pk, at_once.pk]).values()
    )
    assert first == second
    assert not UnfinishedFork.objects.exists()


def test_what_is_copied_so_far_is_always_a_log_that_proves_itself(begun: ConversationRef) -> None:
    is_left = True
    while is_left:
        is_left = copying.step(begun.pk)
        digest, count = "", 0
        for row in Event.objects.of(begun).oldest_first():
            digest = chain(digest, seq=row.seq, event_id=row.event_id, payload=row.payload)
            count += 1
        stored = Conversation.objects.get(pk=begun.pk)
        assert (stored.head_digest, stored.next_seq) == (digest, count)


def test_an_unfinished_fork_is_hidden_and_its_owner_is_told_how_far_it_is(
    alice: User, bob: User, begun: ConversationRef
) -> None:
    copying.step(begun.pk)
    assert not Conversation.objects.visible_to(alice).filter(pk=begun.pk).exists()
    assert not Conversation.objects.deleted().exists()
    for ask in (access.readable, access.writable, access.validator().validate):
        with pytest.raises(ForkUnfinished, match="2 of 7 events are here"):
            ask(alice, "fork")
        with pytest.raises(ConversationNotFound):
            ask(bob, "fork")
    with pytest.raises(ConversationExists, match="still being copied"):
        creation.create(alice, conversation_id="fork")


def test_endpoints_hear_of_a_fork_when_it_is_whole(alice: User, source: ConversationRef) -> None:
    transport.create("http://localhost:1", flush_delay_s=0.0)
    begun = forks.fork(alice, source)
    changes = RecordedChange.objects.filter(conversation_id=begun.pk, kind=DomainEvent.CREATED)
    while copying.step(begun.pk):
        assert not changes.exists()
    assert changes.count() == 1


def test_a_step_ends_with_the_event_that_makes_it_long(
    begun: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PAGE_MAX_BYTES", 1)
    copying.step(begun.pk)
    assert copying.progress(begun) == Progress(1, EVENTS)


def test_each_step_costs_the_same_statements(begun: ConversationRef) -> None:
    costs = []
    for _ in range(3):
        with CaptureQueriesContext(connection) as queries:
            copying.step(begun.pk)
        costs.append(len(queries))
    assert len(set(costs)) == 1
    assert costs[0] <= 10


def test_a_fork_is_taken_by_one_process_and_by_another_once_that_is_silent(begun: ConversationRef) -> None:
    assert (copying.take([]), copying.take([]), copying.take([begun.pk])) == ([begun.pk], [], [begun.pk])
    long_ago = timezone.now() - timedelta(seconds=2 * copying.LEASE_S)
    for moment in (long_ago, timezone.now() + timedelta(hours=1)):
        UnfinishedFork.objects.update(touched_at=moment)
        assert copying.take([]) == [begun.pk]


def test_a_fork_whose_source_is_removed_meanwhile_is_removed_too(
    source: ConversationRef, begun: ConversationRef
) -> None:
    copying.step(begun.pk)
    purge = purging.begin(source, among=Conversation.objects.all(), requested_by="alice", reason="")
    assert purge is not None
    with transaction.atomic():
        purging.remove_events(purge)
    assert copying.step(begun.pk) is False
    (left,) = Purge.objects.unfinished().filter(conversation_id=begun.pk)
    with transaction.atomic():
        purging.remove_events(left)
    assert not Event.objects.of(begun).exists()
    assert copying.progress(begun) is None


def test_an_unfinished_fork_of_a_deleted_person_is_removed(bob: User) -> None:
    source = creation.create(bob, conversation_id="source")
    writes.append(source, [event(f"text {number}") for number in range(EVENTS)])
    begun = forks.fork(bob, source)
    copying.step(begun.pk)
    user_deletions.begin(bob, requested_by="alice")
    user_deletions.go_on(9, RetentionFailures())
    assert not copying.step(begun.pk)
    assert Purge.objects.unfinished().filter(conversation_id=begun.pk).exists()


async def test_a_long_fork_is_copied_in_the_background(
    live: None, alice: User, begun: ConversationRef
) -> None:
    background.start()
    await until(lambda: Conversation.objects.active().filter(pk=begun.pk, next_seq=EVENTS).exists())


async def test_a_fork_that_cannot_be_copied_keeps_no_other_from_it(
    live: None, alice: User, source: ConversationRef, begun: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await astore.call(forks.fork, alice, source, conversation_id="other", title="Other")
    step = copying.step

    def failing(pk: int) -> None:
        if UnfinishedFork.objects.filter(pk=pk, conversation_id=begun.pk).exists():
            raise DatabaseError("this fork cannot be copied")
        step(pk)

    monkeypatch.setattr(copying, "step", failing)
    background.start()
    await until(lambda: Conversation.objects.active().filter(pk=other.pk, next_seq=EVENTS).exists())
    monkeypatch.setattr(copying, "step", step)
    await until(lambda: Conversation.objects.active().filter(pk=begun.pk, next_seq=EVENTS).exists())
