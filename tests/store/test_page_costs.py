"""A page of a log costs the same wherever it is in the log, and whatever the database believes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.db import connection

from conversations.log import reads, writes
from conversations.models import ConversationRef, Event
from tests.conftest import on_postgresql
from tests.support.data.events import delete_events, event

LIMIT = 50


def scans(plan: dict[str, Any]) -> Iterator[str]:
    """Yield the conditions of each step of a plan that reads a table."""
    if "Relation Name" in plan:
        yield " ".join(str(plan.get(name)) for name in ("Index Cond", "Recheck Cond", "Filter"))
    for step in plan.get("Plans", ()):
        yield from scans(step)


@on_postgresql
def test_each_scan_for_a_page_is_bounded_on_both_sides(conversation: ConversationRef) -> None:
    # With one bound and a limit, the database reads and sorts all that follows if it takes a log for short.
    for page in (
        Event.objects.page(conversation, after=900, limit=LIMIT, max_bytes=10**6),
        Event.objects.page_before(conversation, before=900, limit=LIMIT, max_bytes=10**6),
    ):
        (explained,) = json.loads(page.explain(format="json"))
        conditions = list(scans(explained["Plan"]))
        assert len(conditions) == 2
        assert all("seq >" in each and "seq <" in each for each in conditions), conditions


def test_pages_go_on_behind_events_that_are_gone(conversation: ConversationRef) -> None:
    writes.append(conversation, [event() for _ in range(30)])
    delete_events(conversation, range(5, 25))
    assert [each["seq"] for each in reads.read_after(conversation, 4, limit=3)] == [25, 26, 27]
    assert [each["seq"] for each in reads.read_before(conversation, 25, limit=3)] == [2, 3, 4]


def test_a_page_before_a_place_behind_the_end_is_full(conversation: ConversationRef) -> None:
    writes.append(conversation, [event() for _ in range(10)])
    for before in (10, 11, 12, 1_000, 2**63 - 1):
        assert [each["seq"] for each in reads.read_before(conversation, before, limit=3)] == [7, 8, 9]
    assert reads.read_before(conversation, 5, limit=0) == reads.read_after(conversation, 5, limit=0) == []


@on_postgresql
def test_an_append_is_planned_for_the_table_as_it_is(conversation: ConversationRef) -> None:
    for _ in range(10):
        writes.append(conversation, [event(), event()])
        writes.append(conversation, [event()])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT SUM(generic_plans), COUNT(*) > 5 FROM pg_prepared_statements WHERE statement NOT LIKE %s",
            ["SET %"],
        )
        assert cursor.fetchone() == (0, True)
