"""Masking of long events before the transaction that stores them, so that nobody else waits for it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection

from conversations.events import ConversationRef, NewEvent
from conversations.exceptions import ConversationBusy, InvalidEvent, MaskingDeferred
from conversations.log import append, writes
from conversations.log.append import AppendOutcome, AppendRequest
from conversations.redaction import secrets
from conversations.redaction.masking import MASK
from conversations.redaction.secrets import MaskedEvents
from conversations.store import creation
from sessions_app import astore
from tests.store.test_masking import TOKEN, keep, message, payloads
from tests.support.data.events import event

pytestmark = pytest.mark.no_second_try

OTHER = "another-secret-that-comes-later"
LONG = 20 * 1024


def long(event_id: str, *, chars: int = LONG) -> NewEvent:
    """Return an event that is too long to be masked under the lock, with both secrets."""
    return event(raw=message(f"{TOKEN} {OTHER}", more="x" * chars), event_id=event_id)


def request(conversation: ConversationRef, *events: NewEvent) -> AppendRequest:
    return AppendRequest(conversation=conversation, events=events, defers_masking=True)


def contents(conversation: ConversationRef) -> list[str]:
    return [json.loads(each)["args"]["content"] for each in payloads(conversation)]


def test_a_long_event_with_a_secret_is_not_masked_under_the_lock(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    asked = request(conversation, long("x"))
    (outcome,) = writes.append_many([asked])
    assert isinstance(outcome, MaskingDeferred)
    assert contents(conversation) == []
    (outcome,) = writes.append_many([append.masked(asked)])
    assert isinstance(outcome, AppendOutcome)
    assert contents(conversation) == [f"{MASK} {OTHER}"]


@pytest.mark.parametrize("chars", [LONG, 2 * 1024 * 1024])
def test_a_long_event_of_somebody_without_secrets_is_stored_at_once(
    conversation: ConversationRef, chars: int
) -> None:
    (outcome,) = writes.append_many([request(conversation, long("x", chars=chars))])
    assert isinstance(outcome, AppendOutcome)


def test_a_long_event_without_a_trace_of_a_secret_is_stored_at_once(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, "nowhere in this event")
    (outcome,) = writes.append_many([request(conversation, long("x"))])
    assert isinstance(outcome, AppendOutcome)


def test_many_short_events_with_secrets_are_not_all_masked_under_the_lock(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    others = [creation.create(alice) for _ in range(12)]
    outcomes = writes.append_many([request(each, long("x", chars=8 * 1024)) for each in others])
    assert 4 < sum(isinstance(each, AppendOutcome) for each in outcomes) < 12
    assert all(isinstance(each, AppendOutcome | MaskingDeferred) for each in outcomes)


def test_long_secrets_are_not_made_searchable_under_the_lock(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, "long" * secrets.BUILT_MAX_CHARS)
    asked = request(conversation, event("short"))
    assert isinstance(writes.append_many([asked])[0], MaskingDeferred)
    assert isinstance(writes.append_many([append.masked(asked)])[0], AppendOutcome)
    assert isinstance(writes.append_many([request(conversation, event("another"))])[0], AppendOutcome)


def test_what_follows_a_deferred_append_of_a_conversation_waits_with_it(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    outcomes = writes.append_many(
        [
            request(conversation, long("x")),
            request(conversation, event("short")),
            request(creation.create(alice), event("short")),
        ]
    )
    assert [isinstance(each, MaskingDeferred) for each in outcomes] == [True, True, False]


def test_a_secret_that_is_set_between_masking_and_storing_is_masked(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    asked = append.masked(request(conversation, long("x")))
    keep(alice, OTHER, name="LATER")
    assert isinstance(writes.append_many([asked])[0], MaskingDeferred)
    writes.append_many([append.masked(asked)])
    assert contents(conversation) == [f"{MASK} {MASK}"]


def test_a_caller_that_cannot_wait_gets_its_event_masked_under_the_lock(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    writes.append_many([AppendRequest(conversation=conversation, events=[long("x")])])
    assert contents(conversation) == [f"{MASK} {OTHER}"]


Masking = Callable[..., MaskedEvents]


@pytest.fixture
def around_masking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something after events were masked, before they are stored."""
    mask: Masking = secrets.masked_beforehand

    def around(then: Callable[[], object]) -> None:
        def masked(owner: int, conversation: int, events: list[NewEvent]) -> MaskedEvents:
            done = mask(owner, conversation, events)
            then()
            return done

        monkeypatch.setattr(secrets, "masked_beforehand", masked)

    return around


def test_the_stores_own_append_masks_outside_its_transaction(
    conversation: ConversationRef, alice: User, around_masking: Callable[[Callable[[], object]], None]
) -> None:
    keep(alice, TOKEN)
    inside: list[bool] = []
    around_masking(lambda: inside.append(connection.in_atomic_block))
    writes.append(conversation, [long("x")])
    assert (inside, contents(conversation)) == ([False], [f"{MASK} {OTHER}"])


async def test_others_store_while_a_long_event_is_masked_and_its_own_conversation_keeps_its_order(
    conversation: ConversationRef,
    alice: User,
    bob: User,
    around_masking: Callable[[Callable[[], object]], None],
    live: None,
) -> None:
    others = await astore.call(creation.create, bob)
    await astore.call(keep, alice, TOKEN)
    is_stored = threading.Event()
    around_masking(lambda: is_stored.wait(10))
    first = astore.append_soon(conversation, [long("x")])
    second = astore.append_soon(conversation, [event("short", event_id="y")])
    await astore.append(others, [event("bob's")])
    assert not first.done()
    is_stored.set()
    assert [(await each)[0].seq for each in (first, second)] == [0, 1]
    assert await astore.call(contents, conversation) == [f"{MASK} {OTHER}", "short"]


async def test_a_secret_set_while_a_long_event_is_masked_is_masked_in_it(
    conversation: ConversationRef,
    alice: User,
    around_masking: Callable[[Callable[[], object]], None],
    live: None,
) -> None:
    await astore.call(keep, alice, TOKEN)
    around_masking(lambda: keep(alice, OTHER, name="LATER"))
    await astore.append(conversation, [long("x")])
    assert await astore.call(contents, conversation) == [f"{MASK} {MASK}"]


async def test_an_append_whose_secrets_change_all_the_time_is_refused_for_now_and_says_so(
    conversation: ConversationRef,
    alice: User,
    around_masking: Callable[[Callable[[], object]], None],
    live: None,
) -> None:
    await astore.call(keep, alice, TOKEN)
    values = iter("abcdefgh")
    around_masking(lambda: keep(alice, OTHER + next(values), name="LATER"))
    with pytest.raises(ConversationBusy, match="secrets keep changing"):
        await astore.append(conversation, [long("x")])
    assert await astore.call(contents, conversation) == []


async def test_a_long_event_that_is_refused_is_refused_with_its_reason(
    conversation: ConversationRef, alice: User, live: None
) -> None:
    await astore.call(keep, alice, TOKEN)
    raw = json.dumps({"kind": "MessageEvent", "id": f"my-{TOKEN}", "more": "x" * LONG})
    with pytest.raises(InvalidEvent, match="contains a secret"):
        await asyncio.wait_for(astore.append(conversation, [event(raw=raw)]), 10)
