"""Frames sent without waiting are stored in their order, or refused from the first refused one on."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection

import conversations.log.append
from conversations.log import locks, writes
from conversations.models import ConversationRef, Version
from conversations.payloads.bounds import LIGHT_MAX_CHARACTERS
from conversations.store import creation
from convserver.asgi import application
from sessions_app import astore
from sessions_app.identity.principals import Principal
from sessions_app.loops.manager import ConversationManager
from sessions_app.sockets.native import frames
from tests.conftest import Connect, Dial, Join
from tests.doors.v0.test_v0_polling import NOTHING, joined
from tests.support.people.clients import WAIT_S, Client, database_url
from tests.support.people.scripted_agent import (
    Hooked,
    Stage,
    hooked,
    log,
    manager,
    stage,
    until_here,
    until_said,
)
from tests.support.wires.v0_socket import V0Client
from tests.support.wires.v1_socket import events_path, message, session_path

pytestmark = [pytest.mark.needs_engine, pytest.mark.no_second_try]

__all__ = ["hooked", "manager", "stage"]


@contextmanager
def locked(conversation: ConversationRef) -> Iterator[Callable[[], None]]:
    """Hold what an append waits for, as another program; yield what lets it go."""
    if connection.vendor == "postgresql":
        outside: Any = psycopg.connect(database_url())
        outside.execute(
            "SELECT 1 FROM conversations_conversation WHERE id = %s FOR UPDATE", [conversation.pk]
        )
    else:
        outside = sqlite3.connect(connection.settings_dict["NAME"], uri=True, isolation_level=None)
        outside.execute("BEGIN IMMEDIATE")
    try:
        yield outside.rollback
    finally:
        outside.close()


async def record(client: Client, *names: str) -> None:
    """Send a frame `event` each."""
    for name in names:
        await client.send({"type": "event", "id": name, "event": command(name)})


def command(name: str) -> dict[str, Any]:
    return {"action": "run", "source": "user", "args": {"command": name}}


async def answers(client: Client, *names: str) -> list[tuple[str, Any]]:
    """Return what each frame is answered: its seq, or the code of the error."""
    found: dict[str, tuple[str, Any]] = {}
    while set(names) - set(found):
        frame = await client.receive(within_s=2 * WAIT_S)
        if frame["type"] in ("ack", "error"):
            found[frame["id"]] = (frame["type"], frame.get("seq", frame.get("code")))
    return [found[name] for name in names]


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for locks for a second."""
    monkeypatch.setattr(conversations.log.append, "LOCK_TIMEOUT_S", 1)
    monkeypatch.setattr(locks, "LOCK_TIMEOUT_S", 1)


async def test_frames_that_came_before_a_refusal_was_sent_are_refused_with_it(
    join: Join, conversation: ConversationRef, hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations.log.append, "LOCK_TIMEOUT_S", 1)
    client = await join(conversation)
    await client.until("hello")
    append = hooked(writes, "append_many")
    if connection.vendor == "postgresql":  # the first try is one that waits for no lock
        append.before(lambda: None)
    trying = append.hold()
    with locked(conversation) as unlock:
        await record(client, "f00")
        await trying.reached()
        await record(client, "f01", "f02")
        await client.send({"type": "auth", "id": "taken", "token": ""})
        await client.until("ack", id="taken")
        trying.let_go.set()
        refused = await client.until("error", id="f00")
        unlock()
    assert refused["code"] in ("busy", "unavailable")
    assert await answers(client, "f01", "f02") == [("error", refused["code"])] * 2
    assert await log(conversation) == []
    await record(client, "f00", "f01", "f02")
    assert await answers(client, "f00", "f01", "f02") == [("ack", 0), ("ack", 1), ("ack", 2)]


async def test_frames_behind_one_that_came_late_and_was_refused_are_refused_with_it_but_not_those_of_others(
    join: Join, conversation: ConversationRef, hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations.log.append, "LOCK_TIMEOUT_S", 1)
    client, other = await join(conversation), await join(conversation)
    await record(client, "f00")
    assert await answers(client, "f00") == [("ack", 0)]
    append = hooked(writes, "append_many")
    if connection.vendor == "postgresql":  # the first try is one that waits for no lock
        append.before(lambda: None)
    trying = append.hold()
    with locked(conversation) as unlock:
        await record(other, "g00")
        await trying.reached()
        await record(client, "f01", "f02")
        await client.send({"type": "auth", "id": "taken", "token": ""})
        await client.until("ack", id="taken")
        await record(other, "g01")
        await other.send({"type": "auth", "id": "taken", "token": ""})
        await other.until("ack", id="taken")
        came_at = time.monotonic()
        await until_here(lambda: time.monotonic() > came_at + 1)
        trying.let_go.set()
        refused = await client.until("error", id="f01")
        unlock()
    assert await answers(client, "f02") == [("error", refused["code"])]
    assert await answers(other, "g00") == [("error", refused["code"])]
    await record(other, "g02")
    assert await answers(other, "g02") in ([("ack", 1)], [("ack", 2)])
    await record(client, "f01", "f02")
    assert [kind for kind, _ in await answers(client, "f01", "f02")] == ["ack", "ack"]


# The sockets that store one frame before they read the next


async def v1_outcomes(client: Client, count: int) -> list[str]:
    """Return the next answers to messages: the code of an error, or the text of the stored message."""
    found: list[str] = []
    while len(found) < count:
        frame = json.loads(await client.receive_text(within_s=2 * WAIT_S))
        frame = frame.get("event", frame)
        if "code" in frame:
            found.append(frame["code"])
        elif frame["kind"] == "MessageEvent" and frame["source"] == "user":
            found.append(frame["llm_message"]["content"][0]["text"])
    return found


async def test_v1_messages_that_came_before_a_refusal_was_sent_are_refused_with_it(
    dial: Dial, alice: User, short_waits: None, subtests: pytest.Subtests
) -> None:
    for name, path in (("events", events_path), ("session", session_path)):
        with subtests.test(socket=name):
            talk = await astore.call(creation.create, alice, version=Version.V1)
            client = await dial(path(talk), query={"resend_mode": "all"} if name == "events" else None)
            await client.receive_text()
            with locked(talk) as unlock:
                for text in ("f01", "f02", "f03"):
                    await client.send(message([{"type": "text", "text": text}]))
                (refused,) = await v1_outcomes(client, 1)
                unlock()
            assert await v1_outcomes(client, 2) == [refused] * 2
            assert refused in ("ConversationBusy", "InternalServerError")
            for text in ("f01", "f02", "f03"):
                await client.send(message([{"type": "text", "text": text}]))
            assert await v1_outcomes(client, 3) == ["f01", "f02", "f03"]


async def test_what_a_v1_client_sends_after_a_refusal_is_stored_also_if_a_frame_between_was_none(
    dial: Dial, alice: User, short_waits: None
) -> None:
    talk = await astore.call(creation.create, alice, version=Version.V1)
    client = await dial(session_path(talk))
    await client.receive_text()
    with locked(talk) as unlock:
        await client.send(message([{"type": "text", "text": "f01"}]))
        await client.send("no JSON")
        await client.send({"type": "auth", "session_api_key": "any"})
        await client.send(message([{"type": "text", "text": "f02"}]))
        (refused,) = await v1_outcomes(client, 1)
        unlock()
    assert await v1_outcomes(client, 2) == ["ValidationError", refused]
    await client.send(message([{"type": "text", "text": "f01"}]))
    assert await v1_outcomes(client, 1) == ["f01"]


async def test_what_a_v1_client_of_an_older_release_has_sent_is_stored_as_far_as_it_can_be(
    dial: Dial, alice: User, short_waits: None
) -> None:
    talk = await astore.call(creation.create, alice, version=Version.V1)
    client = await dial(events_path(talk), query={"resend_all": "true"})
    await client.receive_text()
    with locked(talk) as unlock:
        for text in ("f01", "f02"):
            await client.send(message([{"type": "text", "text": text}]))
        (refused,) = await v1_outcomes(client, 1)
        unlock()
    assert refused in ("ConversationBusy", "InternalServerError")
    assert await v1_outcomes(client, 1) == ["f02"]


def v0_packet(name: str) -> str:
    """Return a packet that records a command and asks for an acknowledgement, whose number is the name's."""
    return f"42{name[1:]}{json.dumps(['oh_user_action', {'action': 'run', 'args': {'command': name}}])}"


async def v0_outcomes(client: V0Client, *names: str) -> list[Any]:
    """Return how each is acknowledged: the id of the event, or the words of the error."""
    found: dict[str, Any] = {}
    while set(names) - set(found):
        packet = await client.packet(within_s=2 * WAIT_S)
        if packet.startswith("43"):
            (answer,) = json.loads(packet[4:])
            found[f"f{packet[2:4]}"] = answer["id"] if answer["success"] else answer["error"]
    return [found[name] for name in names]


async def commands(conversation: ConversationRef) -> list[str]:
    found = [json.loads(each["payload"]).get("args", {}) for each in await log(conversation)]
    return [args["command"] for args in found if "command" in args]


async def test_v0_events_that_came_before_a_refusal_was_sent_are_refused_with_it(
    connect: Connect, conversation: ConversationRef, short_waits: None
) -> None:
    client = await connect("talk")
    await client.send_packet(v0_packet("f10"))
    assert isinstance((await v0_outcomes(client, "f10"))[0], int)
    with locked(conversation) as unlock:
        for name in ("f11", "f12", "f13"):
            await client.send_packet(v0_packet(name))
        (refused,) = await v0_outcomes(client, "f11")
        unlock()
    assert isinstance(refused, str)
    assert await v0_outcomes(client, "f12", "f13") == [refused] * 2
    assert await commands(conversation) == ["f10"]
    for name in ("f11", "f12", "f13"):
        await client.send_packet(v0_packet(name))
    await v0_outcomes(client, "f11", "f12", "f13")
    assert await commands(conversation) == ["f10", "f11", "f12", "f13"]


async def test_v0_events_of_one_post_are_refused_from_the_first_refused_one_on(
    live: None, alice: User, conversation: ConversationRef, short_waits: None
) -> None:
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        polled = await joined(http, NOTHING)
        with locked(conversation) as unlock:
            posting = asyncio.create_task(polled.post("\x1e".join(map(v0_packet, ("f11", "f12", "f13")))))
            await polled.until("STATUS$ERROR")
            unlock()
        assert (await posting).status_code == 200
        assert await commands(conversation) == []
        assert (await polled.post("\x1e".join(map(v0_packet, ("f11", "f12", "f13"))))).status_code == 200
        assert await commands(conversation) == ["f11", "f12", "f13"]
        await polled.post("1")


async def test_a_frame_that_is_still_read_when_the_refusal_is_sent_is_refused_with_it(
    join: Join, conversation: ConversationRef, hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations.log.append, "LOCK_TIMEOUT_S", 1)
    client = await join(conversation)
    await client.until("hello")
    read = hooked(frames, "recorded_event")
    with locked(conversation) as unlock:
        await record(client, "f00")
        await read.called(1)
        reading = read.hold()
        long = {"action": "run", "source": "user", "args": {"command": "x" * LIGHT_MAX_CHARACTERS}}
        await client.send({"type": "event", "id": "f01", "event": long})
        await reading.reached()
        refused = await client.until("error", id="f00")
        unlock()
        reading.let_go.set()
    assert await answers(client, "f01") == [("error", refused["code"])]
    assert await log(conversation) == []
    await record(client, "f00", "f01")
    assert await answers(client, "f00", "f01") == [("ack", 0), ("ack", 1)]


async def test_an_agent_is_not_refused_with_the_frames_of_the_client_that_has_woken_it(
    join: Join,
    conversation: ConversationRef,
    manager: ConversationManager,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversations.log.append, "LOCK_TIMEOUT_S", 1)
    client = await join(conversation)
    await client.send({"type": "message", "id": "m", "text": "hold"})
    await stage.holding()
    with locked(conversation):
        await record(client, "f00")
        await until_here(lambda: astore.database().queue.users == 1)
        await client.leave()
        await until_here(lambda: astore.database().queue.users == 0)  # refused, and no client hears of it
    stage.go.set()
    await until_said(conversation, "step 1", "step 2")


async def test_a_frame_that_fails_before_its_append_is_answered_in_its_turn_and_those_behind_are_refused(
    join: Join, conversation: ConversationRef, hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await join(conversation)
    await client.until("hello")
    holding = hooked(writes, "append_many").hold()
    await record(client, "f00")
    await holding.reached()
    require_access = Principal.require_access
    is_away = [True]

    async def fail_once(principal: Principal) -> None:
        if is_away:
            is_away.pop()
            raise OperationalError("server closed the connection unexpectedly")
        await require_access(principal)

    monkeypatch.setattr(Principal, "require_access", fail_once)
    await record(client, "f01", "f02")
    await client.send({"type": "auth", "id": "taken", "token": ""})
    await client.until("ack", id="taken")
    holding.let_go.set()
    assert await answers(client, "f00", "f01", "f02") == [("ack", 0), *[("error", "unavailable")] * 2]
    await record(client, "f01", "f02")
    assert await answers(client, "f01", "f02") == [("ack", 1), ("ack", 2)]


async def test_frames_of_one_request_are_refused_from_the_first_refused_one_on(
    rest: httpx.AsyncClient, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_many = writes.append_many
    is_away = [True]

    def fail(requests: Any) -> Any:
        if is_away and any(each.event_id == "f01" for request in requests for each in request.events):
            raise OperationalError("disk I/O error") from psycopg.errors.IoError()
        return append_many(requests)

    monkeypatch.setattr(writes, "append_many", fail)
    events = [{"type": "event", "id": name, "event": command(name)} for name in ("f00", "f01", "f02")]
    path = f"/api/native/conversations/{conversation.public_id}/events"
    answered = (await rest.post(path, json=[*events[:2], {"type": "event", "id": "none"}, events[2]])).json()
    assert [each.get("code", each["type"]) for each in answered] == [
        "ack",
        "unavailable",
        "bad_frame",
        "unavailable",
    ]
    is_away.pop()
    answered = (await rest.post(path, json=events)).json()
    assert [(each["type"], each["seq"]) for each in answered] == [("ack", 0), ("ack", 1), ("ack", 2)]


async def test_a_frame_by_socket_is_repeated_by_rest_with_the_same_bytes(
    join: Join, rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    client = await join(conversation)
    event = '{"action": "note"}'
    await client.send(f'{{"type": "event", "id": "n", "event": {event}}}')
    assert (await client.until("ack", id="n"))["seq"] == 0
    path = f"/api/native/conversations/{conversation.public_id}/events"
    headers = {"content-type": "application/json"}
    for written, status in ((event, 200), (event.replace(" ", ""), 409)):
        frame = f'{{"id":"n","type":"event","event":{written}}}'
        answer = await rest.post(path, content=frame, headers=headers)
        assert answer.status_code == status, answer.text
        assert status == 200 or "Send the same bytes" in answer.json()["detail"]
