"""The native door by REST: conversations, their logs, tokens, and what wrong input is answered with."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import product
from typing import Any
from uuid import uuid4

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.cursors import FINGERPRINT_LENGTH
from conversations.events import EVENT_ID_MAX_LENGTH
from conversations.exceptions import ConversationBusy
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation, deletion
from convserver.api.native import events
from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from sessions_app import astore
from sessions_app.agents.demo import INTRODUCTION
from sessions_app.live.state_words import state_of
from sessions_app.loops import manager
from sessions_app.models import ApiToken, ExecutionStatus
from sessions_app.sockets.native import frames as native
from tests.conftest import on_postgresql
from tests.support.data.events import event, payload
from tests.support.people.clients import WAIT_S

pytestmark = pytest.mark.one_engine

LIST = "/api/native/conversations"
TALK = f"{LIST}/talk"
EVENTS = f"{TALK}/events"
TOKENS = "/api/native/tokens"


def message(text: Any = "hello", **members: Any) -> dict[str, Any]:
    return {"type": "message", "text": text, **members}


def recorded(frame_id: Any, text: str = "noted") -> dict[str, Any]:
    return {"type": "event", "id": frame_id, "event": json.loads(payload(text))}


async def until(rest: httpx.AsyncClient, path: str, condition: Callable[[Any], Any]) -> Any:
    """Ask again until the answer meets the condition, and return what the condition found."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition((await rest.get(path)).json())):
        assert time.monotonic() < deadline, "What was waited for did not happen."
        await asyncio.sleep(0.01)
    return found


def said_by_agent(page: dict[str, Any]) -> list[str]:
    return [each["text"] for each in page["events"] if (each["kind"], each["source"]) == ("message", "agent")]


def loop_is(status: str) -> Callable[[dict[str, Any]], bool]:
    return lambda state: bool(state["loop"]["execution_status"] == status)


async def log_of(rest: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = (await rest.get(EVENTS, params=query)).json()["events"]
    return events


# The list


async def listed(rest: httpx.AsyncClient, **query: Any) -> tuple[list[str], str | None]:
    page = (await rest.get(LIST, params=query)).json()
    return [each["id"] for each in page["conversations"]], page["next_page_id"]


async def test_the_list_shows_the_newest_first(alice: User, rest: httpx.AsyncClient) -> None:
    for name in ("a", "b", "c"):
        await astore.call(creation.create, alice, conversation_id=name)
    assert await listed(rest) == (["c", "b", "a"], None)


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_pages_bring_what_stands_throughout_exactly_once_whatever_else_comes_and_goes(
    alice: User, rest: httpx.AsyncClient
) -> None:
    refs = [await astore.call(creation.create, alice, conversation_id=f"old-{n:02}") for n in range(20)]
    seen: list[str] = []
    page_id: str | None = None
    for number in range(6):
        page, page_id = await listed(rest, limit=4, **({"page_id": page_id} if page_id else {}))
        seen += page
        await astore.call(creation.create, alice, conversation_id=f"new-{number}")
        await astore.call(deletion.soft_delete, refs[19 - number])  # seen already
        await astore.call(deletion.soft_delete, refs[number])  # not seen yet
        if page_id is None:
            break
    assert seen == [f"old-{n:02}" for n in range(19, 3, -1)]


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_pages_lose_none_of_those_that_were_made_in_the_same_microsecond(
    alice: User, rest: httpx.AsyncClient
) -> None:
    now = timezone.now()
    rows = [Conversation(public_id=f"same-{n}", owner=alice, created_at=now) for n in range(7)]
    await astore.call(Conversation.objects.bulk_create, rows)
    seen, page_id = await listed(rest, limit=3)
    while page_id is not None:
        page, page_id = await listed(rest, limit=3, page_id=page_id)
        seen += page
    assert seen == [f"same-{n}" for n in range(6, -1, -1)]


@pytest.mark.needs_engine
@pytest.mark.parametrize("path", [f"{LIST}?limit=100", EVENTS + "?limit=100"])
def test_a_page_takes_the_same_number_of_statements_whatever_is_there(
    conversation: ConversationRef, alice: User, path: str
) -> None:
    def statements(count: int) -> int:
        have = Conversation.objects.count()
        rows = [Conversation(public_id=f"row-{n}", owner=alice) for n in range(have, count)]
        Conversation.objects.bulk_create(rows)
        writes.append(conversation, [event() for _ in range(count)])
        with CaptureQueriesContext(connection) as captured:
            assert Browser().get(path, headers={"host": "localhost"}).status_code == 200
        return len(captured)

    assert statements(10) == statements(200) <= 5


@pytest.mark.needs_engine
async def test_the_list_finds_by_title_repository_and_trigger(alice: User, rest: httpx.AsyncClient) -> None:
    facts: dict[str, Any] = {"title": "Fix the login page", "repository": "a/b", "trigger": "gui"}
    await astore.call(lambda: creation.create(alice, conversation_id="wanted", **facts))
    await astore.call(lambda: creation.create(alice, conversation_id="other", title="Something else"))
    for query in ({"title": "LOGIN"}, {"repository": "a/b"}, {"trigger": "gui"}):
        assert await listed(rest, **query) == (["wanted"], None)


# One conversation


async def test_a_title_longer_than_any_is_not_found(alice: User, rest: httpx.AsyncClient) -> None:
    await astore.call(lambda: creation.create(alice, conversation_id="x", title="x" * 200))
    assert await listed(rest, title="x" * 50_001) == ([], None)


async def test_a_new_conversation_is_shown_as_it_was_asked_for(rest: httpx.AsyncClient) -> None:
    facts = {"id": "mine", "version": "V1", "title": "Mine", "repository": "a/b", "branch": "main"}
    answer = await rest.post(LIST, json={**facts, "unknown": "ignored"})
    assert (answer.status_code, {name: answer.json()[name] for name in facts}) == (201, facts)
    assert (await rest.get(f"{LIST}/mine")).json() == answer.json()


@pytest.mark.parametrize("body", [None, {}, dict.fromkeys(["id", "title", "repository", "branch"])])
async def test_a_new_conversation_needs_no_facts(rest: httpx.AsyncClient, body: Any) -> None:
    answer = await rest.post(LIST, json=body) if body is not None else await rest.post(LIST)
    assert (answer.status_code, len(answer.json()["id"])) == (201, 32)


async def test_an_id_can_be_taken_once(rest: httpx.AsyncClient) -> None:
    answers = [await rest.post(LIST, json={"id": "mine"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 409]
    assert answers[1].json() == {
        "code": "conversation_exists",
        "detail": "You already have a conversation mine. Use it, or choose another id.",
    }


async def test_the_id_of_a_conversation_that_one_has_deleted_can_be_restored(rest: httpx.AsyncClient) -> None:
    await rest.post(LIST, json={"id": "mine"})
    await rest.delete(f"{LIST}/mine")
    answer = await rest.post(LIST, json={"id": "mine"})
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "You have deleted the conversation mine. Restore it, or choose another id.",
    )


async def test_nobody_is_told_what_others_have_deleted(rest: httpx.AsyncClient, bob: User) -> None:
    theirs = await sync_to_async(creation.create)(bob, conversation_id="theirs")
    await sync_to_async(deletion.soft_delete)(theirs)
    answer = await rest.post(LIST, json={"id": "theirs"})
    assert answer.json()["detail"] == "The conversation id theirs is taken."


async def test_a_uuid_names_the_same_conversation_in_every_spelling(rest: httpx.AsyncClient) -> None:
    spelled = "3F2504E0-4F89-11D3-9A0C-0305E82C3301"
    await rest.post(LIST, json={"id": spelled})
    for path in (spelled, spelled.lower(), "3f2504e04f8911d39a0c0305e82c3301"):
        answer = await rest.get(f"{LIST}/{path}")
        assert answer.json()["id"] == "3f2504e04f8911d39a0c0305e82c3301"


@pytest.mark.one_engine
async def test_a_refused_id_is_told_the_rule(rest: httpx.AsyncClient) -> None:
    answer = await rest.post(LIST, json={"id": "a/b"})
    assert answer.json()["detail"] == (
        "Conversation ID contains invalid path characters. An id has 1 to 100 printable characters, "
        "without `/`, `\\` and `..`, and is not count or search."
    )


@pytest.mark.one_engine
@pytest.mark.parametrize("query", ["version=V9", "status=V9"])
async def test_a_refused_choice_is_told_what_there_is_to_choose(rest: httpx.AsyncClient, query: str) -> None:
    answer = await rest.get(f"{LIST}?{query}")
    field, _, _ = query.partition("=")
    choices = {"version": Version.values, "status": ExecutionStatus.values}[field]
    assert answer.status_code == 400
    assert answer.json()["detail"] == f'{field}: "V9" is not one of {", ".join(choices)}.'


@pytest.mark.one_engine
async def test_a_refused_scope_is_told_what_there_is_to_choose(rest: httpx.AsyncClient) -> None:
    answer = await rest.post(TOKENS, json={"name": "key", "scopes": ["everything"]})
    assert answer.json()["detail"] == 'scopes.0: "everything" is not one of read, write, run, admin.'


@pytest.mark.one_engine
@pytest.mark.parametrize("address", ["/ws/conversations", "/ws/conversations/mine"])
async def test_a_plain_request_to_the_address_of_a_socket_is_told_what_it_is(
    rest: httpx.AsyncClient, address: str
) -> None:
    answer = await rest.get(address)
    assert (answer.status_code, answer.headers["Upgrade"]) == (426, "websocket")
    assert "WebSocket client" in answer.json()["detail"]


async def test_a_title_is_changed_and_taken_back(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    titles = [
        (await rest.patch(TALK, json={"title": title})).json()["title"] for title in ("A new title", None)
    ]
    assert titles == ["A new title", "Conversation talk"]


async def test_tags_are_given_at_the_creation_and_changed_all_together(rest: httpx.AsyncClient) -> None:
    made = (await rest.post(LIST, json={"id": "talk", "tags": {"team": "blue", "due": ""}})).json()
    changed = (await rest.patch(TALK, json={"tags": {"team": "red"}, "title": "Sales"})).json()
    assert (made["tags"], changed["tags"]) == ({"team": "blue", "due": ""}, {"team": "red"})
    assert (await rest.get(TALK)).json()["title"] == "Sales"


async def test_a_new_title_leaves_the_tags(rest: httpx.AsyncClient) -> None:
    await rest.post(LIST, json={"id": "talk", "tags": {"team": "blue"}})
    assert (await rest.patch(TALK, json={"title": "Sales"})).json()["tags"] == {"team": "blue"}


async def test_a_deleted_conversation_is_gone_until_it_is_restored_whole(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event("kept")])
    before = (await rest.get(EVENTS)).text
    assert (await rest.delete(TALK)).status_code == 204
    assert [(await rest.get(path)).status_code for path in (TALK, EVENTS)] == [404, 404]
    assert (await rest.post(f"{TALK}/restore")).json()["deleted"] is False
    assert (await rest.get(EVENTS)).text == before


@pytest.mark.needs_engine
@pytest.mark.parametrize(("said", "state"), [("hello", "finished"), ("/fail", "error")])
async def test_an_agent_that_had_nothing_to_do_is_shown_after_a_restoration_as_before_the_deletion(
    conversation: ConversationRef, rest: httpx.AsyncClient, said: str, state: str
) -> None:
    await rest.post(EVENTS, json=message(said))
    await until(rest, EVENTS, lambda page: [each for each in page["events"] if each["kind"] == "turn"])
    assert state_shown((await rest.get(TALK)).json()) == state
    await rest.delete(TALK)
    assert state_shown((await rest.post(f"{TALK}/restore")).json()) == state


def state_shown(conversation: dict[str, Any]) -> str:
    loop = conversation["loop"]
    return state_of(**{name: loop[name] for name in ("status", "execution_status", "agent", "ended_by")})


async def test_deleted_conversations_have_a_list_of_their_own(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert [await listed(rest), await listed(rest, deleted="true")] == [(["talk"], None), ([], None)]
    await rest.delete(TALK)
    assert [await listed(rest), await listed(rest, deleted="true")] == [([], None), (["talk"], None)]


async def test_restoring_what_stands_changes_nothing(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    before = (await rest.get(TALK)).json()
    assert (await rest.post(f"{TALK}/restore")).json() == before


# Steering the agent


async def test_run_starts_the_loop_and_stop_ends_it(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    statuses = [
        (await rest.post(f"{TALK}/{action}")).json()["loop"]["status"] for action in ("run", "stop", "stop")
    ]
    assert statuses == ["running", "stopped", "stopped"]


async def test_a_paused_agent_answers_once_it_is_run(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert loop_is("paused")((await rest.post(f"{TALK}/pause")).json())
    await rest.post(EVENTS, json=message("wait for me"))
    assert loop_is("paused")((await rest.get(TALK)).json())
    await rest.post(f"{TALK}/run")
    (answer,) = await until(rest, EVENTS, said_by_agent)
    assert answer.startswith("You said: wait for me")


@pytest.mark.needs_engine
@pytest.mark.parametrize(("accept", "answer"), [(True, "Done."), (False, "OK, I won't.")])
async def test_a_call_that_waits_is_decided_once(
    conversation: ConversationRef, rest: httpx.AsyncClient, accept: bool, answer: str
) -> None:
    await rest.post(EVENTS, json=message("/approve"))
    await until(rest, TALK, loop_is("waiting_for_confirmation"))
    decision = {"accept": accept, "reason": "because"}
    other = await rest.post(f"{TALK}/confirm", json={**decision, "seq": 0})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert (await rest.post(f"{TALK}/confirm", json=decision)).status_code == 200
    assert await until(rest, EVENTS, said_by_agent) == [f"{answer}\n\n{INTRODUCTION}"]
    again = await rest.post(f"{TALK}/confirm", json=decision)
    assert (again.status_code, again.json()["code"]) == (409, "loop_unavailable")


# Tokens


async def test_a_token_is_shown_once_and_opens_the_door_until_it_is_revoked(
    accounts: None, alice: User, rest: httpx.AsyncClient
) -> None:
    _, first = await astore.call(ApiToken.issue, alice.pk, "first")
    own = {"authorization": f"Bearer {first}"}
    made = (await rest.post(TOKENS, json={"name": "second"}, headers=own)).json()
    new = {"authorization": f"Bearer {made.pop('token')}"}
    shown = (await rest.get(TOKENS, headers=own)).json()["tokens"]
    assert made in shown
    assert (await rest.get(TOKENS, headers=new)).status_code == 200
    again = await rest.post(TOKENS, json={"name": "second"}, headers=own)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert "“second”" in again.json()["detail"]
    assert (await rest.delete(f"{TOKENS}/{made['id']}", headers=own)).status_code == 204
    assert (await rest.get(TOKENS, headers=new)).status_code == 401


# Reading the log


PAGES: list[tuple[dict[str, int], list[int]]] = [
    ({}, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ({"after": -1, "limit": 3}, [0, 1, 2]),
    ({"after": 4}, [5, 6, 7, 8, 9]),
    ({"after": 4, "limit": 2}, [5, 6]),
    ({"after": 9}, []),
    ({"before": 4}, [0, 1, 2, 3]),
    ({"before": 4, "limit": 2}, [2, 3]),
    ({"before": 0}, []),
    ({"before": 2**63 - 1, "limit": 2}, [8, 9]),
    ({"after": 2, "before": 6}, [3, 4, 5]),
    ({"after": 2, "before": 6, "limit": 2}, [4, 5]),
    ({"after": 6, "before": 2}, []),
]


@pytest.mark.needs_engine
async def test_a_page_of_the_log_is_what_was_asked_for(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await astore.call(writes.append, conversation, [event() for _ in range(10)])
    for query, expected in PAGES:
        with subtests.test(query=query, expected=expected):
            page = (await rest.get(EVENTS, params=query)).json()
            assert ([each["seq"] for each in page["events"]], page["last_seq"]) == (expected, 9)


async def test_the_log_goes_on_after_the_cursor_of_any_event(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(writes.append, conversation, [event() for _ in range(3)])
    for each in (await rest.get(EVENTS)).json()["events"]:
        page = (await rest.get(EVENTS, params={"after": each["cursor"]})).json()
        assert [event["seq"] for event in page["events"]] == list(range(each["seq"] + 1, 3))


GONE: list[tuple[str, str]] = [
    ("3", "cursor_ahead"),
    (str(2**63 - 1), "cursor_ahead"),
    (f"3.{'0' * FINGERPRINT_LENGTH}", "cursor_ahead"),
    (f"2.{'0' * FINGERPRINT_LENGTH}", "history_replaced"),
    (f"0.{'0' * FINGERPRINT_LENGTH}", "history_replaced"),
]


@pytest.mark.needs_engine
async def test_a_cursor_of_another_history_is_gone(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await astore.call(writes.append, conversation, [event() for _ in range(3)])
    for (after, code), more in product(GONE, [{}, {"before": "1"}]):
        with subtests.test(str(more), after=after, code=code):
            answer = await rest.get(EVENTS, params={"after": after, **more})
            assert (answer.status_code, answer.json()["code"]) == (410, code)
            assert "read from the beginning" in answer.json()["detail"]


async def test_the_log_is_read_as_the_bytes_that_were_sent(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    sent = (
        '{"action":"note", "a":1.10,\t"b":1E400, "c":123456789012345678901234567890, "d":"\\ud800 \\u0000 ü"}'
    )
    answer = await rest.post(
        EVENTS,
        content=f'{{"type": "event", "id": "x", "event": {sent} }}'.encode(),
        headers={"content-type": "application/json"},
    )
    assert answer.json() == {"type": "ack", "id": "x", "seq": 0}
    assert f'"event":{sent}}}' in (await rest.get(EVENTS)).text


# Writing to the log


async def test_a_message_is_acknowledged_and_answered_by_the_agent(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await rest.post(EVENTS, json=message("good morning", id=1))
    assert (answer.status_code, answer.json()) == (200, {"type": "ack", "id": 1, "seq": 0})
    (said,) = await until(rest, EVENTS, said_by_agent)
    assert said.startswith("You said: good morning")


async def test_an_event_is_recorded_and_answered_by_nobody(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await rest.post(EVENTS, json=recorded("a"))
    row = await astore.call(Conversation.objects.get, pk=conversation.pk)
    assert (row.next_seq, row.is_unanswered) == (1, False)


async def test_events_stand_together_or_not_at_all(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    one, two = ({"id": name, "event": json.loads(payload(name))} for name in ("a", "b"))
    good = await rest.post(EVENTS, json={"type": "events", "id": "x", "events": [one, two]})
    alone = await rest.post(EVENTS, json={"type": "events", "id": "y", "events": [one]})
    other = {"id": "b", "event": json.loads(payload("other bytes"))}
    bad = await rest.post(EVENTS, json={"type": "events", "events": [{**one, "id": "c"}, other]})
    assert (good.json()["seqs"], alone.json()["seqs"]) == ([0, 1], [0])
    assert (bad.status_code, bad.json()["code"]) == (409, "conflict")
    assert len(await log_of(rest)) == 2


async def test_each_frame_of_a_list_stands_for_itself(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    frames = [recorded("a"), {"type": "run", "id": "b"}, 5, recorded("a", "other bytes"), recorded("c")]
    answer = await rest.post(EVENTS, json=frames)
    told = [(each["type"], each["id"], each.get("seq", each.get("code"))) for each in answer.json()]
    assert told == [
        ("ack", "a", 0),
        ("error", "b", "bad_frame"),
        ("error", None, "bad_frame"),
        ("error", "a", "conflict"),
        ("ack", "c", 1),
    ]


@pytest.mark.needs_engine
async def test_a_frame_that_is_repeated_is_stored_once(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    for frame in (recorded("a"), message(id=7), message(id=str(uuid4()))):
        answers = [(await rest.post(EVENTS, json=frame)).json() for _ in range(2)]
        assert answers == [{"type": "ack", "id": frame["id"], "seq": answers[0]["seq"]}] * 2
    assert len([each for each in await log_of(rest) if each["source"] == "user"]) == 3


async def test_ids_of_messages_count_within_their_session(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await rest.post(f"{TALK}/pause")  # for silence
    for session in ("one", "two", "one"):
        answer = await rest.post(EVENTS, params={"session": session}, json=message("hi", id=1))
        assert answer.json()["type"] == "ack"
    assert [each["text"] for each in await log_of(rest) if each["kind"] == "message"] == ["hi", "hi"]


async def test_a_uuid_is_the_same_message_in_every_session(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    frame = message("hi", id=str(uuid4()))
    acks = [
        (await rest.post(EVENTS, params={"session": session}, json=frame)).json() for session in ("a", "b")
    ]
    assert acks[0] == acks[1]


async def test_what_the_server_cannot_store_now_is_said_for_each_frame(
    conversation: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    broken.set_exception(RuntimeError("the disk is full"))
    real = astore.append_soon

    def fail_for_a(ref: ConversationRef, events: Any, **options: Any) -> asyncio.Future[Any]:
        return broken if events[0].event_id == "a" else real(ref, events, **options)

    monkeypatch.setattr(astore, "append_soon", fail_for_a)
    answer = await rest.post(EVENTS, json=[recorded("a"), recorded("b")])
    assert [each.get("code", each.get("seq")) for each in answer.json()] == ["unavailable", 0]


async def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the manager look for itself once, and then only do what it is told."""
    monkeypatch.setattr(manager, "SWEEP_S", 3_600)
    await manager.get_manager().ensure_started()


async def test_a_message_is_answered_although_its_sender_leaves_before_the_commit(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await no_sweep(monkeypatch)
    begun, let_go, real = threading.Event(), threading.Event(), writes.append_many

    def append_many(*args: Any, **options: Any) -> Any:
        begun.set()
        assert let_go.wait(WAIT_S)
        return real(*args, **options)

    monkeypatch.setattr(writes, "append_many", append_many)
    frames = [events._read(json.dumps(message("good morning")), conversation, events.Sender(alice, ""))]
    sending = asyncio.create_task(events._append(conversation, frames))
    assert await asyncio.to_thread(begun.wait, WAIT_S)
    sending.cancel()  # as a view's is when its client disconnects
    await asyncio.gather(sending, return_exceptions=True)
    let_go.set()
    (answer,) = await until(rest, EVENTS, said_by_agent)
    assert answer.startswith("You said: good morning")


async def test_a_message_does_not_wait_for_the_rest_of_its_list_to_be_answered(
    conversation: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await no_sweep(monkeypatch)
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    real = astore.append_soon

    def hold_last(ref: ConversationRef, events: Sequence[Any], **options: Any) -> asyncio.Future[Any]:
        return never if events and events[0].event_id == "held" else real(ref, events, **options)

    monkeypatch.setattr(astore, "append_soon", hold_last)
    sending = asyncio.create_task(rest.post(EVENTS, json=[message("good morning"), recorded("held")]))
    (answer,) = await until(rest, EVENTS, said_by_agent)
    never.set_exception(ConversationBusy("held for too long"))
    await sending
    assert answer.startswith("You said: good morning")


@pytest.fixture
def few_connections(database: None) -> Iterator[None]:
    """Leave so few connections that the server's own threads hold most of them."""
    pool: dict[str, Any] = connection.settings_dict["OPTIONS"]["pool"]
    usual = dict(pool)
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    pool |= {"max_size": astore.READERS + astore.CONTENDED + 3, "timeout": 2 * WAIT_S}
    yield
    pool |= usual
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]


@pytest.mark.needs_engine
@on_postgresql
async def test_more_requests_at_once_than_there_are_connections_all_succeed(
    few_connections: None, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    began = time.monotonic()
    answers = await asyncio.gather(*(rest.post(EVENTS, json=recorded(f"event-{n}")) for n in range(48)))
    assert {answer.status_code for answer in answers} == {200}
    assert time.monotonic() - began < WAIT_S  # nobody waited until a connection was given up


# Bodies without a length


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.one_engine
@pytest.mark.parametrize(("path", "status"), [(LIST, 201), (EVENTS, 200)])
async def test_a_body_that_does_not_say_its_length_is_taken(
    conversation: ConversationRef, rest: httpx.AsyncClient, path: str, status: int
) -> None:
    body = b'{"type":"event","id":"a","title":"In pieces","event":{"action":"note"}}'
    answer = await rest.post(path, content=chunks(body[:9], body[9:]), headers={"content-type": JSON})
    assert (answer.status_code, answer.json().get("title", "In pieces")) == (status, "In pieces")
    assert answer.json()["id"]


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("is_known", "limit", "refusal"),
    [
        (True, native.FRAME_MAX_BYTES, (413, "too_large")),
        (False, UNKNOWN_BODY_MAX_BYTES, (401, "not_authenticated")),
    ],
)
async def test_a_body_without_end_is_refused_once_it_is_too_large(
    accounts: None,
    alice: User,
    rest: httpx.AsyncClient,
    is_known: bool,
    limit: int,
    refusal: tuple[int, str],
) -> None:
    _, token = await sync_to_async(ApiToken.issue)(alice.pk, "key")
    own = {"authorization": f"Bearer {token}"} if is_known else {}
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while taken < 4 * native.FRAME_MAX_BYTES:
            taken += 1024 * 1024
            yield bytes(1024 * 1024)

    answer = await rest.post(EVENTS, content=endless(), headers={"content-type": JSON, **own})
    assert (answer.status_code, answer.json()["code"]) == refusal
    assert taken <= limit + 1024 * 1024


@pytest.mark.one_engine
async def test_a_length_that_is_too_large_is_refused_before_anything_is_read(
    accounts: None, rest: httpx.AsyncClient
) -> None:
    async def unread() -> AsyncIterator[bytes]:
        raise AssertionError("The body was read.")
        yield b""

    length = str(native.FRAME_MAX_BYTES + 1)
    answer = await rest.post(LIST, content=unread(), headers={"content-length": length})
    assert answer.status_code == 413


# Wrong input

JSON = "application/json"
TOO_BIG = b'{"type":"message","text":"' + b"x" * native.FRAME_MAX_BYTES + b'"}'
EVENTLESS = {"type": "events", "events": []}
NOWHERE = [
    "9" * 5_001,
    f"1.{'9' * 5_001}",
    f"{'9' * 5_001}.1",
    "1.-1",
    "1._1",
    f"1.{2**63}",
    f"{10**18}.1",
    "1.",
]


def cursor(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode()


NONSENSE: list[tuple[str, str, Any, int, str]] = [
    ("POST", LIST, b"{", 400, "parse_error"),
    ("POST", LIST, b"\xff\xfe", 400, "bad_frame"),
    ("POST", LIST, b'{"title": NaN}', 400, "parse_error"),
    ("POST", LIST, b"[" * 100_000, 400, "parse_error"),
    ("POST", LIST, b'{"id":' + b"1" * 5_000 + b"}", 400, "parse_error"),
    ("POST", LIST, b"null", 400, "invalid"),
    ("POST", LIST, b"[]", 400, "invalid"),
    ("POST", LIST, b'"text"', 400, "invalid"),
    ("POST", LIST, {"id": ["a"]}, 400, "invalid"),
    ("POST", LIST, {"id": "n" * 101}, 400, "invalid"),
    ("POST", LIST, {"id": "a\0b"}, 400, "invalid"),
    ("POST", LIST, {"id": "\ud800"}, 400, "invalid"),
    ("POST", LIST, {"id": "a/b"}, 400, "invalid_conversation_id"),
    ("POST", LIST, {"id": "search"}, 400, "invalid_conversation_id"),
    ("POST", LIST, {"version": "V2"}, 400, "invalid"),
    ("POST", LIST, {"title": {}}, 400, "invalid"),
    ("POST", LIST, {"title": "a\0b"}, 400, "invalid"),
    ("GET", f"{LIST}?limit=0", None, 400, "invalid"),
    ("GET", f"{LIST}?limit=101", None, 400, "invalid"),
    ("GET", f"{LIST}?limit={10**30}", None, 400, "invalid"),
    ("GET", f"{LIST}?limit={'9' * 5_000}", None, 400, "invalid"),
    ("GET", f"{LIST}?page_id=nonsense", None, 400, "invalid_cursor"),
    *(("GET", f"{LIST}?page_id={cursor(place)}", None, 400, "invalid_cursor") for place in NOWHERE),
    ("GET", f"{LIST}?page_id=%FF%00", None, 400, "invalid"),
    ("GET", f"{LIST}?page_id=%C3%BC", None, 400, "invalid_cursor"),
    ("GET", f"{LIST}?title=%00", None, 400, "invalid"),
    ("GET", f"{LIST}?deleted=maybe", None, 400, "invalid"),
    ("PUT", LIST, {}, 405, "method_not_allowed"),
    ("GET", f"{LIST}/none", None, 404, "not_found"),
    ("GET", f"{LIST}/a%00b", None, 400, "invalid_conversation_id"),
    ("GET", f"{LIST}/search", None, 400, "invalid_conversation_id"),
    ("GET", f"{LIST}/a%5Cb", None, 400, "invalid_conversation_id"),
    ("GET", f"{LIST}/{'n' * 101}", None, 400, "invalid_conversation_id"),
    ("GET", f"{LIST}/%FF", None, 404, "not_found"),
    ("PATCH", TALK, {}, 400, "invalid"),
    ("PATCH", TALK, {"title": ""}, 400, "invalid"),
    ("PATCH", TALK, {"tags": ["a"]}, 400, "invalid"),
    ("PATCH", TALK, {"tags": {"a": {}}}, 400, "invalid"),
    ("PATCH", TALK, {"tags": {"": "no name"}}, 400, "invalid"),
    ("PATCH", TALK, {"tags": {"a": "\0"}}, 400, "invalid"),
    ("PATCH", TALK, {"tags": {"\0": "a"}}, 400, "invalid"),
    ("PATCH", TALK, {"tags": {"n" * 101: "a"}}, 400, "invalid"),
    ("PATCH", TALK, rb'{"tags": {"\ud800": "a"}}', 400, "invalid"),
    ("POST", LIST, rb'{"tags": {"\ud800": "a"}}', 400, "invalid"),
    ("PATCH", TALK, {"tags": {str(number): "" for number in range(51)}}, 400, "invalid"),
    ("PATCH", TALK, {"title": "t" * 201}, 400, "invalid"),
    ("PUT", TALK, {"title": "t"}, 405, "method_not_allowed"),
    ("GET", f"{TALK}/run", None, 405, "method_not_allowed"),
    ("POST", f"{TALK}/jump", None, 404, "not_found"),
    ("POST", f"{TALK}/confirm", {}, 400, "invalid"),
    ("POST", f"{TALK}/confirm", {"accept": "perhaps"}, 400, "invalid"),
    ("POST", f"{TALK}/confirm", {"accept": None}, 400, "invalid"),
    ("POST", f"{TALK}/confirm", {"accept": True, "reason": "a\0b"}, 400, "invalid"),
    ("POST", f"{TALK}/confirm", {"accept": True}, 409, "loop_unavailable"),
    ("POST", f"{TALK}/confirm", {"outcome": "perhaps"}, 400, "invalid"),
    ("POST", f"{TALK}/confirm", {"outcome": "done"}, 409, "loop_unavailable"),
    ("GET", f"{EVENTS}?after=-2", None, 400, "invalid"),
    ("GET", f"{EVENTS}?after=1.5", None, 400, "invalid"),
    ("GET", f"{EVENTS}?after={2**63}", None, 400, "invalid"),
    ("GET", f"{EVENTS}?before=-1", None, 400, "invalid"),
    ("GET", f"{EVENTS}?before=x", None, 400, "invalid"),
    ("GET", f"{EVENTS}?limit=501", None, 400, "invalid"),
    ("DELETE", EVENTS, None, 405, "method_not_allowed"),
    ("POST", EVENTS, b"", 400, "bad_frame"),
    ("POST", EVENTS, b"{", 400, "bad_frame"),
    ("POST", EVENTS, b"\xff\xfe", 400, "bad_frame"),
    ("POST", EVENTS, b"[" * 100_000, 400, "bad_frame"),
    ("POST", EVENTS, b'{"type":"message","text":' + b"[" * 100_000 + b"}", 400, "bad_frame"),
    ("POST", EVENTS, b"[{}", 400, "bad_frame"),
    ("POST", EVENTS, TOO_BIG, 413, "too_large"),
    ("POST", EVENTS, [EVENTLESS] * (native.EVENTS_MAX + 1), 400, "bad_frame"),
    ("POST", EVENTS, 5, 400, "bad_frame"),
    ("POST", EVENTS, {}, 400, "bad_frame"),
    ("POST", EVENTS, {"type": 5}, 400, "bad_frame"),
    ("POST", EVENTS, {"type": "run"}, 400, "bad_frame"),
    ("POST", EVENTS, {"type": "message"}, 400, "bad_frame"),
    ("POST", EVENTS, message(text=5), 400, "bad_frame"),
    ("POST", EVENTS, message(" \n\u00a0"), 400, "bad_frame"),
    ("POST", EVENTS, message(images="one"), 400, "bad_frame"),
    ("POST", EVENTS, message(images=[5]), 400, "bad_frame"),
    ("POST", EVENTS, message(images=["a"] * 101), 400, "bad_frame"),
    ("POST", EVENTS, message(id=True), 400, "bad_frame"),
    ("POST", EVENTS, message(id=1.5), 400, "bad_frame"),
    ("POST", EVENTS, message(id=10**30), 400, "bad_frame"),
    ("POST", EVENTS, message(id=""), 400, "bad_frame"),
    ("POST", EVENTS, message(id="\ud800"), 400, "bad_frame"),
    ("POST", EVENTS, message(id="i" * (native.FRAME_ID_MAX_LENGTH + 1)), 400, "bad_frame"),
    ("POST", f"{EVENTS}?session={'s' * 101}", message(), 400, "invalid"),
    ("POST", f"{EVENTS}?session=%00", message(), 400, "invalid"),
    ("POST", EVENTS, {"type": "event"}, 400, "bad_frame"),
    ("POST", EVENTS, {"type": "event", "event": []}, 400, "bad_frame"),
    ("POST", EVENTS, {"type": "event", "event": {}}, 400, "invalid_event"),
    ("POST", EVENTS, {"type": "event", "event": {"action": "a", "observation": "b"}}, 400, "invalid_event"),
    ("POST", EVENTS, recorded("a\0b"), 400, "invalid_event"),
    ("POST", EVENTS, EVENTLESS, 400, "bad_frame"),
    ("POST", EVENTS, {"type": "events", "events": [5]}, 400, "bad_frame"),
    ("POST", EVENTS, {"type": "events", "events": {}}, 400, "bad_frame"),
    ("POST", EVENTS, {"type": "events", "events": [{"id": "a"}]}, 400, "bad_frame"),
    ("POST", EVENTS, {"type": "events", "events": [{}] * 501}, 400, "bad_frame"),
    ("POST", TOKENS, {}, 400, "invalid"),
    ("POST", TOKENS, {"name": ""}, 400, "invalid"),
    ("POST", TOKENS, {"name": "n" * 101}, 400, "invalid"),
    ("POST", TOKENS, {"name": "a\0b"}, 400, "invalid"),
    ("DELETE", f"{TOKENS}/999999999999999999", None, 404, "not_found"),
    ("DELETE", f"{TOKENS}/{'9' * 30}", None, 404, "not_found"),
    ("DELETE", f"{TOKENS}/one", None, 404, "not_found"),
    ("GET", "/api/native/nothing", None, 404, "not_found"),
    ("GET", "/api/native", None, 404, "not_found"),
    ("POST", "/api/native/conversations/", {}, 404, "not_found"),
]


def short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:50]}… of {len(text)}"


@pytest.mark.one_engine
async def test_wrong_input_is_answered_with_what_is_wrong(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for method, path, body, status, code in NONSENSE:
        with subtests.test(method=method, path=path, body=body):
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await rest.request(
                method, path, content=None if body is None else content, headers={"content-type": JSON}
            )
            assert (answer.status_code, answer.json()["code"]) == (status, code)
            assert isinstance(answer.json()["detail"], str)


SENTENCES: list[tuple[str, str, Any, str]] = [
    ("PATCH", TALK, [], "The body must be a JSON object."),
    ("PATCH", TALK, "text", "The body must be a JSON object."),
    ("PATCH", TALK, None, "The body must be a JSON object."),
    *(("POST", path, [], "The body must be a JSON object.") for path in (LIST, TOKENS, f"{TALK}/confirm")),
    ("POST", TOKENS, None, "The body must be a JSON object."),
    ("PATCH", TALK, {"title": 5}, "title: This must be a string."),
    ("PATCH", TALK, {"pinned": "yes"}, "pinned: This must be true or false."),
    ("PATCH", TALK, {"archived": 1}, "archived: This must be true or false."),
    ("POST", f"{TALK}/confirm", {"accept": "true"}, "accept: This must be true or false."),
    ("PATCH", TALK, {"tags": []}, "tags: This must be an object of names and strings."),
    ("PATCH", TALK, {"tags": {"a": 1}}, "tags.a: This must be a string."),
    ("POST", LIST, {"tags": {"a": 1.5}}, "tags.a: This must be a string."),
    ("POST", LIST, {"id": 7}, "id: This must be a string."),
    ("POST", TOKENS, {"name": 7}, "name: This must be a string."),
    ("PUT", f"{TALK}/draft", {"text": 7, "version": 0}, "text: This must be a string."),
]


@pytest.mark.one_engine
async def test_a_wrong_body_is_answered_with_a_sentence_and_changes_nothing(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for method, path, body, detail in SENTENCES:
        with subtests.test(method=method, path=path, body=body):
            before = (await rest.get(TALK)).json()
            answer = await rest.request(
                method, path, content=json.dumps(body), headers={"content-type": JSON}
            )
            assert (answer.status_code, answer.json()) == (400, {"code": "invalid", "detail": detail})
            assert (await rest.get(TALK)).json() == before


@pytest.mark.one_engine
async def test_a_blank_message_is_refused_with_a_sentence_and_not_stored(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for text in ["", "   ", "\n\t"]:
        with subtests.test(text=text):
            refused = await rest.post(EVENTS, json=message(text))
            detail = "A `message` needs a text that is not blank, images or files."
            assert (refused.status_code, refused.json()["detail"]) == (400, detail)
            assert (await rest.get(EVENTS)).json()["events"] == []


async def test_a_message_of_images_alone_needs_no_text(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    image = message("", images=["data:image/png;base64,iVBORw0KGgo="])
    assert (await rest.post(EVENTS, json=image)).status_code == 200


@pytest.mark.one_engine
async def test_a_method_that_an_address_does_not_take_is_told_those_that_it_takes(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    refused = await rest.put(TALK, json={"title": "t"})
    allowed = "GET, PATCH, DELETE, HEAD, OPTIONS"
    assert refused.json()["detail"] == f"PUT is not allowed here. Use one of: {allowed}."
    assert refused.headers["allow"] == allowed


@pytest.mark.one_engine
async def test_a_body_of_another_type_than_json_is_refused(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path, content_type in product(
        [LIST, EVENTS],
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "nonsense", ""],
    ):
        with subtests.test(path=path, content_type=content_type):
            answer = await rest.post(path, content=b"{}", headers={"content-type": content_type})
            assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


@pytest.mark.one_engine
async def test_json_is_utf_8_whatever_charset_it_claims(rest: httpx.AsyncClient) -> None:
    for charset in ("latin-1", "utf-16", "zlib", "nonsense"):
        answer = await rest.post(
            LIST, content='{"title":"ü"}'.encode(), headers={"content-type": f"{JSON}; charset={charset}"}
        )
        assert answer.json()["title"] == "ü"


async def test_an_id_of_the_greatest_length_is_taken(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert EVENT_ID_MAX_LENGTH == native.FRAME_ID_MAX_LENGTH
    longest = "i" * native.FRAME_ID_MAX_LENGTH
    answers = (await rest.post(EVENTS, json=[recorded(longest), message(id=longest)])).json()
    assert [(each["type"], each["id"]) for each in answers] == [("ack", longest)] * 2


@pytest.mark.one_engine
async def test_a_page_that_nobody_serves_is_a_page_for_people(rest: httpx.AsyncClient) -> None:
    answer = await rest.get("/nothing")
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (404, "text/html")


async def test_an_event_of_a_type_that_the_v0_door_refuses_is_recorded(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    unknown = {"action": "dance", "args": {"tempo": 1}}
    refused = await rest.post("/api/conversations/talk/events", json=unknown)
    taken = await rest.post(EVENTS, json={"type": "event", "id": "d", "event": unknown})
    assert (refused.status_code, taken.status_code) == (422, 200)
    assert [each["event"] for each in await log_of(rest)] == [unknown]
