"""A page of a log costs the same wherever it is in the log, and whatever the database believes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from conversations.models import ConversationRef, Event
from conversations.store import ConversationStore
from tests.conftest import on_postgresql
from tests.events import delete_events, event

LENGTH, LIMIT = 2_000, 50


@pytest.fixture
def talk_unknown_to_statistics(store: ConversationStore, alice: User) -> ConversationRef:
    """A long log; the database has counted the table while all logs were short."""
    for _ in range(100):
        store.append(store.create(alice), [event()])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE conversations_event")
    conversation = store.create(alice)
    for _ in range(4):
        store.append(conversation, [event() for _ in range(LENGTH // 4)])
    return conversation


def rows_read(plan: dict[str, Any]) -> Iterator[int]:
    """Yield how many rows each step of a plan has read."""
    yield plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    for step in plan.get("Plans", ()):
        yield from rows_read(step)


@on_postgresql
def test_a_page_reads_no_more_rows_than_it_has(talk_unknown_to_statistics: ConversationRef) -> None:
    talk = talk_unknown_to_statistics
    pages = [
        *(Event.objects.page(talk, after=after, limit=LIMIT, max_bytes=10**6) for after in (-1, 900)),
        *(
            Event.objects.page_before(talk, before=seq, limit=LIMIT, max_bytes=10**6)
            for seq in (1000, LENGTH)
        ),
    ]
    for page in pages:
        assert len(page) == LIMIT
        (explained,) = json.loads(page.explain(analyze=True, format="json"))
        assert max(rows_read(explained["Plan"])) == LIMIT


def test_pages_go_on_behind_events_that_are_gone(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    store.append(conversation, [event() for _ in range(30)])
    delete_events(conversation, range(5, 25))
    assert [each["seq"] for each in store.read_after(conversation, 4, limit=3)] == [25, 26, 27]
    assert [each["seq"] for each in store.read_before(conversation, 25, limit=3)] == [2, 3, 4]


def test_a_page_before_a_place_behind_the_end_is_full(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    store.append(conversation, [event() for _ in range(10)])
    for before in (10, 11, 12, 1_000, 2**63 - 1):
        assert [each["seq"] for each in store.read_before(conversation, before, limit=3)] == [7, 8, 9]
    assert store.read_before(conversation, 5, limit=0) == store.read_after(conversation, 5, limit=0) == []


@on_postgresql
def test_an_append_is_planned_for_the_table_as_it_is(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    for _ in range(10):
        store.append(conversation, [event(), event()])
        store.append(conversation, [event()])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT SUM(generic_plans), COUNT(*) > 5 FROM pg_prepared_statements WHERE statement NOT LIKE %s",
            ["SET %"],
        )
        assert cursor.fetchone() == (0, True)
