"""The lists of the V0 wire: one ordered stream over both versions, page by page, whatever comes and goes."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.utils import timezone as clock
from hypothesis import given
from hypothesis import strategies as st

from conversations.cursors import InvalidCursor, ListCursor
from conversations.log import writes
from conversations.models import Conversation, ConversationRef
from convserver.api.v0.pages import rows_from
from sessions_app import astore
from tests.conftest import Join
from tests.support.data.events import event
from tests.support.people.scripted_agent import until_true
from tests.support.wires.v0 import CONVERSATIONS

pytestmark = pytest.mark.one_engine

MICROAGENTS = "/api/microagent-management/conversations"
START = datetime(2025, 11, 20, tzinfo=UTC)


async def page(
    rest: httpx.AsyncClient, path: str = CONVERSATIONS, **query: Any
) -> tuple[list[str], str | None]:
    response = await rest.get(path, params=query)
    assert response.status_code == 200, response.text
    body = response.json()
    return [each["conversation_id"] for each in body["results"]], body["next_page_id"]


async def pages(rest: httpx.AsyncClient, path: str = CONVERSATIONS, **query: Any) -> list[list[str]]:
    found: list[list[str]] = []
    page_id: str | None = None
    while True:
        ids, page_id = await page(rest, path, **query, **({"page_id": page_id} if page_id else {}))
        found.append(ids)
        assert len(found) < 1000, "The list has no end."
        if page_id is None:
            return found


def fill(owner: User, count: int, *, prefix: str = "row", **columns: Any) -> list[Conversation]:
    """Store conversations, the newest with the highest number; half of them have no time of their own."""
    rows = [
        Conversation(
            public_id=f"{prefix}-{number:04}",
            owner=owner,
            created_at=START + timedelta(seconds=number // 2),
            **{name: value(number) if callable(value) else value for name, value in columns.items()},
        )
        for number in range(count)
    ]
    return Conversation.objects.bulk_create(rows)


def mixed(owner: User, *, prefix: str = "row", count: int = 300) -> list[Conversation]:
    """Store conversations of both versions, with and without repository, trigger and parent."""
    parent = fill(owner, 1, prefix=f"{prefix}-parent")[0]
    return fill(
        owner,
        count,
        prefix=prefix,
        version=lambda number: "V1" if number % 3 else "V0",
        repository=lambda number: ("owner/name", "owner/other", None)[number % 3],
        trigger=lambda number: ("gui", "microagent_management", "of tomorrow", None)[number % 4],
        parent=lambda number: parent if number % 7 == 1 else None,
    )


Fits = Callable[[Conversation], bool]
FILTERS: dict[str, tuple[str, dict[str, Any], Fits]] = {
    "none": (CONVERSATIONS, {}, lambda row: row.parent_id is None),
    "all": (CONVERSATIONS, {"include_sub_conversations": "true"}, lambda row: True),
    "repository": (
        CONVERSATIONS,
        {"selected_repository": "owner/name"},
        lambda row: row.parent_id is None and row.repository == "owner/name",
    ),
    "trigger": (
        CONVERSATIONS,
        {"conversation_trigger": "gui"},
        lambda row: row.parent_id is None and row.trigger == "gui",
    ),
    "both": (
        CONVERSATIONS,
        {"conversation_trigger": "gui", "selected_repository": "owner/other"},
        lambda row: row.parent_id is None and (row.repository, row.trigger) == ("owner/other", "gui"),
    ),
    "microagents": (
        MICROAGENTS,
        {"selected_repository": "owner/name"},
        lambda row: (row.repository, row.trigger) == ("owner/name", "microagent_management"),
    ),
}


@pytest.mark.no_second_try
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.needs_engine
@pytest.mark.sampled(2)
async def test_every_standing_conversation_comes_exactly_once_whatever_the_limit_while_others_come_and_go(
    name: str, alice: User, rest: httpx.AsyncClient, chance: random.Random, limits: Sequence[int]
) -> None:
    path, query, fits = FILTERS[name]
    standing = await astore.call(lambda: mixed(alice, count=110))
    await astore.call(lambda: mixed(alice, prefix="leaving", count=20))
    expected = {row.public_id for row in standing if fits(row)}
    for limit in limits:
        seen: list[str] = []
        page_id: str | None = None
        for _ in range(1000):
            if chance.random() < 0.03:
                await astore.call(come_and_go, alice, chance)
            ids, page_id = await page(
                rest, path, **query, limit=limit, **({"page_id": page_id} if page_id else {})
            )
            seen += ids
            if page_id is None:
                break
        assert page_id is None
        seen_standing = [each for each in seen if each in expected]
        assert (len(seen_standing), set(seen_standing)) == (len(expected), expected)
        assert len(seen) == len(set(seen))


def come_and_go(owner: User, chance: random.Random) -> None:
    """Hide a conversation that need not stand, bring one back, and store a new one."""
    rows = Conversation.objects.filter(public_id__startswith="leaving")
    number = chance.randrange(20)
    some = rows.filter(public_id__endswith=f"{number:04}")
    some.update(deleted_at=None if chance.random() < 0.5 else clock.now())
    now = clock.now()
    created_at = chance.choice([now, START + timedelta(seconds=chance.randrange(150))])
    Conversation.objects.create(
        public_id=f"leaving-new-{chance.getrandbits(64)}",
        owner=owner,
        created_at=created_at,
        repository="owner/name",
        trigger=chance.choice(["gui", "microagent_management"]),
    )


async def test_filtered_pages_are_filled_to_the_limit(alice: User, rest: httpx.AsyncClient) -> None:
    await astore.call(fill, alice, 20, repository=lambda number: None if number % 4 else "owner/name")
    sizes = [len(ids) for ids in await pages(rest, selected_repository="owner/name", limit=3)]
    assert sizes == [3, 2]


@pytest.mark.parametrize(("v0", "v1"), [(6, 6), (4, 20), (20, 4), (0, 5), (5, 0)])
async def test_conversations_of_both_versions_are_one_stream_that_ends(
    v0: int, v1: int, alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(fill, alice, v0, prefix="of-v0", version="V0")
    await astore.call(fill, alice, v1, prefix="of-v1", version="V1")
    seen = [each for ids in await pages(rest, limit=3) for each in ids]
    assert (len(seen), len(set(seen))) == (v0 + v1, v0 + v1)
    assert seen == [
        row.public_id for row in await astore.call(lambda: list(Conversation.objects.newest_first()))
    ]


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


OLD_PAGE_IDS = {
    "": 0,
    base64_of("0"): 0,
    base64_of("2"): 2,
    base64_of(json.dumps({"v0": None, "v1": None})): 0,
    base64_of(json.dumps({"v0": base64_of("2"), "v1": None})): 2,
    base64_of(json.dumps({"v0": base64_of("2"), "v1": "1"})): 3,
    base64_of(json.dumps({"v0": None, "v1": "40"})): 40,
}


async def test_a_page_id_of_an_older_server_stands_for_its_offset(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await astore.call(fill, alice, 5)
    every, _ = await page(rest)
    for page_id in OLD_PAGE_IDS:
        with subtests.test(page_id=page_id):
            assert await page(rest, page_id=page_id) == (every[OLD_PAGE_IDS[page_id] :], None)


WRONG_PAGES = [
    "!",
    "ÿ",
    "AAAA",
    base64_of("-1"),
    base64_of("9" * 30),
    base64_of("9" * 5000),
    base64_of("[]"),
    base64_of('{"v0": 5}'),
    base64_of('{"v0": "MQ==", "v1": "-7"}'),
    base64_of('{"v0": {}, "v1": []}'),
    base64_of("{" * 5000),
    base64_of("1.99999999999999999999999"),
    "\0",
]


async def test_a_page_id_that_is_none_is_refused_in_a_sentence(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path, page_id in product([CONVERSATIONS, MICROAGENTS], WRONG_PAGES):
        with subtests.test(path=path, page_id=page_id):
            response = await rest.get(path, params={"page_id": page_id, "selected_repository": "owner/name"})
            assert (response.status_code, list(response.json())) == (400, ["detail"])


@given(st.text())
def test_whatever_stands_in_a_page_id_it_is_taken_or_refused(text: str) -> None:
    with suppress(InvalidCursor):
        rows_from(Conversation.objects.newest_first(), text)


@given(st.datetimes(timezones=st.just(UTC)), st.integers(0, 2**63 - 1))
def test_a_cursor_of_this_server_is_never_taken_for_an_older_one(moment: datetime, pk: int) -> None:
    cursor = ListCursor(moment, pk)
    rows = rows_from(Conversation.objects.newest_first(), cursor.encode())
    assert str(rows.query) == str(Conversation.objects.newest_first().older_than(*cursor).query)


async def test_a_conversation_of_long_ago_is_listed(alice: User, rest: httpx.AsyncClient) -> None:
    await astore.call(fill, alice, 1, updated_at=START)
    assert await page(rest) == (["row-0000"], None)


async def test_an_age_limit_goes_by_the_last_use(
    alice: User, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(max_age_days=10)
    await astore.call(fill, alice, 1, prefix="unused", updated_at=clock.now() - timedelta(days=11))
    await astore.call(fill, alice, 1, prefix="used", updated_at=clock.now() - timedelta(days=9))
    assert await page(rest) == (["used-0000"], None)


async def test_the_list_counts_the_sockets_that_are_joined(
    conversation: ConversationRef, join: Join, rest: httpx.AsyncClient
) -> None:
    for _ in range(2):
        await (await join(conversation)).until("hello")

    async def counted() -> bool:  # who joins does not wait until that is noted
        listed = (await rest.get(CONVERSATIONS)).json()["results"][0]
        single = (await rest.get(f"{CONVERSATIONS}/talk")).json()
        return (listed["num_connections"], single["num_connections"]) == (2, 2)

    await until_true(counted)


async def test_rows_with_values_that_nobody_knows_now_are_listed_as_they_are(
    alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(
        fill, alice, 1, trigger="carrier pigeon", provider="sourceforge", pr_number=[1, "two", None], title=""
    )
    (listed,) = (await rest.get(CONVERSATIONS)).json()["results"]
    shown = [listed[name] for name in ("trigger", "git_provider", "pr_number", "title")]
    assert shown == ["carrier pigeon", "sourceforge", [1], "Conversation row-0"]


@pytest.mark.needs_engine
async def test_the_order_is_that_of_instants_not_of_their_texts(alice: User, rest: httpx.AsyncClient) -> None:
    east, west = timezone(timedelta(hours=9)), timezone(timedelta(hours=-9))
    await astore.call(fill, alice, 1, prefix="earlier")
    await astore.call(
        lambda: [
            Conversation.objects.filter(public_id="earlier-0000").update(
                created_at=datetime(2025, 11, 20, 12, tzinfo=east)
            ),
            fill(alice, 1, prefix="later"),
            Conversation.objects.filter(public_id="later-0000").update(
                created_at=datetime(2025, 11, 20, 11, tzinfo=west)
            ),
        ]
    )
    assert (await page(rest))[0] == ["later-0000", "earlier-0000"]


async def test_sub_conversations_are_folded_into_their_parent(alice: User, rest: httpx.AsyncClient) -> None:
    parent = (await astore.call(fill, alice, 1, prefix="parent"))[0]
    await astore.call(fill, alice, 2, prefix="child", parent=parent)
    listed = (await rest.get(CONVERSATIONS)).json()["results"]
    assert [each["sub_conversation_ids"] for each in listed] == [["child-0000", "child-0001"]]
    assert len((await page(rest, include_sub_conversations="true"))[0]) == 3


# What it costs


def cost(path: str) -> int:
    browser = Browser(headers={"host": "localhost"})
    browser.get(path)  # the first request of a process looks up more than later ones
    with CaptureQueriesContext(connection) as queries:
        response = browser.get(path)
    assert response.status_code == 200
    return len(queries)


@pytest.mark.parametrize(
    "path",
    [
        f"{CONVERSATIONS}?limit=100",
        f"{CONVERSATIONS}?limit=10&selected_repository=owner/name",
        f"{CONVERSATIONS}?limit=10&conversation_trigger=gui&include_sub_conversations=true",
        f"{CONVERSATIONS}?limit=5&page_id=MQ==",
        f"{MICROAGENTS}?selected_repository=owner/name&limit=10",
        f"{CONVERSATIONS}/row-0001",
    ],
)
@pytest.mark.sampled(3)
def test_a_page_costs_the_same_number_of_queries_at_10_and_at_1000_conversations(
    path: str, alice: User
) -> None:
    mixed(alice, count=10)
    few = cost(path)
    mixed(alice, prefix="more", count=990)
    assert cost(path) == few <= 6


def test_a_page_of_events_costs_the_same_number_of_queries_at_10_and_at_1000_events(
    conversation: ConversationRef,
) -> None:
    path = f"{CONVERSATIONS}/talk/events?limit=10&query=hello&start_id=2&end_id={10**12}"
    writes.append(conversation, [event() for _ in range(10)])
    few = cost(path)
    writes.append(conversation, [event() for _ in range(990)])
    assert cost(path) == few <= 5
