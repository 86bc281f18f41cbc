"""Payloads: what was sent comes back byte for byte, and what is no event is refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from conversations.models import ConversationRef, Event
from conversations.payloads import jsontext
from conversations.store import creation
from sessions_app import astore
from tests.conftest import Join
from tests.support.data.events import payload
from tests.support.people.clients import Client

pytestmark = pytest.mark.one_engine

JSON = {"content-type": "application/json"}


def nested(depth: int) -> str:
    return '[{"a":' * depth + "1" + "}]" * depth


PAYLOADS = {
    "nul": r'{"action":"message","args":{"content":"a\u0000b","\u0000":"\u0000"}}',
    "lone-surrogates": r'{"action":"message","args":{"content":"\ud800 \udc00\ud83d","\udfff":1}}',
    "escapes": r'{"action":"message","args":{"content":"\/\b\f\n\r\t\"\\\u00e9\uD83D\uDE00é😀"}}',
    "raw-specials": '{"action":"message","args":{"content":"\u2028\u2029\ufeff\u200b\x7f\u0085"}}',
    "numbers": '{"action":"a","args":{"n":[1.10,1E5,1e+5,4.2e-05,-0,-0.0,1e400,1E-400,0.30000000000000004]}}',
    "30-digit-integer": '{"action":"message","args":{"n":' + "1234567890" * 3 + "}}",
    "5000-digit-integer": '{"action":"message","args":{"n":-' + "9" * 5_000 + "}}",
    "megabyte": '{"action":"message","args":{"content":"' + "0123456789abcdé" * 65_536 + '"}}',
    "unknown-action": '{"action":"dance","args":{"steps":3}}',
    "unknown-observation": '{"observation":"weather","content":"rain","extras":{}}',
    "unknown-kind": '{"kind":"EventOfTomorrow","payload":{"of":["any",{"shape":null}]}}',
    "extra-keys": '{"zzz":1,"action":"message","":{},"args":{"content":"x","a":[]},"kind":7,"__proto__":{}}',
    "repeated-keys": '{"action":"run","action":"message","args":{"content":"a"},"args":{"content":"b"}}',
    "whitespace": '{ \t\r\n"action"\n: "message" ,\r"args":\t{ } , "a" : [ 1 ,\n2 ] \r\n}',
    "deep": '{"action":"message","args":' + nested(200) + "}",
    "own-envelope": '{"id":41,"timestamp":"2025-01-01T00:00:00","cause":40,"action":"message","args":{}}',
    "own-id": '{"kind":"MessageEvent","id":"7c8e","timestamp":"2025-01-01T00:00:00.1","source":"user"}',
    "wrong-types": '{"action":"message","args":[1],"source":7,"timestamp":{},"id":"x","cause":[]}',
    "wrong-types-v1": '{"kind":"MessageEvent","id":{},"source":[],"timestamp":0,"llm_message":"no"}',
}

NOT_JSON = {
    "comma-before-the-end": '{"action":"message",}',
    "nan": '{"action":"message","args":{"n":NaN}}',
    "infinity": '{"action":"message","args":{"n":Infinity}}',
    "minus-infinity": '{"action":"message","args":[-Infinity]}',
    "single-quotes": "{'action':'message'}",
    "bare-word": '{"action":message}',
    "raw-control-character": '{"action":"mess\nage"}',
    "cut-short": '{"action":"message","args":{"content":"hel',
    "half-an-escape": r'{"action":"\u12"}',
    "leading-zero": '{"action":"message","args":{"n":01}}',
    "too-deep": '{"action":"message","args":' + nested(50_000) + "}",
    "two-values": '{"action":"message"} {"action":"message"}',
}

NO_EVENTS = {
    "list": "[]",
    "string": '"message"',
    "number": "1",
    "null": "null",
    "true": "true",
    "without-type": '{"args":{"content":"x"}}',
    "empty": "{}",
    "empty-type": '{"action":""}',
    "type-of-another-type": '{"kind":5}',
    "two-types": '{"action":"run","observation":"run"}',
}


def url(conversation_id: str) -> str:
    return f"/api/native/conversations/{conversation_id}/events"


def frame(text: str) -> str:
    return f'{{"type":"event","id":"mine","event":{text}}}'


def ends_with_payload(received: str, text: str) -> bool:
    return received.endswith(f'"event":{text}}}')


async def next_event(socket: Client) -> str:
    while True:
        received = await socket.receive_text()
        if received.startswith('{"type":"event"'):
            return received


def rows(conversation: ConversationRef) -> list[tuple[str, int]]:
    return list(Event.objects.of(conversation).values_list("payload", "size"))


@pytest.mark.needs_engine
async def test_what_a_socket_sends_comes_back_byte_for_byte_everywhere(
    subtests: pytest.Subtests, alice: User, join: Join, rest: httpx.AsyncClient
) -> None:
    for case, text in PAYLOADS.items():
        with subtests.test(case):
            talk = await astore.call(creation.create, alice, conversation_id=case)
            sender, follower = await join(talk), await join(talk)
            await follower.until("replay_complete")
            await sender.send(frame(text))
            live, replayed = await next_event(follower), await next_event(await join(talk))
            page = (await rest.get(url(case))).content.decode()
            assert ends_with_payload(live, text)
            assert ends_with_payload(replayed, text)
            assert page == f'{{"events":[{live}],"last_seq":0}}'
            assert await astore.call(rows, talk) == [(text, len(text.encode()))]


@pytest.mark.needs_engine
async def test_what_rest_sends_comes_back_byte_for_byte(
    subtests: pytest.Subtests, alice: User, join: Join, rest: httpx.AsyncClient
) -> None:
    for case, text in PAYLOADS.items():
        with subtests.test(case):
            talk = await astore.call(creation.create, alice, conversation_id=case)
            alone = await rest.post(url(case), content=frame(text).encode(), headers=JSON)
            listed = await rest.post(url(case), content=f" [ {frame(text)} ] ".encode(), headers=JSON)
            assert (alone.json(), listed.json()) == (
                {"type": "ack", "id": "mine", "seq": 0},
                [{"type": "ack", "id": "mine", "seq": 0}],
            )
            assert ends_with_payload(await next_event(await join(talk)), text)


@pytest.mark.needs_engine
async def test_a_batch_keeps_every_byte_of_each_event(conversation: ConversationRef, join: Join) -> None:
    texts = [text for name, text in PAYLOADS.items() if name != "megabyte"]
    socket = await join(conversation)
    items = " ,\n".join(f'{{ "event" : {text} , "id" : {number} }}' for number, text in enumerate(texts))
    await socket.send(f'{{"events": [ {items} ], "id": 1, "type": "events"}}')
    received = [await next_event(socket) for _ in texts]
    assert [ends_with_payload(*pair) for pair in zip(received, texts, strict=True)] == [True] * len(texts)


async def test_a_socket_refuses_what_is_not_json_in_a_sentence(
    subtests: pytest.Subtests, alice: User, join: Join
) -> None:
    for case, text in NOT_JSON.items():
        with subtests.test(case):
            talk = await astore.call(creation.create, alice, conversation_id=case)
            socket = await join(talk)
            await socket.send(frame(text))
            refusal = await socket.until("error")
            assert (refusal["code"], refusal["id"]) == ("bad_frame", None)
            assert refusal["detail"].startswith("A frame is one JSON object: ")
            assert await astore.call(rows, talk) == []


async def test_a_socket_refuses_what_is_no_event_in_a_sentence_with_the_frames_id(
    subtests: pytest.Subtests, alice: User, join: Join
) -> None:
    for case, text in NO_EVENTS.items():
        with subtests.test(case):
            talk = await astore.call(creation.create, alice, conversation_id=case)
            socket = await join(talk)
            await socket.send(frame(text))
            refusal = await socket.until("error", id="mine")
            assert refusal["code"] in ("bad_frame", "invalid_event")
            assert refusal["detail"].endswith(".")
            assert await astore.call(rows, talk) == []


async def test_rest_refuses_what_is_no_event_in_a_sentence(
    subtests: pytest.Subtests, alice: User, rest: httpx.AsyncClient
) -> None:
    for case, text in (NOT_JSON | NO_EVENTS).items():
        with subtests.test(case):
            talk = await astore.call(creation.create, alice, conversation_id=case)
            answer = await rest.post(url(case), content=frame(text).encode(), headers=JSON)
            assert answer.status_code == 400
            assert answer.json()["detail"].endswith(".")
            assert await astore.call(rows, talk) == []


async def test_rest_refuses_bytes_that_are_no_text(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    body = frame('{"action":"message","args":{"content":"\u00e9"}}').encode("latin-1")
    answer = await rest.post(url("talk"), content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_frame")
    assert await astore.call(rows, conversation) == []


@pytest.mark.needs_engine
async def test_columns_are_read_beside_an_integer_too_long_for_python(
    conversation: ConversationRef, join: Join
) -> None:
    # Not followed: the event itself, which may come before the ack, is more than Python's json reads.
    socket = await join(conversation, follow="false")
    digits = "7" * 5_000
    await socket.send(frame(f'{{"action":"message","id":41,"args":{{"content":"Hi","n":{digits}}}}}'))
    await socket.until("ack", id="mine")
    assert await astore.call(lambda: list(Event.objects.values_list("wire_id", "text"))) == [(41, "Hi")]


# Taking JSON text apart

SPACES = st.text(" \t\r\n", max_size=3)
NAMES = st.one_of(st.sampled_from(["type", "id", "event"]), st.text(max_size=5))
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@st.composite
def json_texts(draw: st.DrawFn, depth: int = 2) -> str:
    """Draw a JSON value as text, in any spelling."""
    kind = draw(st.sampled_from(["word", "number", "string", "array", "object"][: 5 if depth else 3]))
    match kind:
        case "word":
            return draw(st.sampled_from(["true", "false", "null"]))
        case "number":
            return draw(NUMBERS)
        case "string":
            return json.dumps(draw(st.text(max_size=10)), ensure_ascii=draw(st.booleans()))
        case "array":
            return enclosed("[]", draw(st.lists(spaced(json_texts(depth - 1)), max_size=3)), draw(SPACES))
    return enclosed("{}", [draw(member(name, depth - 1)) for name in draw(st.lists(NAMES, max_size=3))], "")


@st.composite
def spaced(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    return draw(SPACES) + draw(texts) + draw(SPACES)


@st.composite
def member(draw: st.DrawFn, name: str, depth: int) -> str:
    return draw(spaced(st.just(json.dumps(name)))) + ":" + draw(spaced(json_texts(depth)))


def enclosed(brackets: str, parts: Sequence[str], space: str) -> str:
    return brackets[0] + (",".join(parts) or space) + brackets[1]


@given(names=st.lists(NAMES, max_size=6), data=st.data())
def test_members_are_the_very_slices_and_the_values_of_the_text(
    names: list[str], data: st.DataObject
) -> None:
    values = [data.draw(json_texts()) for _ in names]
    pairs = [
        f"{data.draw(SPACES)}{json.dumps(name)}{data.draw(SPACES)}:{data.draw(SPACES)}{value}{data.draw(SPACES)}"
        for name, value in zip(names, values, strict=True)
    ]
    text = data.draw(SPACES) + enclosed("{}", pairs, data.draw(SPACES)) + data.draw(SPACES)
    found = jsontext.members(text)
    assert {name: each.text for name, each in found.items()} == dict(zip(names, values, strict=True))
    assert {name: each.value for name, each in found.items()} == json.loads(text)


@given(values=st.lists(json_texts(), max_size=6), data=st.data())
def test_items_are_the_very_slices_and_the_values_of_the_text(values: list[str], data: st.DataObject) -> None:
    spaced = [data.draw(SPACES) + value + data.draw(SPACES) for value in values]
    text = data.draw(SPACES) + enclosed("[]", spaced, data.draw(SPACES)) + data.draw(SPACES)
    found = jsontext.items(text)
    assert [each.text for each in found] == values
    assert [each.value for each in found] == json.loads(text)


def read_or_none(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        return None


@given(text=st.one_of(json_texts(), st.text('{}[]:,"\\ue10.-tfn \n', max_size=20)))
def test_what_python_reads_is_read_and_what_it_refuses_is_refused(text: str) -> None:
    expected = read_or_none(json.loads, text)
    members, items = read_or_none(jsontext.members, text), read_or_none(jsontext.items, text)
    assert (members is not None, items is not None) == (
        isinstance(expected, dict),
        isinstance(expected, list),
    )
    if members is not None:
        assert {name: each.value for name, each in members.items()} == expected
    if items is not None:
        assert [each.value for each in items] == expected


async def test_a_stored_event_says_who_sent_it(
    alice: User, conversation: ConversationRef, join: Join
) -> None:
    socket = await join(conversation)
    await socket.send(f'{{"type": "event", "id": "a", "event": {payload()}}}')
    await socket.until("ack", id="a")
    rows = Event.objects.of(conversation)
    assert await astore.call(list, rows.values_list("sender_id", flat=True)) == [alice.pk]
