"""Events of the V1 app face: each once and in order, byte for byte, and as many as a socket replays."""

from __future__ import annotations

import json
from itertools import product
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User

from conversations import dialects
from conversations.events import ConversationRef, NewEvent
from conversations.log import writes
from conversations.search import across_logs
from conversations.store import creation, deletion, forks
from sessions_app import astore
from tests.support.data import events
from tests.support.wires import app_face
from tests.support.wires.app_face import APP, EVENTS, ID, NONE, all_ids, answered, cost, create, repeated
from tests.support.wires.v1_wire import EXAMPLES

pytestmark = pytest.mark.one_engine

SEARCH = f"{EVENTS}/search"
COUNT = f"{EVENTS}/count"
LOG = f"{APP}/conversation/{ID}/events"
FAMILIES = [(EVENTS, {"conversation_id__eq": ID}), (LOG, {})]
"""Both ways to name one conversation's events."""


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A V1 conversation of alice's."""
    return create(alice)


@pytest.fixture
def v0_talk(alice: User) -> ConversationRef:
    """A V0 conversation whose id the V1 wire can name."""
    return creation.create(alice, conversation_id=ID)


def at(second: int, **members: Any) -> Any:
    return app_face.event(f"second {second}", timestamp=f"2025-11-28T10:00:0{second}.000000", **members)


# One conversation


@pytest.mark.no_second_try
@pytest.mark.parametrize(("path", "query"), FAMILIES)
@pytest.mark.parametrize("order", ["TIMESTAMP", "TIMESTAMP_DESC"])
@pytest.mark.needs_engine
@pytest.mark.sampled(2)
async def test_the_pages_together_are_the_log_whatever_the_limit_while_it_grows(
    path: str, query: dict[str, Any], order: str, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    log = [app_face.event(f"number {number}") for number in range(101)]
    await astore.append(talk, log)
    grown = [each.event_id for each in log]
    for limit in (1, 2, 3, 33, 50, 99, 100):
        known = grown[::-1] if order == "TIMESTAMP_DESC" else grown[:]
        seen: list[str] = []
        page_id: str | None = ""
        while page_id is not None and len(seen) < len(known):
            paged = {"page_id": page_id} if page_id else {}
            found, page_id = await app_face.ids(
                rest, f"{path}/search", **query, **paged, sort_order=order, limit=limit
            )
            seen += found
            if limit > 30:
                await astore.append(talk, [new := app_face.event("more")])
                grown.append(new.event_id)
        assert seen[: len(known)] == known


@pytest.mark.one_engine
async def test_an_event_of_this_wire_leaves_byte_for_byte(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for text in EXAMPLES:
        with subtests.test(text=text):
            value, conversation_id = json.loads(text), uuid4()
            talk = await astore.call(create, alice, conversation_id.hex)
            new = NewEvent(event_id=value["id"], payload=text, reading=dialects.read(value))
            await astore.append(talk, [new])
            page = await rest.get(SEARCH, params={"conversation_id__eq": str(conversation_id)})
            batch = await rest.get(EVENTS, params={"id": value["id"]})
            assert page.text == f'{{"items":[{text}],"next_page_id":null}}'
            assert batch.text == f"[{text}]"


async def test_events_of_the_other_wire_are_shown_and_counted_as_their_counterparts(
    v0_talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.append(v0_talk, [events.event("one"), events.event("two")])
    items = (await answered(rest, SEARCH, conversation_id__eq=ID))["items"]
    assert [each["kind"] for each in items] == ["MessageEvent", "MessageEvent"]
    assert await answered(rest, COUNT, conversation_id__eq=ID) == 2
    asked = [items[1]["id"], str(uuid4()), items[0]["id"]]
    assert await answered(rest, LOG, id=asked) == [items[1], None, items[0]]


async def test_a_count_is_that_of_the_stored_events_whatever_wire_they_are_of(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    mixed = [app_face.event(), events.event(), events.event(raw='{"observation":"run","content":""}')]
    hidden = json.dumps({"action": "run", "args": {"command": "x", "hidden": True}})
    await astore.append(talk, [*mixed, events.event(raw=hidden)])
    (count,) = {await answered(rest, f"{path}/count", **query) for path, query in FAMILIES}
    assert count == 4
    assert len((await answered(rest, f"{LOG}/search"))["items"]) == 4


FILTERED: list[tuple[dict[str, Any], list[int]]] = [
    ({"kind__eq": "MessageEvent"}, [0, 1, 2, 3]),
    ({"kind__eq": "openhands.sdk.event.llm_convertible.message.MessageEvent"}, [0, 1, 2, 3]),
    ({"kind__eq": "PauseEvent"}, []),
    ({"timestamp__gte": "2025-11-28T10:00:01"}, [1, 2, 3]),
    ({"timestamp__gte": "2025-11-28T11:00:01+01:00"}, [1, 2, 3]),
    ({"timestamp__lt": "2025-11-28T10:00:02"}, [0, 1]),
    ({"timestamp__lt": "2025-11-28T10:00:02.000001Z"}, [0, 1, 2]),
    ({"timestamp__gte": "2025-11-28T10:00:01", "timestamp__lt": "2025-11-28T10:00:03"}, [1, 2]),
    ({"timestamp__lt": "0001-01-01T00:00:00"}, []),
    ({"timestamp__gte": "9999-12-31T23:59:59"}, []),
]


@pytest.mark.needs_engine
async def test_a_filter_holds_for_the_list_and_the_count(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    log = [at(second) for second in range(4)]
    await astore.append(talk, log)
    for (path, query), (wanted, seconds) in product(FAMILIES, FILTERED):
        with subtests.test(path=path, query=query, wanted=wanted, seconds=seconds):
            found = await all_ids(rest, f"{path}/search", **query, **wanted, limit=1)
            assert found == [log[second].event_id for second in seconds]
            count = await answered(rest, f"{path}/count", **query, **wanted, sort_order="TIMESTAMP_DESC")
            assert count == len(seconds)


@pytest.mark.one_engine
async def test_an_unknown_kind_is_refused_by_a_sentence(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in [SEARCH, COUNT, f"{LOG}/search", f"{LOG}/count"]:
        with subtests.test(path):
            answer = await rest.get(path, params={"kind__eq": "SmellEvent"})
            (problem,) = answer.json()["detail"]
            assert (answer.status_code, problem["loc"]) == (422, ["query", "kind__eq"])
            assert "SmellEvent" in problem["msg"]


async def test_a_conversation_that_is_not_there_has_no_events_in_the_search_and_is_not_found_by_its_path(
    alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    theirs = await astore.call(create, bob)
    await astore.append(theirs, [app_face.event()])
    assert await answered(rest, SEARCH, conversation_id__eq=ID) == {"items": [], "next_page_id": None}
    assert await answered(rest, COUNT, conversation_id__eq=ID) == 0
    statuses = [(await rest.get(f"{LOG}{path}")).status_code for path in ("/search", "/count", "?id=x")]
    assert statuses == [404, 404, 404]


async def test_a_page_id_of_another_conversation_is_refused(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    other = await astore.call(create, alice, NONE)
    for each in (talk, other):
        await astore.append(each, [app_face.event(), app_face.event()])
    _, page_id = await app_face.ids(rest, SEARCH, conversation_id__eq=ID, limit=1)
    answer = await rest.get(SEARCH, params={"conversation_id__eq": NONE, "page_id": page_id})
    assert answer.status_code == 400


# All conversations


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_without_a_conversation_every_event_that_the_user_may_see_comes_once_log_by_log(
    alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    expected: list[str] = []
    for owner, count in ((alice, 3), (bob, 2), (alice, 4), (alice, 0), (alice, 1)):
        conversation = await astore.call(create, owner, uuid4().hex)
        log = [app_face.event() for _ in range(count)]
        await astore.append(conversation, log)
        expected += [each.event_id for each in log] if owner == alice else []
    gone = await astore.call(create, alice, uuid4().hex)
    await astore.append(gone, [app_face.event()])
    await astore.call(deletion.soft_delete, gone)
    for limit in range(1, 10):
        assert await all_ids(rest, SEARCH, limit=limit) == expected
        backwards = await all_ids(rest, SEARCH, limit=limit, sort_order="TIMESTAMP_DESC")
        assert backwards == expected[::-1]
    assert await answered(rest, COUNT) == len(expected)
    assert await answered(rest, COUNT, kind__eq="PauseEvent") == 0


async def test_events_are_found_by_their_ids_in_the_order_asked_the_users_own_alone(
    alice: User, bob: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    own, other, theirs = app_face.event("own"), app_face.event("other"), app_face.event("theirs")
    await astore.append(talk, [own, other])
    await astore.append(await astore.call(create, bob, NONE), [theirs])
    asked = [other.event_id, theirs.event_id, "x", own.event_id, other.event_id]
    found = await answered(rest, EVENTS, id=asked)
    assert [each and each["id"] for each in found] == [
        other.event_id,
        None,
        None,
        own.event_id,
        other.event_id,
    ]


async def test_an_event_of_another_conversation_is_not_found_by_this_ones_path(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    other = app_face.event()
    await astore.append(await astore.call(create, alice, NONE), [other])
    assert await answered(rest, LOG, id=other.event_id) == [None]


@pytest.mark.parametrize("path", [EVENTS, LOG])
async def test_long_events_are_all_found_by_their_ids_as_often_as_they_are_asked_for(
    talk: ConversationRef, rest: httpx.AsyncClient, path: str
) -> None:
    log = [app_face.event("x" * 1_500_000) for _ in range(5)]
    await astore.append(talk, log)
    ids = [each.event_id for each in log]
    asked = [ids[4], "x", ids[0], ids[4], *ids]
    found = await answered(rest, path, id=asked)
    assert [each and each["id"] for each in found] == [each if each in ids else None for each in asked]


async def test_of_the_copies_of_an_event_in_forks_the_first_is_returned_and_no_other_is_read(
    alice: User, talk: ConversationRef, live: None
) -> None:
    event = app_face.event()
    await astore.append(talk, [event])
    for _ in range(3):
        await astore.call(forks.fork, alice, talk)
    found = await astore.call(across_logs.with_ids, alice, [event.event_id])
    assert [each.public_id for each in found.loaded] == [talk.public_id]


# What it costs


def test_events_cost_the_same_however_long_the_log_is(alice: User, talk: ConversationRef) -> None:
    writes.append(talk, [first := app_face.event()])
    queries = ["", "?kind__eq=MessageEvent", "?sort_order=TIMESTAMP_DESC&timestamp__gte=2025-01-01T00:00:00"]
    paths = [
        f"{path}{query}" for path in (SEARCH, COUNT, f"{LOG}/search", f"{LOG}/count") for query in queries
    ]
    batches = [EVENTS, LOG]
    few = [cost(path) for path in paths]
    one = [cost(f"{path}?id={first.event_id}") for path in batches]
    many = [app_face.event() for _ in range(300)]
    writes.append(talk, many)
    for _ in range(5):
        writes.append(create(alice, uuid4().hex), [app_face.event()])
    asked = repeated("id", [each.event_id for each in many[:100]])
    assert [cost(path) for path in paths] == few
    assert [cost(f"{path}?{asked}") for path in batches] == one
    assert max(few + one) <= 5


async def test_long_events_make_a_page_shorter_but_are_not_left_out(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    log = [app_face.event("x" * 1_500_000) for _ in range(5)]
    await astore.append(talk, log)
    first, page_id = await app_face.ids(rest, SEARCH)
    assert (len(first), page_id is not None) == (3, True)
    assert await all_ids(rest, SEARCH) == [each.event_id for each in log]
    assert await all_ids(rest, f"{LOG}/search") == [each.event_id for each in log]
