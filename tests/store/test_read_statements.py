"""The SQL of the reads that polls make: at most two statements, made once, on each engine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet, Value
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.engines.compiled import CompiledQuery
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation
from convserver.api.direct.calls import Read
from convserver.api.direct.reads import ROUTES
from tests.support.wires.v1_socket import v1_events

STATEMENTS_MAX = 2


@pytest.fixture
def family(alice: User) -> list[ConversationRef]:
    """A V1 conversation with an event, one that it has started, and one that that has started."""
    found: list[ConversationRef] = []
    for _ in range(3):
        above: dict[str, Any] = {"parent_id": found[-1].pk} if found else {}
        found.append(creation.create(alice, conversation_id=uuid4().hex, version=Version.V1, **above))
    for each in found:
        writes.append(each, v1_events(1))
    return found


def test_a_read_takes_two_statements_at_most(
    subtests: pytest.Subtests, alice: User, family: list[ConversationRef]
) -> None:
    for route in ROUTES:
        with subtests.test(route.name):
            for conversation in family:
                named = "conversation_id" in route.address.groupindex
                query = {
                    "app-conversations": f"ids={conversation.public_id}",
                    "app-event-search": f"conversation_id__eq={conversation.public_id}",
                }.get(route.name, "")
                read = Read(alice, None, conversation.public_id if named else "", query, "http://localhost")
                with CaptureQueriesContext(
                    connection,
                ) as asked:
                    answer = route.read(read)
                assert len(asked) <= STATEMENTS_MAX, asked.captured_queries
                assert answer.body.startswith((b"{", b"["))


def _named(limit: int, *, titles: list[Value], since: Value) -> QuerySet[Conversation, Any]:
    rows = Conversation.objects.filter(title__in=titles, created_at__gt=since)
    return rows.order_by("title").values("title", "tags", "created_at")[:limit]


def test_a_compiled_query_returns_what_the_query_itself_returns(alice: User) -> None:
    for title in ("a", "b", "100%"):
        creation.create(alice, title=title, tags={"t": title})
    query, since = CompiledQuery(_named), timezone.now() - timedelta(hours=1)
    for limit, titles in (
        (9, ["b", "a"]),
        (9, ["100%"]),
        (1, ["a", "b"]),
        (9, ["a", "b"]),
        (9, []),
        (9, ["x"]),
    ):
        expected = list(_named(limit, titles=titles, since=since))  # type: ignore[arg-type]
        assert query.rows(limit, titles=titles, since=since) == expected
        assert [list(row) for row in query.tuples(limit, titles=titles, since=since)] == [
            list(row.values()) for row in expected
        ]
    assert query.rows(9, titles=["a"], since=timezone.now() + timedelta(hours=1)) == []
