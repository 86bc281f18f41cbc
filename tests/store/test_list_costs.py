"""What is shown of a list costs the same however many conversations its owner has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from conversations import change_order
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.search import titles
from sessions_app.loops import registry
from sessions_app.models import AgentLoop, ExecutionStatus, Mark
from tests.conftest import on_sqlite
from tests.support.wires import app_face

pytestmark = on_sqlite

FEW, MANY = 240, 1_000
"""More than are sorted where a filter leaves few (`pagination.SORTED_MAX`)."""
SHOWN = 20
PAGES = 15
STEPS = 10
"""So many steps of SQLite's machine are counted as one."""
SLACK = 40
"""An index of many rows is a level deeper; to look at each of MANY would be hundreds more."""

IDS = [UUID(int=number) for number in range(SHOWN)]
PARENT = IDS[0].hex
PATHS = [
    "/rows",
    "/rows?archived=true",
    "/rows?status=not_started",
    "/rows?status=waiting_for_confirmation",
    "/rows?q=needle",
    "/rows?label=many",
    "/rows?label=rare&label=many",
    f"/rows?parent={PARENT}",
    f"/rows?{urlencode([('id', each.hex) for each in IDS])}",
    f"/c/{PARENT}",
    "/rows?order=title",
    "/api/native/conversations?limit=20",
    "/api/native/conversations?limit=20&order=created",
    "/api/native/conversations?limit=20&order=title",
    "/api/native/conversations?limit=20&pinned=true",
    "/api/native/conversations?limit=20&archived=true",
    "/api/native/conversations?limit=20&status=error",
    "/api/native/conversations?limit=20&top_level=true",
    "/api/native/conversations?limit=20&label=many",
    "/api/native/conversations?limit=20&label=rare",
    "/api/native/conversations?limit=20&model=openai/gpt-5",
    f"/api/native/conversations?limit=20&parent={PARENT}",
    f"/api/native/conversations/{PARENT}",
    "/api/conversations?limit=20",
    f"/api/conversations/{PARENT}",
    "/api/v1/app-conversations/search?limit=20",
    "/api/v1/sandboxes/search?limit=20",
    f"/api/v1/app-conversations?{urlencode([('ids', str(each)) for each in IDS])}",
    "/agent/api/conversations/search?limit=20",
    "/agent/api/conversations/search?limit=20&status=error",
    f"/agent/api/conversations?{urlencode([('ids', str(each)) for each in IDS])}",
]


def test_a_list_costs_the_same_however_long_it_is(subtests: pytest.Subtests, alice: User) -> None:
    client = Client(headers={"host": "localhost"})

    def ask(path: str) -> None:
        assert client.get(path).status_code == 200

    fill(alice, FEW)
    few = {path: steps(partial(ask, path)) for path in PATHS}
    fill(alice, MANY, first=FEW)
    for path in PATHS:
        with subtests.test(path=path):
            require_the_same(few[path], steps(partial(ask, path)))


def test_to_make_room_for_a_loop_costs_the_same_however_many_conversations_there_are(
    alice: User, conversation: ConversationRef
) -> None:
    costs_the_same(alice, lambda: registry.surplus(conversation, 1))


def test_what_changed_since_costs_the_same_however_long_the_list_is(alice: User) -> None:
    def ask() -> None:
        reach = change_order.reach()
        rows = Conversation.objects.owned_by(alice.pk)
        assert len(rows.changed_from(reach.settled - SHOWN, 0, end=reach.end)) == SHOWN

    costs_the_same(alice, ask)


@pytest.mark.parametrize("order", ["TIMESTAMP", "TIMESTAMP_DESC"])
@pytest.mark.sampled(1)
def test_a_page_of_the_events_of_all_conversations_costs_the_same_however_many_were_read(
    alice: User, order: str
) -> None:
    fill(alice, 2 * SHOWN * PAGES)
    for row in Conversation.objects.of_version(Version.V1):
        writes.append(row.ref, [app_face.event()])
    client = Client(headers={"host": "localhost"})
    query: dict[str, Any] = {"sort_order": order, "limit": SHOWN}

    def ask() -> Any:
        answer = client.get(f"{app_face.EVENTS}/search", query)
        assert len(answer.json()["items"]) == SHOWN
        return answer.json()["next_page_id"]

    costs = []
    for _ in range(PAGES):
        costs.append(steps(ask))
        query["page_id"] = ask()
    _, second, *_, last = costs
    assert last <= second + SLACK, f"of {STEPS} steps for each page {costs}"


def costs_the_same(owner: User, action: Callable[[], object]) -> None:
    """Compare what an action costs among FEW conversations and among MANY."""
    fill(owner, FEW)
    few = steps(action)
    fill(owner, MANY, first=FEW)
    require_the_same(few, steps(action))


def require_the_same(few: int, many: int) -> None:
    assert many <= 1.2 * few + SLACK, f"of {STEPS} steps {few} for {FEW} conversations, {many} for {MANY}"


def fill(owner: User, count: int, *, first: int = 0) -> None:
    """Give the owner conversations up to `count`; a few of the first ones differ from the others."""
    began = timezone.now() - timedelta(days=1)
    rows = Conversation.objects.bulk_create(
        Conversation(
            public_id=UUID(int=number).hex,
            owner=owner,
            title="A needle" if number < 5 else "Hay",
            version=Version.V1 if number % 2 else Version.V0,
            tags={"many": "", "rare": ""} if number < 5 else {"many": ""},
            llm_model="openai/gpt-5",
            created_at=began - timedelta(seconds=number),
        )
        for number in range(first, count)
    )
    doing = {3: ExecutionStatus.WAITING_FOR_CONFIRMATION, 4: ExecutionStatus.ERROR}
    AgentLoop.objects.bulk_create(
        AgentLoop(conversation=row, execution_status=doing.get(number, ExecutionStatus.IDLE))
        for number, row in enumerate(rows, first)
    )
    if first == 0:
        head, child, pinned, archived, *_ = rows
        Conversation.objects.filter(pk=child.pk).update(parent=head)
        Mark.objects.create(user=owner, conversation=pinned, pinned_at=began)
        Mark.objects.create(user=owner, conversation=archived, archived_at=began)
    while titles.step():
        pass


def steps(action: Callable[[], object]) -> int:
    """Return what an action costs the database, in so many steps of its machine."""
    action()  # the first time reads what later ones have
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection.connection.set_progress_handler(count, STEPS)
    try:
        action()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return counted
