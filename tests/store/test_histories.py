"""Cursors of a log: what they are made of, and which history they are of."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from conversations import histories
from conversations.cursors import FINGERPRINT_LENGTH, EventCursor, InvalidCursor
from conversations.events import ConversationRef, EventEnvelope, NewEvent
from conversations.exceptions import CursorAhead, HistoryReplaced
from conversations.log import reads, writes
from conversations.log.append import AppendRequest
from conversations.store import creation
from tests.support.data.events import event

FINGERPRINTS = st.text("0123456789abcdef", min_size=FINGERPRINT_LENGTH, max_size=FINGERPRINT_LENGTH)
CURSORS = st.just(EventCursor(-1)) | st.builds(
    EventCursor, st.integers(0, 2**63 - 1), st.none() | FINGERPRINTS
)
NEARLY = st.from_regex(r"-?[0-9a-f]{0,20}[.,]?[0-9a-f]{0,20}\s?", fullmatch=True)

pure = pytest.mark.one_engine


def cursor_of(event: EventEnvelope) -> EventCursor:
    return EventCursor(event["seq"], event["fingerprint"])


def is_same(conversation: ConversationRef, cursor: EventCursor) -> bool:
    try:
        histories.require_same(conversation, cursor)
    except HistoryReplaced:
        return False
    return True


# As text


@pure
@given(CURSORS)
def test_a_cursor_is_read_as_it_was_written(cursor: EventCursor) -> None:
    text = cursor.encode()
    assert re.fullmatch(r"[0-9a-f.-]+", text)
    assert EventCursor.decode(text) == cursor


@pure
@given(st.text() | NEARLY | CURSORS.map(lambda cursor: cursor.encode() + "0"))
def test_any_text_is_a_place_in_a_log_or_refused(text: str) -> None:
    try:
        cursor = EventCursor.decode(text)
    except InvalidCursor:
        return
    assert -1 <= cursor.seq < 2**63
    assert cursor.fingerprint is None or len(cursor.fingerprint) == FINGERPRINT_LENGTH
    assert EventCursor.decode(cursor.encode()) == cursor


# As histories


@pytest.fixture
def begun(alice: User) -> Callable[..., tuple[ConversationRef, list[EventEnvelope]]]:
    """Make a conversation with a log of these events; return it as it is read."""

    def begin(events: list[NewEvent]) -> tuple[ConversationRef, list[EventEnvelope]]:
        conversation = creation.create(alice)
        writes.append(conversation, events)
        return conversation, reads.read_after(conversation, -1)

    return begin


Begun = Callable[..., tuple[ConversationRef, list[EventEnvelope]]]


def test_an_event_is_announced_with_the_fingerprint_that_it_is_read_with(
    conversation: ConversationRef,
) -> None:
    (outcome,) = writes.append_many(
        [AppendRequest(conversation=conversation, events=[event() for _ in range(3)])]
    )
    assert not isinstance(outcome, Exception)
    assert outcome.envelopes == reads.read_after(conversation, -1)
    assert reads.read_some(conversation, seqs=[1]) == [outcome.envelopes[1]]
    assert reads.read_portion(conversation, seqs=[1]).events == [outcome.envelopes[1]]
    assert all(len(each["fingerprint"]) == FINGERPRINT_LENGTH for each in outcome.envelopes)


@pytest.mark.no_second_try
def test_a_cursor_is_of_every_history_that_has_the_same_events_so_far_and_of_no_other(begun: Begun) -> None:
    events = [event() for _ in range(4)]
    first, log = begun(events)
    repeated, _ = begun(events)
    other, _ = begun([*events[:2], event(), events[3]])
    shorter, _ = begun(events[:2])
    cursors = list(map(cursor_of, log))
    assert all(is_same(first, cursor) and is_same(repeated, cursor) for cursor in cursors)
    assert [is_same(other, cursor) for cursor in cursors] == [True, True, False, False]
    assert [is_same(shorter, cursor) for cursor in cursors] == [True, True, False, False]


def test_a_place_alone_is_of_any_history(begun: Begun) -> None:
    conversation, _ = begun([event()])
    assert is_same(conversation, EventCursor(0))
    assert is_same(conversation, EventCursor(7))


@pytest.mark.no_second_try
def test_a_cursor_beyond_the_end_is_of_another_history() -> None:
    for last_seq in (-1, 4):
        histories.require_within(EventCursor(last_seq), last_seq=last_seq)
        with pytest.raises(CursorAhead, match=f"You have event {last_seq + 1}"):
            histories.require_within(EventCursor(last_seq + 1), last_seq=last_seq)


def test_a_cursor_with_a_fingerprint_costs_one_query_and_one_without_none(begun: Begun) -> None:
    conversation, log = begun([event() for _ in range(3)])
    for cursor, cost in ((cursor_of(log[1]), 1), (EventCursor(1), 0), (EventCursor(-1), 0)):
        with CaptureQueriesContext(connection) as queries:
            histories.require_same(conversation, cursor)
        assert len(queries) == cost
