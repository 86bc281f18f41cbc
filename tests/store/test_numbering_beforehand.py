"""Appends that are numbered before their transaction, so that others wait for the database alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from conversations.events import NewEvent
from conversations.exceptions import ConversationError, ConversationNotFound, EventConflict, Fenced
from conversations.log import append, writes
from conversations.log.append import AppendOutcome, AppendRequest, chain
from conversations.models import Conversation, ConversationRef, Event
from conversations.redaction.masking import MASK
from conversations.store import deletion
from tests.store.test_masking import TOKEN, keep, message, payloads
from tests.support.data.events import event

pytestmark = pytest.mark.no_second_try


def numbered(conversation: ConversationRef, *events: NewEvent, epoch: int | None = None) -> AppendRequest:
    return append.numbered(
        append.masked(AppendRequest(conversation=conversation, events=events, epoch=epoch))
    )


def stored(*requests: AppendRequest) -> list[AppendOutcome | ConversationError]:
    return writes.append_many(requests, wait=True)


def ids(conversation: ConversationRef) -> list[str]:
    """Return the ids in the order of the log, whose chain must hold."""
    digest, rows = "", Event.objects.filter(conversation=conversation.pk).order_by("seq")
    for seq, row in enumerate(rows):
        digest = chain(digest, seq=seq, event_id=row.event_id, payload=row.payload)
        assert (row.seq, row.digest) == (seq, digest)
    head = Conversation.objects.get(pk=conversation.pk)
    assert (head.next_seq, head.head_digest) == (len(rows), digest)
    return [row.event_id for row in rows]


def test_events_keep_the_places_that_they_were_given_before(conversation: ConversationRef) -> None:
    writes.append(conversation, [event(event_id="first")])
    asked = numbered(conversation, event(event_id="x"), event(event_id="y"))
    (outcome,) = stored(asked)
    assert isinstance(outcome, AppendOutcome)
    assert [(each.seq, each.is_new) for each in outcome.appended] == [(1, True), (2, True)]
    assert ids(conversation) == ["first", "x", "y"]
    assert asked.numbered is not None
    given = [row.received_at for row in asked.numbered.rows]
    assert list(Event.objects.filter(seq__gt=0).values_list("received_at", flat=True)) == given


def test_two_that_were_given_the_same_places_stand_one_behind_the_other(
    conversation: ConversationRef,
) -> None:
    one, other = numbered(conversation, event(event_id="x")), numbered(conversation, event(event_id="y"))
    assert all(isinstance(each, AppendOutcome) for each in stored(one, other))
    assert ids(conversation) == ["x", "y"]


def test_one_that_was_overtaken_is_numbered_again(conversation: ConversationRef) -> None:
    asked = numbered(conversation, event(event_id="x"), event(event_id="y"))
    writes.append(conversation, [event(event_id="between")])
    stored(asked)
    assert ids(conversation) == ["between", "x", "y"]


def test_one_that_is_stored_twice_stands_once(conversation: ConversationRef) -> None:
    asked = numbered(conversation, event(event_id="x"))
    stored(asked)
    (outcome,) = stored(asked)
    assert isinstance(outcome, AppendOutcome)
    assert [(each.seq, each.is_new) for each in outcome.appended] == [(0, False)]
    assert ids(conversation) == ["x"]


def test_a_secret_that_is_set_between_numbering_and_storing_is_masked(
    conversation: ConversationRef, alice: User
) -> None:
    asked = numbered(conversation, event(raw=message(TOKEN), event_id="x"))
    keep(alice, TOKEN)
    stored(asked)
    assert [TOKEN in each for each in payloads(conversation)] == [False]
    assert MASK in payloads(conversation)[0]
    assert ids(conversation) == ["x"]


def take_over(conversation: ConversationRef) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(loop_epoch=7)


def store_another(conversation: ConversationRef) -> None:
    writes.append(conversation, [event("other", event_id="x")])


@pytest.mark.parametrize(
    ("between", "refusal"),
    [(deletion.soft_delete, ConversationNotFound), (take_over, Fenced), (store_another, EventConflict)],
)
def test_what_happened_since_is_a_reason_to_refuse_it(
    conversation: ConversationRef,
    between: Callable[[ConversationRef], None],
    refusal: type[ConversationError],
) -> None:
    before = Event.objects.filter(conversation=conversation.pk)
    asked = numbered(conversation, event(event_id="x"), event(event_id="y"), epoch=0)
    assert asked.numbered is not None
    between(conversation)
    known = before.count()
    (outcome,) = stored(asked)
    assert isinstance(outcome, refusal)
    assert before.count() == known


def test_one_that_is_refused_beforehand_is_refused_in_its_transaction(conversation: ConversationRef) -> None:
    asked = numbered(conversation, event(event_id="x"), epoch=-1)
    assert asked.numbered is None
    assert isinstance(stored(asked)[0], Fenced)
