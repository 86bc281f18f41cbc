"""A page of a log costs the same wherever it is in the log, and whatever the database believes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from conversations.engines import guards
from conversations.models import ConversationRef, Event
from conversations.store import ConversationStore
from tests.conftest import on_postgresql
from tests.events import event

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
    table = " ON conversations_event" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER event_refuse_delete{table}")
    Event.objects.of(conversation).filter(seq__range=(5, 24)).delete()
    guards.install(connection)
    assert [each["seq"] for each in store.read_after(conversation, 4, limit=3)] == [25, 26, 27]
    assert [each["seq"] for each in store.read_before(conversation, 25, limit=3)] == [2, 3, 4]
