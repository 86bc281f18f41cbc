"""The V0 door by Socket.IO: join, replay, live events, what clients send, refusals and ends (spec V0 §2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.engines import failures
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef
from conversations.store import creation, deletion
from convserver.asgi import application
from sessions_app import astore
from sessions_app.identity import open_sockets
from sessions_app.live import feed, presence
from sessions_app.loops.manager import get_manager
from sessions_app.models import ApiToken, Connection
from sessions_app.sockets.v0 import server
from tests.conftest import Connect
from tests.support.data.events import event
from tests.support.data.faulty import fail, lose_connection
from tests.support.people.scripted_agent import Hooked, hooked, until, until_here, until_true
from tests.support.people.web_browser import Browser
from tests.support.wires.v0 import EVENT_TIME, Matching
from tests.support.wires.v0_socket import Disconnected, Refused, V0Client

pytestmark = pytest.mark.one_engine

__all__ = ["hooked"]


def raw(**members: Any) -> str:
    return json.dumps({"source": "agent", "message": "", **members})


def state(agent_state: str) -> str:
    extras = {"agent_state": agent_state, "reason": ""}
    return raw(source="environment", observation="agent_state_changed", content="", extras=extras)


async def append(conversation: ConversationRef, *payloads: str) -> None:
    await astore.call(writes.append, conversation, [event(raw=each) for each in payloads])


# Joining


async def test_the_handshake_says_what_the_wire_says(connect: Connect) -> None:
    opened = (await connect("talk")).opened
    shown = {name: opened[name] for name in ("upgrades", "pingTimeout", "pingInterval", "maxPayload")}
    assert shown == {"upgrades": [], "pingTimeout": 20000, "pingInterval": 25000, "maxPayload": 4194304}


async def test_an_unknown_id_is_made_by_the_join_and_its_agent_waits(connect: Connect) -> None:
    client = await connect("my-own-id")
    await client.state("awaiting_user_input")
    row = await astore.call(Conversation.objects.get, public_id="my-own-id")
    assert (row.version, row.trigger) == ("V0", None)


async def test_a_message_is_echoed_and_answered(connect: Connect) -> None:
    client = await connect("talk")
    await client.state("awaiting_user_input")  # from here on nothing is a replay, which leaves states out
    await client.say("hello")
    said = await client.said("user")
    assert said == {
        "id": said["id"],
        "timestamp": EVENT_TIME,
        "source": "user",
        "message": "hello",
        "action": "message",
        "args": {
            "content": "hello",
            "file_urls": [],
            "image_urls": [],
            "wait_for_response": False,
            "security_risk": -1,
        },
    }
    await client.state("running")
    assert (await client.said())["message"].startswith("You said: hello")
    await client.state("awaiting_user_input")


async def test_a_conversation_that_was_posted_is_joined_with_its_history(
    connect: Connect, rest: httpx.AsyncClient
) -> None:
    created = await rest.post("/api/conversations", json={"initial_user_msg": "hello"})
    client = await connect(created.json()["conversation_id"])
    assert (await client.said("user"))["id"] == 0
    assert (await client.said())["message"].startswith("You said: hello")


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_a_client_that_comes_back_gets_what_it_lacks_and_nothing_twice(connect: Connect) -> None:
    first = await connect("talk")
    await first.say("hello")
    await first.said()
    await first.state("awaiting_user_input")
    last = max(frame["id"] for frame in first.frames if "id" in frame and isinstance(frame["id"], int))
    await first.leave()
    second = await connect("talk", latest_event_id=last)
    await second.say("again")
    await second.said()
    numbers = [frame["id"] for frame in second.frames if isinstance(frame.get("id"), int)]
    assert (numbers, min(numbers) > last) == (sorted(set(numbers)), True)


@pytest.mark.needs_engine
async def test_several_clients_see_the_same(connect: Connect) -> None:
    clients = [await connect("talk") for _ in range(4)]
    for client in clients:
        await client.state("awaiting_user_input")  # from here on nothing is a replay, which leaves states out
    await clients[0].say("hello")
    shown = []
    for client in clients:
        first = await client.said("user")
        shown.append([first, await client.state("running"), await client.said()])
    assert all(each == shown[0] for each in shown)


async def test_a_cursor_that_is_none_is_from_the_beginning(
    connect: Connect, conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    await append(conversation, raw(action="message", args={"content": "a"}))
    for latest in ["undefined", "", "-1", "many", None, "99999999999999999999"]:
        with subtests.test(latest=latest):
            client = await connect("talk", latest_event_id=latest)
            assert (await client.event())["id"] == 0


async def test_a_client_that_has_more_than_there_is_is_sent_what_comes(
    connect: Connect, conversation: ConversationRef
) -> None:
    await append(conversation, raw(action="message", args={"content": "a"}))
    client = await connect("talk", latest_event_id=7)
    await client.state("awaiting_user_input")  # its log ended before it: from here on all is live
    await client.say("b")
    assert (await client.said("user"))["args"]["content"] == "b"
    assert "a" not in [frame["args"]["content"] for frame in client.frames if frame.get("source") == "user"]


async def test_a_connection_is_counted_while_it_lasts(connect: Connect) -> None:
    client = await connect("talk")
    await until(lambda: Connection.objects.filter(door="v0").count() == 1)
    await client.leave()
    await until(lambda: not Connection.objects.exists())


async def test_a_client_that_leaves_while_it_is_being_counted_is_not_counted(
    connect: Connect, hooked: Hooked
) -> None:
    counting = hooked(presence, "record")
    held = counting.hold()
    client = await connect("talk")
    await held.reached()
    await client.leave()
    held.let_go.set()
    await until_here(lambda: counting.calls >= 1)
    await until(lambda: not Connection.objects.exists())


# Replay


async def test_a_replay_leaves_out_what_tells_nothing_and_all_but_the_newest_state(
    connect: Connect, conversation: ConversationRef
) -> None:
    await append(
        conversation,
        state("running"),
        raw(action="recall", args={"recall_type": "knowledge"}),
        raw(action="null", args={}),
        raw(observation="null", content="", extras={}),
        raw(action="run", args={"command": "env", "hidden": True}),
        raw(source="environment", action="change_agent_state", args={"agent_state": "running"}),
        raw(source="environment", observation="recall", content="", extras={}),
        raw(action="message", args={"content": "hello"}),
        state("awaiting_user_input"),
        raw(action="message", args={"content": "bye"}),
    )
    client = await connect("talk")
    shown = [await client.event() for _ in range(4)]
    assert [(each["id"], each["source"]) for each in shown] == [
        (6, "agent"),
        (7, "agent"),
        (8, "agent"),
        (9, "agent"),
    ]


@pytest.mark.needs_engine
async def test_what_is_shown_live_is_what_a_replay_shows(
    connect: Connect, conversation: ConversationRef
) -> None:
    payloads = [
        raw(source="environment", observation="run", content="x", extras={"command": "ls", "metadata": {}}),
        raw(source="environment", observation="error", content="boom", extras={}),
        raw(source="environment", observation="mcp", content="x", extras={}),
        raw(action="run", args={"command": "secret", "hidden": True}),
        raw(action="run", args={"command": "ls"}, timeout=120.0),
    ]
    client = await connect("talk")
    await client.state("awaiting_user_input")
    await append(conversation, *payloads)
    live = [await client.event() for _ in range(3)]
    late = await connect("talk", latest_event_id=live[0]["id"] - 1)
    assert [await late.event() for _ in range(3)] == live
    assert [each["source"] for each in live] == ["agent", "agent", "agent"]


async def test_events_of_the_other_wire_are_shown_as_well(
    connect: Connect, conversation: ConversationRef
) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "from V1"}]}
    payload = {
        "kind": "MessageEvent",
        "id": "e1",
        "timestamp": "2025-11-20T08:49:31",
        "source": "user",
        "llm_message": message,
    }
    await append(conversation, json.dumps(payload))
    shown = await (await connect("talk")).event()
    assert (shown["id"], shown["action"], shown["message"]) == (0, "message", "from V1")


# What clients send


async def test_an_event_is_acknowledged_with_its_number_when_that_is_asked_for(connect: Connect) -> None:
    client = await connect("talk")
    last = (await client.state("awaiting_user_input"))["id"]
    answer = await client.asked({"action": "run", "args": {"command": "ls"}})
    assert answer == {"success": True, "id": last + 1}


NO_EVENTS: list[Any] = [
    {"action": "dance", "args": {}},
    {"kind": "MessageEvent"},
    [],
    "hello",
    None,
    {"action": 5},
]


async def test_an_event_that_is_none_is_refused_in_words(connect: Connect, subtests: pytest.Subtests) -> None:
    for wrong in NO_EVENTS:
        with subtests.test(wrong=wrong):
            client = await connect("talk")
            answer = await client.asked(wrong)
            assert (answer["success"], bool(answer["error"])) == (False, True)
            frame = next(each for each in client.frames if each.get("type") == "error")
            assert frame == {
                "status_update": True,
                "type": "error",
                "id": "STATUS$ERROR",
                "message": answer["error"],
                "source": "environment",
                "timestamp": EVENT_TIME,
            }


async def test_the_older_name_of_the_frame_is_taken_as_well(connect: Connect) -> None:
    client = await connect("talk")
    await client.send({"action": "message", "args": {"content": "hello"}}, name="oh_action")
    assert (await client.said())["message"].startswith("You said: hello")


async def test_only_action_and_args_of_an_event_are_taken(connect: Connect) -> None:
    client = await connect("talk")
    claims = {"id": 99, "source": "agent", "cause": 1, "llm_metrics": {"accumulated_cost": 99.0}}
    await client.send({**claims, "action": "message", "args": {"content": "hello"}})
    said = await client.said("user")
    assert (said["id"] < 9, "cause" in said, "llm_metrics" in said) == (True, False, False)


async def test_the_stop_button_ends_the_turn_and_the_connection_stays(connect: Connect) -> None:
    client = await connect("talk")
    await client.say("/approve")
    await client.state("awaiting_user_confirmation")
    await client.send({"action": "change_agent_state", "args": {"agent_state": "stopped"}})
    await client.state("stopped")
    await client.say("continue")
    assert (await client.said())["message"].startswith("You said: continue")


async def test_approval_is_asked_for_and_given(connect: Connect) -> None:
    client = await connect("talk")
    await client.say("/approve")
    await client.state("awaiting_user_confirmation")
    call = await client.until(action="run")
    assert call["args"]["confirmation_state"] == "awaiting_confirmation"
    await client.send({"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}})
    result = await client.until(observation="run")
    assert result["cause"] == call["id"]
    assert (await client.said())["message"].startswith("Done.")


# Titles and ends


async def test_a_new_title_is_told(connect: Connect, rest: httpx.AsyncClient) -> None:
    client = await connect("talk")
    await client.state("awaiting_user_input")
    await rest.patch("/api/conversations/talk", json={"title": "New"})
    frame = await client.until(conversation_title="New")
    assert (frame["status_update"], frame["type"], frame["message"]) == (True, "info", "talk")
    assert (frame["source"], frame["timestamp"]) == ("environment", EVENT_TIME)


@pytest.mark.parametrize(("method", "path"), [("POST", "/stop"), ("DELETE", "")])
async def test_a_stop_and_a_deletion_are_told_before_the_server_disconnects(
    connect: Connect, rest: httpx.AsyncClient, method: str, path: str
) -> None:
    client = await connect("talk")
    await client.until(id="STATUS$READY")
    await rest.request(method, f"/api/conversations/talk{path}")
    ended = await client.disconnected()
    assert ended.by_packet
    if method == "POST":
        assert client.frames[-1]["extras"] == {"agent_state": "stopped", "reason": ""}


async def test_a_join_starts_the_loop_once_it_has_seen_that_there_is_none(
    connect: Connect, hooked: Hooked
) -> None:
    reading = hooked(feed, "state_of").hold()
    starting = hooked(get_manager(), "start_soon")
    client = await connect("talk")
    await reading.reached()
    assert starting.calls == 0
    reading.let_go.set()
    await client.until(id="STATUS$READY")


async def test_a_loop_that_makes_room_tells_its_clients_why(
    connect: Connect, configured: Callable[..., None]
) -> None:
    configured(max_concurrent=1)
    first = await connect("talk")
    await first.until(id="STATUS$READY")
    second = await connect("other")
    await second.until(id="STATUS$READY")
    assert (await first.disconnected()).by_packet
    too_many = first.frames[-2]
    assert (too_many["id"], too_many["type"]) == ("AGENT_ERROR$TOO_MANY_CONVERSATIONS", "error")


async def test_an_agent_that_cannot_be_started_is_told_of(
    connect: Connect, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.data.faulty.BrokenAgent")
    client = await connect("talk")
    frame = await client.until(type="error")
    assert (frame["id"], frame["source"], bool(frame["message"])) == ("STATUS$ERROR", "environment", True)


async def test_a_conversation_that_was_stopped_is_started_by_the_next_join(
    connect: Connect, rest: httpx.AsyncClient
) -> None:
    await (await connect("talk")).until(id="STATUS$READY")
    await rest.post("/api/conversations/talk/stop")
    client = await connect("talk")
    await client.say("hello")
    await client.said()


# Refusals


async def refusal(connect: Connect, conversation_id: str | None, **query: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as refused:
        await connect(conversation_id, **query)
    return refused.value.data


async def test_a_join_of_nothing_is_refused(connect: Connect, subtests: pytest.Subtests) -> None:
    for conversation_id in [None, "", "  "]:
        with subtests.test(conversation_id=conversation_id):
            assert await refusal(connect, conversation_id) == {
                "message": "No conversation_id in query params"
            }


NO_IDS: list[tuple[str, str]] = [
    ("../x", "Conversation ID contains invalid path characters"),
    ("x" * 101, "Conversation ID is too long"),
    ("a\0b", "Conversation ID contains invalid characters"),
]


async def test_an_id_that_cannot_be_one_is_refused_in_the_wires_words_by_sockets_too(
    connect: Connect, subtests: pytest.Subtests
) -> None:
    for conversation_id, message in NO_IDS:
        with subtests.test(conversation_id=conversation_id, message=message):
            assert await refusal(connect, conversation_id) == {"message": message}


async def test_an_unknown_provider_is_refused_at_once(connect: Connect) -> None:
    answer = await refusal(connect, "talk", providers_set="github,sourceforge")
    assert answer == {"message": Matching(".*sourceforge.*")}


async def test_several_known_providers_are_taken_in_either_form(connect: Connect) -> None:
    await connect("talk", providers_set="github,gitlab")
    await connect("talk", providers_set=["bitbucket", "azure_devops"])


async def test_a_wrong_or_missing_key_is_refused(connect: Connect, configured: Callable[..., None]) -> None:
    configured(session_api_key="sesame")
    for key in ("wrong", "null", None):
        assert await refusal(connect, "talk", session_api_key=key) == {"message": "invalid_session_api_key"}
    await connect("talk", session_api_key="sesame")
    await connect("talk", headers={"x-session-api-key": "sesame"})


async def test_a_strangers_and_a_deleted_conversation_cannot_be_joined_and_show_nothing(
    connect: Connect, conversation: ConversationRef, alice: User, bob: User, accounts: None
) -> None:
    await append(conversation, raw(action="message", args={"content": "hers"}))
    deleted = await astore.call(creation.create, bob, conversation_id="gone")
    await astore.call(deletion.soft_delete, deleted)
    _, token = await astore.call(ApiToken.issue, bob.pk, "laptop")
    headers = {"authorization": f"Bearer {token}"}
    answers = [await refusal(connect, each, headers=headers) for each in ("talk", "gone")]
    assert answers[0] == answers[1]
    assert await refusal(connect, "talk") == {"message": "invalid_session_api_key"}


async def test_missing_settings_are_told_before_any_history(
    connect: Connect, conversation: ConversationRef, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.data.faulty.ModelAgent")
    await append(conversation, raw(action="message", args={"content": "hello"}))
    assert await refusal(connect, "talk") == {
        "message": "Settings not found",
        "data": {"msg_id": "CONFIGURATION$SETTINGS_NOT_FOUND"},
    }


async def test_a_join_that_fails_is_refused_in_words(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "join", fail)
    assert await refusal(connect, "talk") == {"message": "The server could not do this now: try again."}


async def test_a_client_whose_log_cannot_be_read_is_told_why_before_it_ends(
    connect: Connect, alice: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    conversation = await astore.call(creation.create, alice, conversation_id="talk")
    await astore.append(conversation, [event("there is something to read")])
    monkeypatch.setattr(reads, "read_after", lose_connection)
    client = await connect("talk")
    ended = await client.disconnected()
    told = [frame["message"] for frame in client.frames if frame.get("id") == "STATUS$ERROR"]
    assert (told[-1:], ended.by_packet) == ([failures.UNREACHABLE], False)
    (record,) = (record for record in caplog.records if "V0 socket failed" in record.message)
    assert (record.exc_info, "exc_info" in record.message) == (None, False)


async def test_a_revoked_token_ends_the_connection(
    connect: Connect, alice: User, accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions_app.sockets.v0.connection.CHECK_S", 0.02)
    monkeypatch.setattr("sessions_app.identity.principals.CHECK_S", 0.0)
    row, token = await astore.call(ApiToken.issue, alice.pk, "laptop")
    client = await connect("talk", headers={"authorization": f"Bearer {token}"})
    await astore.call(row.revoke)
    assert isinstance(await client.disconnected(), Disconnected)


async def test_a_page_of_another_site_is_refused_before_the_handshake(live: None, alice: User) -> None:
    client = V0Client(application, conversation_id="talk", headers={"origin": "https://evil.example"})
    with pytest.raises(AssertionError):
        await client.connect()


async def test_polling_works_as_well(rest: httpx.AsyncClient) -> None:
    query: dict[str, Any] = {
        "EIO": 4,
        "transport": "polling",
        "conversation_id": "talk",
        "session_api_key": "null",
    }
    opened = (await rest.get("/socket.io/", params=query)).text
    sid = json.loads(opened[1:])["sid"]
    session: dict[str, Any] = {"EIO": 4, "transport": "polling", "sid": sid}
    await rest.post("/socket.io/", params=session, content="40")
    seen = ""

    async def shown() -> bool:
        nonlocal seen
        seen += (await rest.get("/socket.io/", params=session)).text
        return "awaiting_user_input" in seen

    await until_true(shown)
    assert seen.startswith("40")


async def test_a_client_that_joins_nothing_is_closed_in_time_and_one_that_has_joined_stays(
    connect: Connect, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "JOIN_LOOK_S", 0.01)
    joined = await connect("talk")
    monkeypatch.setattr(server, "JOIN_WAIT_S", 0.0)
    path = "/socket.io/?EIO=4&transport=polling"
    sid = json.loads((await rest.get(path)).text[1:])["sid"]
    silent = V0Client(application, conversation_id="talk")

    async def listen() -> None:
        await silent.open()
        await silent.receive()

    with pytest.raises(Disconnected, match="closing the transport"):
        await listen()

    async def is_over() -> bool:
        return (await rest.post(f"{path}&sid={sid}", content="3")).status_code == 400

    await until_true(is_over)
    assert (await joined.asked({"action": "message", "args": {"content": "still here"}}))["success"]


async def test_a_client_that_leaves_while_it_is_let_in_leaves_nothing_behind(
    conversation: ConversationRef, live: None, alice: User, hooked: Hooked
) -> None:
    admission = hooked(creation, "join").hold()
    async with Browser().http as client:
        path = "/socket.io/?EIO=4&transport=polling&conversation_id=talk&latest_event_id=-1"
        path += f"&sid={json.loads((await client.get(path)).text[1:])['sid']}"
        joining = asyncio.create_task(client.post(path, content="40"))
        await admission.reached()
        assert (await client.post(path, content="1")).status_code == 200
        admission.let_go.set()
        await joining
    assert open_sockets.number_of(alice.pk) == 0
