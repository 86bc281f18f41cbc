"""The log on the agent face: pages that are the history, whatever is asked for and written meanwhile."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, product
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from conversations.cursors import DirectedCursor
from conversations.dialects import v1
from conversations.dialects.translation import v0_as_v1
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef
from convserver.api.v1.agent.pages import AgentEventPageQuery, event_page
from sessions_app import astore
from sessions_app.settings import agent_setups
from tests.support.data.events import event, payload
from tests.support.people.scripted_agent import Stage, manager, stage, until_said, until_status
from tests.support.wires.v1 import AGENT, HEX, ID, NONE, known, said
from tests.support.wires.v1_wire import EXAMPLES

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

EVENTS = f"{AGENT}/{ID}/events"
BEGIN = datetime(2025, 11, 28, 10, tzinfo=UTC)
SIZES = [0, 1, 100, 101]
ORDERS = ["TIMESTAMP", "TIMESTAMP_DESC"]
FILTERS: list[dict[str, Any]] = [
    {},
    {"kind": "MessageEvent"},
    {"kind": "openhands.sdk.event.llm_convertible.message.MessageEvent"},
    {"kind": "PauseEvent"},
    {"kind": "EventOfTomorrow"},
    {"kind": ""},
    {"source": "agent"},
    {"source": "user", "kind": "MessageEvent"},
    {"source": "hook"},
    {"body": "EVEN"},
    {"body": "even", "source": "agent"},
    {"body": "even", "kind": "MessageEvent"},
    {"body": "even", "kind": "ActionEvent"},
    {"body": "%"},
    {"timestamp__gte": "2025-11-28T10:00:01.5"},
    {"timestamp__lt": "2025-11-28T11:00:01.500000+01:00"},
    {"timestamp__gte": "2025-11-28T10:00:00.100Z", "timestamp__lt": "2025-11-28T10:00:02"},
    {"timestamp__lt": "0001-01-01T00:00:00"},
]


@pytest.fixture
def long_limits(is_full: bool, limits: Sequence[int]) -> Sequence[int]:
    """Lengths of pages for a long history; short ones, which take the longest, only with `--full`."""
    return limits if is_full else [limit for limit in limits if limit >= 7]


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """An empty V1 conversation of alice's."""
    return agent_setups.create(alice, agent_setups.NewSetup(), conversation_id=HEX)


def stamp(number: int) -> str:
    return v1.stamp(BEGIN + timedelta(milliseconds=10 * number))


def raw(number: int) -> str:
    """Return an event of either wire as JSON text; the texts of messages are not told by their case."""
    shared = {"id": f"{number:08x}-0000-4000-8000-000000000000", "timestamp": stamp(number)}
    text = f"number {number}, which is {'Even' if number % 2 == 0 else 'odd'}"
    message = {"content": [{"type": "text", "text": text}]}
    match number % 5:
        case 0:
            who = {"source": "user", "llm_message": {"role": "user", **message}}
            return json.dumps({"kind": "MessageEvent", **shared, **who})
        case 1:
            return payload(text, source="agent" if number % 2 else "user", timestamp=stamp(number))
        case 2:
            return json.dumps({**shared, "source": "user", "kind": "PauseEvent"}, indent=1)
        case 3:
            who = {"source": "agent", "llm_message": {"role": "assistant", **message}}
            return json.dumps({"kind": "MessageEvent", **shared, **who})
    called = {"tool_name": "terminal", "tool_call_id": f"call_{number}", "thought": message["content"]}
    return json.dumps({"kind": "ActionEvent", "source": "agent", **shared, **called})


def write(conversation: ConversationRef, first: int, count: int) -> None:
    texts = [raw(number) for number in range(first, first + count)]
    if texts:
        writes.append(conversation, [event(raw=text, event_id=json.loads(text).get("id")) for text in texts])


def history(conversation: ConversationRef) -> list[str]:
    """Return every event as it is shown, read without pages that are asked for."""
    found: list[str] = []
    while part := reads.read_after(conversation, len(found) - 1):
        found += [v1.shown(each, conversation.public_id) for each in part]
    return found


def expected(shown: Sequence[str], query: dict[str, Any]) -> list[str]:
    """Return what of a history a query asks for, by looking at what is shown alone."""
    return [text for text in shown if is_wanted(json.loads(text), query)]


def is_wanted(event: dict[str, Any], query: dict[str, Any]) -> bool:
    at = datetime.fromisoformat(event["timestamp"]).replace(tzinfo=UTC)
    since, before = (moment(query.get(name)) for name in ("timestamp__gte", "timestamp__lt"))
    parts = event.get("llm_message", {}).get("content", [])
    text = "\n".join(part["text"] for part in parts)
    return (
        ("kind" not in query or event["kind"] == query["kind"].rpartition(".")[2])
        and query.get("source") in (None, event["source"])
        and query.get("body", "").lower() in text.lower()
        and ("body" not in query or event["kind"] == "MessageEvent")
        and (since is None or at >= since)
        and (before is None or at < before)
    )


def moment(text: str | None) -> datetime | None:
    read = datetime.fromisoformat(text) if text else None
    return read.replace(tzinfo=UTC) if read and read.tzinfo is None else read


def pages(conversation: ConversationRef, **query: Any) -> Iterator[list[str]]:
    """Yield page after page, as a client would ask for them."""
    page_id: str | None = None
    while True:
        page = event_page(conversation, AgentEventPageQuery(page_id=page_id, **query))
        yield [v1.shown(each, conversation.public_id) for each in page.events]
        page_id = page.next_page_id
        if page_id is None:
            return


# Pages


@pytest.mark.parametrize("sort_order", ORDERS)
@pytest.mark.parametrize("size", SIZES)
def test_pages_of_every_length_are_the_history(
    talk: ConversationRef, size: int, sort_order: str, limits: Sequence[int]
) -> None:
    write(talk, 0, size)
    whole = history(talk)[:: -1 if sort_order == "TIMESTAMP_DESC" else 1]
    for limit in limits:
        found = list(pages(talk, limit=limit, sort_order=sort_order))
        assert [*chain(*found)] == whole
        assert len(found) == max(1, -(-size // limit))


@pytest.mark.parametrize("sort_order", ORDERS)
def test_pages_of_every_length_are_a_long_history(
    talk: ConversationRef, sort_order: str, long_limits: Sequence[int]
) -> None:
    write(talk, 0, 1000)
    whole = [json.loads(text)["id"] for text in history(talk)[:: -1 if sort_order == "TIMESTAMP_DESC" else 1]]
    for limit in long_limits:
        found = [*chain(*pages(talk, limit=limit, sort_order=sort_order))]
        assert [json.loads(text)["id"] for text in found] == whole


@pytest.mark.parametrize("size", [101, 1000])
@pytest.mark.needs_engine
@pytest.mark.sampled(1)
def test_pages_of_what_is_filtered_are_that_of_the_history(
    talk: ConversationRef, size: int, limits: Sequence[int], chance: random.Random, is_full: bool
) -> None:
    write(talk, 0, size)
    shown = history(talk)
    for query, sort_order in product(FILTERS, ORDERS):
        wanted = expected(shown, query)[:: -1 if sort_order == "TIMESTAMP_DESC" else 1]
        some = limits if size < 1000 else (33, 50, 99, 100)
        for limit in some if is_full else chance.sample(some, 2):
            found = [*chain(*pages(talk, limit=limit, sort_order=sort_order, **query))]
            assert found == wanted, (query, sort_order, limit)


@pytest.mark.no_second_try
@pytest.mark.parametrize("limit", [1, 2, 10, 99, 100])
@pytest.mark.parametrize("query", [{}, {"kind": "MessageEvent"}, {"body": "even"}], ids=str)
@pytest.mark.needs_engine
@pytest.mark.sampled(5)
def test_pages_from_the_beginning_hold_what_is_written_meanwhile(
    talk: ConversationRef, limit: int, query: dict[str, Any]
) -> None:
    write(talk, 0, 101)
    found: list[str] = []
    for number, page in enumerate(pages(talk, limit=limit, **query)):
        found += page
        if number < 20:
            write(talk, 101 + number, 1)
    assert found == expected(history(talk), query)[: len(found)]
    assert len(found) >= len(expected(history(talk)[:101], query))


@pytest.mark.no_second_try
@pytest.mark.parametrize("limit", [1, 2, 10, 99, 100])
def test_pages_from_the_end_hold_what_stood_when_they_were_begun(talk: ConversationRef, limit: int) -> None:
    write(talk, 0, 101)
    stood = history(talk)
    found: list[str] = []
    for number, page in enumerate(pages(talk, limit=limit, sort_order="TIMESTAMP_DESC")):
        found += page
        write(talk, 101 + number, 1)
    assert found == stood[::-1]


async def test_pages_over_the_wire_are_the_history(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    await astore.call(write, talk, 0, 101)
    found: list[str] = []
    page_id: str | None = ""
    while page_id is not None:
        page = known(await rest.get(f"{EVENTS}/search", params={"limit": 20, "page_id": page_id}))
        found += page["items"]
        page_id = page["next_page_id"]
    assert found == [json.loads(text) for text in await astore.call(history, talk)]


async def test_a_page_of_long_events_ends_early_and_says_where_it_goes_on(
    talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await astore.call(write, talk, 0, 20)
    monkeypatch.setattr(reads, "PAGE_MAX_BYTES", 500)
    page = known(await rest.get(f"{EVENTS}/search"))
    assert 0 < len(page["items"]) < 20
    assert page["next_page_id"] is not None


async def test_as_many_are_counted_as_pages_hold(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    await astore.call(write, talk, 0, 300)
    shown = await astore.call(history, talk)
    counts = [known(await rest.get(f"{EVENTS}/count", params=query)) for query in FILTERS]
    assert counts == [len(expected(shown, query)) for query in FILTERS]


def test_the_table_of_filters_finds_something_and_never_everything(talk: ConversationRef) -> None:
    write(talk, 0, 1000)
    found = [len(expected(history(talk), query)) for query in FILTERS]
    assert sum(0 < each < 1000 for each in found) >= 10


WRONG_PAGES = [
    *("limit=0", "limit=101", "limit=-1", "limit=x", "limit=1e2", "sort_order=x", "source=nobody"),
    *("timestamp__gte=yesterday", "timestamp__lt=2025-13-01", "body=%00"),
    *("page_id=x", "page_id=%00", "page_id=é", "page_id=MTIz", "page_id=YS0x"),
    "page_id=YTk5OTk5OTk5OTk5OTk5OTk5OTk",
]


@pytest.mark.one_engine
async def test_a_wrong_page_is_a_422(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for query in WRONG_PAGES:
        with subtests.test(query=query):
            known(await rest.get(f"{EVENTS}/search?{query}"), 422)


async def test_a_page_begins_with_the_event_whose_id_it_is_asked_for_by(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(write, talk, 0, 7)
    shown = [json.loads(text) for text in await astore.call(history, talk)]
    for place in (0, 3, len(shown) - 1):
        page_id = shown[place]["id"]
        onwards = known(await rest.get(f"{EVENTS}/search", params={"page_id": page_id, "limit": 2}))
        assert onwards["items"] == shown[place:][:2]
        query = {"page_id": page_id, "sort_order": "TIMESTAMP_DESC"}
        back = known(await rest.get(f"{EVENTS}/search", params=query))
        assert back["items"] == shown[: place + 1][::-1]


async def test_a_page_id_is_of_one_order_alone(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    await astore.call(write, talk, 0, 3)
    page_id = known(await rest.get(f"{EVENTS}/search?limit=1"))["next_page_id"]
    known(await rest.get(f"{EVENTS}/search?sort_order=TIMESTAMP_DESC&page_id={page_id}"), 422)


@pytest.mark.parametrize("seq", [0, 2**63 - 2])
@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_may_begin_at_the_edge_of_the_numbers(
    talk: ConversationRef, seq: int, newest_first: bool
) -> None:
    write(talk, 0, 3)
    sort_order = ORDERS[newest_first]
    page_id = DirectedCursor(seq, newest_first).encode()
    event_page(talk, AgentEventPageQuery.model_validate({"page_id": page_id, "sort_order": sort_order}))


# Byte for byte


@pytest.mark.parametrize("path", ["/search", "?id={id}", "/{id}"])
async def test_an_event_is_shown_byte_for_byte(
    talk: ConversationRef, rest: httpx.AsyncClient, path: str
) -> None:
    event_id = "c8d9e0f1-a2b3-4c4d-8e5f-6a7b8c9d0e1f"
    text = (
        f'{{"of tomorrow" : [1.50, 1e2, "\\u00e9é"],\n "kind":"EventOfTomorrow", "id":"{event_id}",'
        '"timestamp":"2025-11-28T10:00:00.1", "source":"user", "nothing":null}'
    )
    await astore.call(writes.append, talk, [event(raw=text, event_id=event_id)])
    assert text in (await rest.get(EVENTS + path.format(id=event_id))).text


async def test_every_kind_of_the_wire_is_found_by_its_id(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    ids = [json.loads(text)["id"] for text in EXAMPLES]
    events = [event(raw=text, event_id=each) for text, each in zip(EXAMPLES, ids, strict=True)]
    await astore.call(writes.append, talk, events)
    for text, each in zip(EXAMPLES, ids, strict=True):
        assert (await rest.get(f"{EVENTS}/{each}")).text == text


# By id


async def test_events_of_the_other_wire_are_known_by_the_ids_that_they_are_shown_under(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(write, conversation, 0, 30)
    talk = f"{AGENT}/talk/events"
    shown = known(await rest.get(f"{talk}/search"))["items"]
    ids = [each["id"] for each in shown]
    assert len(set(ids)) == 30
    assert known(await rest.get(talk, params={"event_ids": ids})) == shown
    assert [known(await rest.get(f"{talk}/{each}")) for each in ids] == shown


async def test_the_id_that_another_wire_stored_is_nobodys_here(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, talk, [event(event_id="stored-under")])
    known(await rest.get(f"{EVENTS}/stored-under"), 404)


async def test_an_unknown_event_is_a_404(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for event_id in ["none", NONE, "%00", "0", "search "]:
        with subtests.test(event_id=event_id):
            assert known(await rest.get(f"{EVENTS}/{event_id}"), 404) == {"detail": "Not Found"}


async def test_a_batch_is_asked_for_by_body_or_query(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    await astore.call(write, talk, 0, 3)
    first, _, third = (each["id"] for each in known(await rest.get(f"{EVENTS}/search"))["items"])
    asked = [third, "none", first, third, "\0"]
    answers = [
        known(await rest.request("GET", EVENTS, json=asked)),
        known(await rest.get(EVENTS, params={"event_ids": asked})),
        known(await rest.get(EVENTS, params={"id": asked})),
    ]
    assert answers[0] == answers[1] == answers[2]
    assert [each and each["id"] for each in answers[0]] == [third, None, first, third, None]


async def test_a_batch_of_a_hundred_is_answered_and_one_more_refused(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert known(await rest.request("GET", EVENTS, json=["none"] * 100)) == [None] * 100
    known(await rest.request("GET", EVENTS, json=["none"] * 101), 400)


async def test_ids_that_no_event_has_cost_one_pass_through_the_log(
    talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = list[bytes]()

    def noted(beginning: bytes, **options: bool) -> Any:
        passes.append(beginning)
        return hashlib.sha1(beginning, usedforsecurity=False)

    await astore.call(write, talk, 0, 3)
    monkeypatch.setattr(v0_as_v1, "hashlib", SimpleNamespace(sha1=noted))
    asked = [str(uuid5(NAMESPACE_URL, str(number))) for number in range(100)]
    assert known(await rest.request("GET", EVENTS, json=asked)) == [None] * 100
    assert len(passes) == 1


async def test_a_batch_of_long_events_is_answered_whole(
    talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await astore.call(write, talk, 0, 20)
    log = known(await rest.get(f"{EVENTS}/search"))["items"]
    monkeypatch.setattr(reads, "PAGE_MAX_BYTES", 500)
    asked = [each["id"] for each in reversed(log)]
    assert known(await rest.request("GET", EVENTS, json=asked)) == log[::-1]


async def test_a_batch_of_nothing_readable_is_a_422(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for body in [b"", b"{", b'{"a":1}', b"[1]", b'"text"']:
        with subtests.test(body=body):
            known(await rest.request("GET", EVENTS, content=body), 422)


@pytest.mark.parametrize(
    ("path", "queries"),
    [("/search", 4), ("/count", 3), ("/count?source=user", 3), ("?id={ids}", 3), ("/{last}", 3)],
)
@pytest.mark.needs_engine
def test_the_number_of_queries_does_not_grow_with_the_log(
    talk: ConversationRef, path: str, queries: int
) -> None:
    browser = Browser()
    numbers = set()
    for count in (5, 95):
        write(talk, Conversation.objects.get().next_seq, count)
        ids = [json.loads(text)["id"] for text in history(talk) if json.loads(text)["kind"] == "PauseEvent"]
        asked = EVENTS + path.format(ids="&id=".join(ids), last=ids[-1])
        browser.get(asked)
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(asked).status_code == 200
        numbers.add(len(captured))
    assert numbers == {queries}


# Saying


async def test_what_is_said_is_stored_and_waits_for_a_run(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert known(await rest.post(EVENTS, json={**said("hello"), "sender": "me", "x": 1})) == {"success": True}
    prompt, event = known(await rest.get(f"{EVENTS}/search"))["items"]
    assert prompt["kind"] == "SystemPromptEvent"
    assert (event["kind"], event["source"], event["sender"]) == ("MessageEvent", "user", "me")
    assert event["llm_message"] == {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    known(await rest.post(f"{AGENT}/{ID}/run"))
    await until_said(talk, "answer to hello")


async def test_what_is_said_to_run_is_answered(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    known(await rest.post(EVENTS, json=said("hello", run=True)))
    await until_said(talk, "answer to hello")


async def test_what_is_said_may_be_one_text(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    known(await rest.post(EVENTS, json={"content": "hello"}))
    _, event = known(await rest.get(f"{EVENTS}/search"))["items"]
    assert event["llm_message"]["content"] == [{"type": "text", "text": "hello"}]


NO_MESSAGES: list[Any] = [
    {"role": "assistant", "content": "hello"},
    {"role": 1},
    {},
    {"nonsense": 1},
    {"type": "ping", "run": True},
    {"role": "user", "run": True},
    {"role": "user", "content": None},
    {"role": "user", "content": []},
    {"content": {"type": "text"}},
    {"content": [{"type": "video"}]},
    {"content": [1]},
    {"content": "hello", "run": "perhaps"},
    {"content": "hello", "sender": 1},
    [],
    "hello",
    None,
]


async def test_what_is_no_message_is_a_422_and_not_stored(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for body in NO_MESSAGES:
        with subtests.test(body=body):
            assert isinstance(known(await rest.post(EVENTS, json=body), 422)["detail"], list)
            assert known(await rest.get(f"{EVENTS}/count")) == 0


# Deciding


async def waiting(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    known(await rest.post(EVENTS, json=said("approve", run=True)))
    await until_status(talk, "waiting_for_confirmation")


async def test_an_approved_call_goes_on(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await waiting(talk, rest)
    answer = await rest.post(f"{EVENTS}/respond_to_confirmation", json={"accept": True})
    assert known(answer) == {"success": True}
    stage.go.set()
    await until_status(talk, "finished")
    found = known(await rest.get(f"{EVENTS}/search?kind=ObservationEvent"))["items"]
    assert len(found) == 1


async def test_a_refused_call_is_told_why_and_the_conversation_is_idle(
    stage: Stage, manager: object, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await waiting(talk, rest)
    body = {"accept": False, "reason": "Not green."}
    known(await rest.post(f"{EVENTS}/respond_to_confirmation", json=body))
    (event,) = known(await rest.get(f"{EVENTS}/search?kind=UserRejectObservation"))["items"]
    assert event["rejection_reason"] == "Not green."
    assert known(await rest.get(f"{AGENT}/{ID}"))["execution_status"] == "idle"


async def test_where_nothing_waits_a_refusal_changes_nothing(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    known(await rest.post(f"{EVENTS}/respond_to_confirmation", json={"accept": False}))
    assert known(await rest.get(f"{EVENTS}/count")) == 0
