"""What a backup says of a store: read in bounded pieces, whatever its payloads hold."""

from __future__ import annotations

import tracemalloc

from django.db import connection

from conversations.events import ConversationRef
from conversations.log import writes
from convserver.backups import contents
from tests.support.data import damage
from tests.support.data.events import event, payload

LONG_BYTES = 1_000_000
LONG = 20


def test_a_whole_store_has_no_problem_whatever_the_length_of_its_payloads(
    conversation: ConversationRef,
) -> None:
    for length in (1, contents.LARGE_BYTES, 3 * contents.LARGE_BYTES):
        writes.append(conversation, [event("é" * length)])
    assert contents.problems(connection) == []


def test_a_long_payload_that_was_changed_is_found(conversation: ConversationRef) -> None:
    writes.append(conversation, [event("x" * 2 * contents.LARGE_BYTES)])
    damage.change(conversation, 0, payload=payload("y" * 2 * contents.LARGE_BYTES))
    (problem,) = contents.problems(connection)
    assert "event 0 was changed" in problem


def test_only_one_long_payload_is_held_at_a_time(conversation: ConversationRef) -> None:
    for _ in range(LONG):
        writes.append(conversation, [event("x" * LONG_BYTES)])
    tracemalloc.start()
    try:
        assert contents.problems(connection) == []
        assert tracemalloc.get_traced_memory()[1] < LONG * LONG_BYTES / 3
    finally:
        tracemalloc.stop()
