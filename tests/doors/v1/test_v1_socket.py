"""The sockets of the V1 wire: the first frame, replays, live events, what clients say, how runs end."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.dialects import v1
from conversations.dialects.translation import v0_as_v1
from conversations.models import ConversationRef, Event, Version
from conversations.store import ConversationStore, creation
from convserver.commands import serving
from sessions_app import astore
from sessions_app.identity import conversation_keys, principals
from sessions_app.live import feed, hub
from sessions_app.loops.manager import get_manager
from sessions_app.loops.playing import streamed_answer
from sessions_app.models import AgentLoop, ApiToken, Connection
from sessions_app.openhands_v1 import states
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.sockets import handshake
from sessions_app.sockets.socket import SLOW_READER_S
from sessions_app.sockets.v1 import events, socket
from sessions_app.sockets.v1 import handshake as v1_arrival
from tests.conftest import Dial
from tests.doors.native.test_native_socket import lose_hints
from tests.support.data.events import event
from tests.support.people.clients import Client, SocketClosed
from tests.support.people.dictation import Dictate, Thought, dictate, end_answer, silence
from tests.support.people.scripted_agent import Held, Hooked, Stage, hooked, log, stage, until, until_here
from tests.support.wires.v1_socket import (
    ID,
    START,
    auth,
    events_path,
    ids,
    is_full_state,
    message,
    receive,
    session_path,
    status_in,
    stored_status,
    texts,
    until_full_state,
    until_kind,
    v1_event,
)
from tests.support.wires.v1_socket import v1_events as some_events
from tests.support.wires.v1_wire import DATA

pytestmark = pytest.mark.one_engine

__all__ = ["dictate", "hooked", "silence", "stage"]

STRANGE_ID = "00000000-0000-4000-8000-000000000000"
PAGE = Path(__file__).parents[3] / "docs" / "v1-sockets.md"
IMAGE = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation of alice's on the V1 wire."""
    return creation.create(alice, conversation_id=ID, version=Version.V1)


@pytest.fixture
def old_talk(alice: User) -> ConversationRef:
    """A conversation of alice's on the V0 wire."""
    return creation.create(alice, conversation_id=ID)


@pytest.fixture
def staged(stage: Stage, configured: Callable[..., None]) -> Stage:
    configured(agent="tests.support.people.scripted_agent.ScriptedAgent")
    return stage


def key_of(user: User) -> str:
    return ApiToken.issue(user.pk, "laptop")[1]


async def greeted(client: Client) -> dict[str, Any]:
    """Return the value of the first frame."""
    first = await client.receive()
    assert is_full_state(first)
    value: dict[str, Any] = first["value"]
    return value


Follow = Callable[[int], Awaitable[list[Client]]]


@pytest.fixture
def follow(dial: Dial, hooked: Hooked) -> Follow:
    """Join with so many clients; returns once each has come to the end of the log."""
    at_the_end = hooked(feed.Unshown, "show_replay_complete")

    async def following(count: int) -> list[Client]:
        clients = [await dial(events_path()) for _ in range(count)]
        await until_here(lambda: at_the_end.calls == count)
        for client in clients:
            await greeted(client)
        return clients

    return following


async def close_of(dial: Dial, path: str = events_path(), **options: Any) -> tuple[int, str]:
    """Return how an accepted client is closed."""
    closed = await (await dial(path, **options)).closed()
    return closed.code, closed.reason


async def is_refused(dial: Dial, path: str = events_path(), **options: Any) -> bool:
    """Say whether the handshake itself fails."""
    try:
        await dial(path, **options)
    except SocketClosed:
        return True
    return False


def has_more_than(conversation: ConversationRef, count: int) -> bool:
    return Event.objects.of(conversation).count() > count


# The first frame and replays


async def test_the_first_frame_is_the_whole_state(
    talk: ConversationRef, dial: Dial, subtests: pytest.Subtests
) -> None:
    await astore.append(talk, some_events(2))
    for name, prefix in product([ID, ID.upper(), UUID(ID).hex], ["", "/agent"]):
        with subtests.test(name=name, prefix=prefix):
            client = await dial(prefix + events_path(name), query={"resend_all": "true"})
            first = await client.receive()
            assert set(first) == {"kind", "id", "timestamp", "source", "key", "value"}
            assert is_full_state(first)
            assert (first["value"]["id"], first["value"]["execution_status"]) == (ID, "idle")
            assert not {"title", "metrics", "created_at", "updated_at"} & set(first["value"])
            assert None not in first["value"].values()


REPLAYED: list[tuple[dict[str, str], list[int]]] = [
    ({}, []),
    ({"resend_all": "false"}, []),
    ({"resend_all": "true"}, [0, 1, 2, 3]),
    ({"resend_all": "1"}, [0, 1, 2, 3]),
    ({"resend_all": "Yes"}, [0, 1, 2, 3]),
    ({"resend_mode": "all"}, [0, 1, 2, 3]),
    ({"resend_mode": "since"}, []),
    ({"resend_mode": "since", "resend_all": "true"}, []),
    ({"resend_mode": "since", "after_timestamp": "2026-01-01T00:00:02"}, [2, 3]),
    ({"resend_mode": "since", "after_timestamp": "2026-01-01T00:00:02Z"}, [2, 3]),
    ({"resend_mode": "since", "after_timestamp": "2026-01-01T01:00:02.000001+01:00"}, [3]),
    ({"resend_mode": "since", "after_timestamp": "2026-01-01T01:00:02 01:00"}, [2, 3]),
    ({"resend_mode": "since", "after_timestamp": "2027-01-01"}, []),
    ({"after_timestamp": "2026-01-01T00:00:02"}, []),
]


async def test_a_replay_brings_what_was_asked_for_and_then_what_happens(
    alice: User, dial: Dial, subtests: pytest.Subtests
) -> None:
    for query, shown in REPLAYED:
        with subtests.test(query=query):
            name = str(uuid4())
            talk = await astore.call(creation.create, alice, conversation_id=name, version=Version.V1)
            stored, live = some_events(4), v1_event()
            await astore.append(talk, stored)
            client = await dial(events_path(name), query=query)
            await greeted(client)
            await astore.append(talk, [live])
            expected = [stored[number] for number in shown] + [live]
            assert ids(await receive(client, len(expected))) == ids(expected)


WRONG_PARAMETERS: list[dict[str, str]] = [
    {"resend_all": "maybe"},
    {"resend_mode": "none"},
    {"resend_mode": "since", "after_timestamp": "yesterday"},
]


@pytest.mark.one_engine
async def test_a_wrong_parameter_is_refused(
    talk: ConversationRef, dial: Dial, subtests: pytest.Subtests
) -> None:
    for query in WRONG_PARAMETERS:
        with subtests.test(query=query):
            assert await is_refused(dial, query=query)


async def test_a_replay_since_a_moment_leaves_out_what_is_older_wherever_it_stands(
    talk: ConversationRef, dial: Dial
) -> None:
    stored = [v1_event(at_s=second) for second in (1, 5, 2, 6)]
    await astore.append(talk, stored)
    after = v1.stamp(START.replace(second=5))
    client = await dial(events_path(), query={"resend_mode": "since", "after_timestamp": after})
    await greeted(client)
    late = v1_event(at_s=0)  # what comes now is sent, whatever its time
    await astore.append(talk, [late])
    assert ids(await receive(client, 3)) == ids([stored[1], stored[3], late])


async def test_events_are_the_bytes_that_were_stored(talk: ConversationRef, dial: Dial) -> None:
    sent = '{"kind":"MessageEvent", "id":"odd","n":1.10,\t"source":"user","x":{"a":1E400},"u":"\\ud800"}'
    client = await dial(events_path())
    await greeted(client)
    await astore.append(talk, [event(raw=sent, event_id="odd")])
    assert await client.receive_text() == sent


@pytest.mark.no_second_try
@pytest.mark.timeout(300)
@pytest.mark.needs_engine
async def test_who_joins_while_a_thousand_events_come_gets_each_once_in_order(
    talk: ConversationRef, dial: Dial
) -> None:
    stored = some_events(1_000)
    clients: list[Client] = []

    async def append() -> None:
        for start in range(0, len(stored), 10):
            await astore.append(talk, stored[start : start + 10])

    appending = asyncio.create_task(append())
    for joined in range(4):
        await until(partial(has_more_than, talk, 200 * joined))
        clients.append(await dial(events_path(), query={"resend_all": "true"}))
    await appending
    for client in clients:
        await greeted(client)
        assert ids(await receive(client, len(stored))) == ids(stored)


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_a_client_that_was_cut_off_goes_on_by_the_time_of_its_last_event(
    talk: ConversationRef, dial: Dial
) -> None:
    stored = some_events(6)
    await astore.append(talk, stored[:3])
    first = await dial(events_path(), query={"resend_all": "true"})
    seen = (await receive(first, 4))[1:]
    await first.leave()
    await astore.append(talk, stored[3:])
    again = await dial(
        events_path(), query={"resend_mode": "since", "after_timestamp": seen[-1]["timestamp"]}
    )
    await greeted(again)
    # The last one comes again, since others may have its time.
    assert ids(seen) + ids(await receive(again, 4))[1:] == ids(stored)


async def test_a_v0_conversation_is_shown_with_one_frame_for_each_event(
    old_talk: ConversationRef, dial: Dial, silence: None
) -> None:
    hidden = json.dumps({"action": "message", "source": "user", "args": {"content": "x", "hidden": True}})
    nonsense = json.dumps({"observation": "unheard of", "source": "agent", "content": "?", "extras": {}})
    await astore.append(old_talk, [event("Hi"), event(raw=hidden), event(raw=nonsense)])
    client = await dial(events_path(), query={"resend_all": "true"})
    await greeted(client)
    frames = await receive(client, 3)
    assert [frame["id"] for frame in frames] == [v0_as_v1.event_id(old_talk.public_id, n) for n in range(3)]
    assert texts(frames[:1]) == ["Hi"]
    await client.send(message([{"type": "text", "text": "Hello"}]))
    assert texts([await until_kind(client, "MessageEvent")]) == ["Hello"]


async def test_many_readers_of_a_translated_event_have_it_written_once(
    old_talk: ConversationRef, follow: Follow, hooked: Hooked
) -> None:
    clients = await follow(20)
    written = hooked(v0_as_v1, "payload")
    await astore.append(old_talk, [event(str(number)) for number in range(5)])
    shown = [[await client.receive_text() for _ in range(5)] for client in clients]
    assert all(each == shown[0] for each in shown)
    assert written.calls == 5


async def test_what_is_too_large_for_a_hint_is_read_once_for_many_readers(
    talk: ConversationRef, follow: Follow, hooked: Hooked
) -> None:
    clients = await follow(10)
    large = v1_event("x" * 200_000)
    reads = hooked(astore, "read_after")
    await astore.append(talk, [large])
    for client in clients:
        assert ids([await client.receive()]) == ids([large])
    assert reads.calls == 1


async def test_readers_who_fall_behind_find_what_was_announced_without_the_database(
    talk: ConversationRef, follow: Follow, hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "UNREAD_WHOLE_MAX", 2)
    (client,) = await follow(1)
    reads = hooked(astore, "read_after")
    stored = some_events(100)
    await asyncio.gather(*(astore.append(talk, [each]) for each in stored))  # announced before anyone reads
    assert ids(await receive(client, 100)) == ids(stored)
    assert reads.calls == 0


async def test_what_was_announced_is_forgotten_once_nobody_follows(
    talk: ConversationRef, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "POLL_S", 0.05)
    (client,) = await follow(1)
    await astore.append(talk, some_events(1))
    await receive(client, 1)
    recent = hub.hub().recent
    assert recent.after(talk.pk, -1)
    await client.leave()
    await until_here(lambda: not recent.after(talk.pk, -1))


async def test_a_join_starts_no_loop_and_is_present(talk: ConversationRef, dial: Dial) -> None:
    client = await dial(events_path())
    assert (await greeted(client))["execution_status"] == "idle"
    doors = await until(lambda: list(Connection.objects.values_list("door", flat=True)))
    assert doors == ["v1"]
    assert await client.receives_nothing(within_s=0.2)
    await client.leave()
    await until(lambda: not Connection.objects.exists())


# Who comes in


async def test_in_open_local_mode_nobody_needs_a_key(talk: ConversationRef, dial: Dial) -> None:
    for options in ({}, {"query": {"session_api_key": "any"}}, {"headers": {"x-session-api-key": "any"}}):
        await greeted(await dial(events_path(), **options))


@pytest.mark.one_engine
async def test_each_key_opens_in_each_way(
    talk: ConversationRef,
    dial: Dial,
    alice: User,
    accounts: None,
    configured: Callable[..., None],
    subtests: pytest.Subtests,
) -> None:
    configured(session_api_key="the server's key")
    keys = {
        "token": await astore.call(key_of, alice),
        "server": "the server's key",
        "conversation": await astore.call(conversation_keys.key_of, talk),
    }
    for sent, which in product(["query", "header", "bearer", "frame"], ["token", "server", "conversation"]):
        with subtests.test(sent=sent, which=which):
            key = keys[which]
            options: dict[str, dict[str, Any]] = {
                "query": {"query": {"session_api_key": key}},
                "header": {"headers": {"x-session-api-key": key}},
                "bearer": {"headers": {"authorization": f"Bearer {key}"}},
                "frame": {},
            }
            client = await dial(events_path(), **options[sent])
            if sent == "frame":
                await client.send(auth(key))
            await greeted(client)


async def test_a_login_opens(talk: ConversationRef, dial: Dial, bob: User, accounts: None) -> None:
    def log_in() -> str:
        creation.create(bob, conversation_id=STRANGE_ID)
        browser = Browser()
        browser.force_login(bob)
        return f"sessionid={browser.cookies['sessionid'].value}"

    cookie = await astore.call(log_in)
    await greeted(await dial(events_path(STRANGE_ID), headers={"cookie": cookie}))
    assert await close_of(dial, headers={"cookie": cookie}) == (4004, "Conversation not found")


async def test_of_several_keys_the_first_that_opens_something_counts(
    talk: ConversationRef, dial: Dial, alice: User, accounts: None
) -> None:
    key = await astore.call(key_of, alice)
    await greeted(
        await dial(events_path(), query={"session_api_key": key}, headers={"authorization": "Bearer proxy"})
    )


@pytest.mark.one_engine
async def test_a_wrong_key_in_the_address_or_a_header_fails_the_handshake(
    talk: ConversationRef, dial: Dial, accounts: None, subtests: pytest.Subtests
) -> None:
    for key in ["cs_wrong", "ck_wrong", f"ck_{UUID(ID).hex}_wrong", "ck_\udcff_x", "\0"]:
        with subtests.test(key=key):
            given = key.encode(errors="surrogateescape")
            assert await is_refused(dial, query={"session_api_key": given})
            assert await is_refused(dial, headers={"x-session-api-key": given.decode("latin-1")})


NO_FIRST_FRAMES: list[Any] = [
    auth("wrong"),
    auth(None),
    auth("ck_\ud800_x"),
    auth("\0"),
    {"type": "auth"},
    message(),
    "no JSON",
    "[]",
    "[" * 4_000,
    json.dumps(auth("x" * 5_000)),
]


@pytest.mark.one_engine
async def test_a_first_frame_that_lets_nobody_in_ends_with_4001(
    talk: ConversationRef, dial: Dial, accounts: None, subtests: pytest.Subtests
) -> None:
    for frame in NO_FIRST_FRAMES:
        with subtests.test(frame=frame):
            client = await dial(events_path())
            await client.send(frame)
            closed = await client.closed()
            assert (closed.code, closed.reason) == (4001, "Authentication failed")
            assert client.frames == []


@pytest.mark.one_engine
async def test_a_first_frame_that_does_not_come_ends_with_4001(
    talk: ConversationRef, dial: Dial, accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(v1_arrival, "AUTH_WAIT_S", 0.05)
    assert await close_of(dial) == (4001, "Authentication failed")


@pytest.mark.one_engine
async def test_what_is_no_uuid_fails_the_handshake(
    alice: User, dial: Dial, subtests: pytest.Subtests
) -> None:
    for name, path in product(
        ["talk", "1", f"{ID}0", "zz294d95-9ff6-4d2d-9c53-0a5849f2c4a0", f"{{{ID}}}"],
        [events_path, session_path],
    ):
        with subtests.test(name=name, path=path):
            assert await is_refused(dial, path(name))


@pytest.mark.parametrize("path", [events_path, session_path])
async def test_unknown_deleted_and_strange_conversations_look_the_same(
    talk: ConversationRef,
    dial: Dial,
    bob: User,
    alice: User,
    store: ConversationStore,
    accounts: None,
    path: Callable[[str], str],
) -> None:
    strangers, owners = await astore.call(key_of, bob), await astore.call(key_of, alice)
    gone = (4004, "Conversation not found")
    assert await close_of(dial, path(ID), token=strangers) == gone
    assert await close_of(dial, path(STRANGE_ID), token=owners) == gone
    await astore.call(store.delete_metadata, ID)
    assert await close_of(dial, path(ID), token=owners) == gone


async def test_the_key_of_a_conversation_opens_no_other_one(
    talk: ConversationRef, dial: Dial, alice: User, accounts: None
) -> None:
    other = await astore.call(creation.create, alice, conversation_id=STRANGE_ID)
    key = await astore.call(conversation_keys.key_of, other)
    assert await close_of(dial, query={"session_api_key": key}) == (4004, "Conversation not found")


async def test_nothing_is_made_by_asking_for_it(dial: Dial) -> None:
    for _ in range(2):
        assert await close_of(dial, events_path(STRANGE_ID)) == (4004, "Conversation not found")


async def test_an_open_socket_ends_with_4004_when_its_conversation_is_deleted(
    talk: ConversationRef, dial: Dial, store: ConversationStore
) -> None:
    client = await dial(events_path())
    await greeted(client)
    await astore.call(store.delete_metadata, ID)
    closed = await client.closed()
    assert (closed.code, closed.reason) == (4004, "Conversation not found")


@pytest.mark.parametrize("which", ["token", "conversation", "owner"])
async def test_an_open_socket_ends_with_4001_when_its_key_opens_nothing_any_more(
    talk: ConversationRef,
    dial: Dial,
    alice: User,
    accounts: None,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    settings: Any,
) -> None:
    monkeypatch.setattr(socket, "CHECK_S", 0.02)
    monkeypatch.setattr(principals, "CHECK_S", 0.0)
    token = await astore.call(key_of, alice)
    key = token if which == "token" else await astore.call(conversation_keys.key_of, talk)
    client = await dial(events_path(), query={"session_api_key": key})
    await greeted(client)
    assert await client.receives_nothing(within_s=0.1)
    if which == "token":
        await astore.call(lambda: ApiToken.objects.get().revoke())
    elif which == "owner":
        await astore.call(lambda: User.objects.filter(pk=alice.pk).update(is_active=False))
    else:
        settings.SECRET_KEY = "another"
    closed = await client.closed()
    assert (closed.code, closed.reason) == (4001, "Authentication failed")


async def test_an_auth_frame_is_passed_over_at_any_time(
    talk: ConversationRef, dial: Dial, silence: None
) -> None:
    client = await dial(events_path())
    for key in ("any", None):
        await client.send(auth(key))
    await client.send(message("hello"))
    await client.send(auth("any"))
    await greeted(client)
    assert texts([await until_kind(client, "MessageEvent")]) == ["hello"]


# What clients say


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("hello", [{"type": "text", "text": "hello"}]),
        ([{"type": "text", "text": "hello"}], [{"type": "text", "text": "hello"}]),
        ([{"type": "image", "image_urls": [IMAGE]}], [{"type": "image", "image_urls": [IMAGE]}]),
        (
            [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": IMAGE}}],
            [{"type": "text", "text": "look"}, {"type": "image", "image_urls": [IMAGE]}],
        ),
    ],
)
async def test_what_is_said_is_stored_and_answered(
    talk: ConversationRef, dial: Dial, staged: Stage, content: Any, stored: Any
) -> None:
    client = await dial(events_path())
    await client.send(message(content, cache_enabled=True))
    said = await until_kind(client, "MessageEvent", source="user")
    assert said["llm_message"] == {"role": "user", "content": stored}
    if isinstance(content, str):
        answer = await until_kind(client, "MessageEvent", source="agent")
        assert texts([answer]) == ["answer to hello"]


WRONG = {
    "no JSON": "hello",
    "an array": "[]",
    "too deep": "[" * 100_000,
    "no content": {"role": "user", "content": 3},
    "unknown part": message([{"type": "video"}]),
    "for the agent": message(role="assistant"),
    "for the system": message(role="system"),
}


@pytest.mark.one_engine
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_a_client_that_knows_errors_is_told_what_was_wrong_and_goes_on(
    talk: ConversationRef, dial: Dial, silence: None, wrong: Any
) -> None:
    client = await dial(events_path(), query={"resend_mode": "all"})
    await client.send(wrong)
    await client.send(message("good"))
    await greeted(client)
    error = await client.receive()
    assert set(error) == {"kind", "id", "timestamp", "source", "code", "detail"}
    assert (error["kind"], error["source"], error["code"]) == (
        "ServerErrorEvent",
        "environment",
        "ValidationError",
    )
    assert texts([await until_kind(client, "MessageEvent")]) == ["good"]


NO_MESSAGES: list[dict[str, Any]] = [
    {},
    {"nonsense": 1},
    {"type": "ping"},
    {"kind": "MessageEvent", "llm_message": {"role": "user", "content": "hello"}},
    {"content": "hello"},
    {"role": "user"},
    {"role": "user", "content": None},
    {"role": "user", "content": []},
    {"role": "user", "text": "hello"},
    {"role": None, "content": "hello"},
]


async def test_an_object_that_is_no_message_is_refused_and_stores_and_starts_nothing(
    talk: ConversationRef, dial: Dial, staged: Stage, subtests: pytest.Subtests
) -> None:
    for path, query in ((events_path(), {"resend_mode": "all"}), (session_path(), {})):
        client = await dial(path, query=query)
        await client.receive()
        for wrong in NO_MESSAGES:
            with subtests.test(path=path, wrong=wrong):
                await client.send(wrong)
                error = await client.receive()
                assert (error["kind"], error["code"]) == ("ServerErrorEvent", "ValidationError")
                assert error["detail"]
    assert await log(talk) == []
    assert not await astore.call(AgentLoop.objects.of(talk).exists)


async def test_a_client_that_came_in_by_a_frame_knows_errors(
    talk: ConversationRef, dial: Dial, alice: User, accounts: None
) -> None:
    client = await dial(events_path())
    await client.send(auth(await astore.call(key_of, alice)))
    await client.send_bytes(b"{}")
    await greeted(client)
    assert (await client.receive())["detail"] == "Frames are text, not binary."


async def test_a_client_that_says_nothing_of_its_release_is_told_what_was_wrong_with_its_frame(
    talk: ConversationRef, dial: Dial, silence: None
) -> None:
    reader, client = await dial(events_path()), await dial(events_path())
    await client.send(message(3))
    await client.send(message("good"))
    for each in (reader, client):
        await greeted(each)
        await until_kind(each, "MessageEvent")
    told = [[frame["kind"] for frame in each.frames].count("ServerErrorEvent") for each in (reader, client)]
    assert told == [0, 1]


# How runs end


@pytest.mark.needs_engine
async def test_the_whole_state_follows_a_runs_last_event(
    talk: ConversationRef, dial: Dial, staged: Stage
) -> None:
    client = await dial(events_path())
    await greeted(client)
    await client.send(message("hold"))
    await staged.holding()
    late = await dial(events_path())
    assert (await greeted(late))["execution_status"] == "running"
    staged.go.set()
    for reader in (client, late):
        assert (await until_full_state(reader))["execution_status"] == "finished"
        told = [status for frame in reader.frames if (status := status_in(frame))]
        assert told[-2:] == ["finished", "finished"]
        assert sum(map(is_full_state, reader.frames)) == 2


async def test_the_end_of_a_run_is_told_to_who_begins_to_listen_after_it_was_accepted(
    talk: ConversationRef, dial: Dial, silence: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "RUN_SETTLES_S", 0.5)
    client = await dial(events_path())
    await greeted(client)
    start = asyncio.get_running_loop().time()
    await client.send(message())
    await until_full_state(client)
    assert asyncio.get_running_loop().time() - start >= 0.5


async def test_a_run_that_had_nothing_to_do_is_told_as_over(
    talk: ConversationRef, dial: Dial, silence: None
) -> None:
    client = await dial(events_path())
    await greeted(client)
    await client.send(message())
    await until_full_state(client)
    assert await get_manager().ask_run(talk)
    assert (await until_full_state(client))["execution_status"] == "finished"
    assert await client.receives_nothing(within_s=0.3)


async def test_no_state_that_is_not_running_is_told_once_another_run_was_accepted(
    talk: ConversationRef, dial: Dial, staged: Stage, hooked: Hooked
) -> None:
    client = await dial(events_path())
    await greeted(client)
    reading = hooked(states, "_full_state")
    held = Held(threading.Event(), threading.Event())
    reading.after(held.wait)  # it has been read that the first run is over
    await client.send(message("one"))
    await held.reached()
    await client.send(message("hold"))
    await staged.holding()
    while texts([await client.receive()]) != ["step 1"]:
        pass
    held.let_go.set()
    assert await client.receives_nothing(within_s=0.3)
    staged.go.set()
    assert (await until_full_state(client))["execution_status"] == "finished"
    assert texts(client.frames)[-1] == "step 2"


async def test_a_whole_state_waits_for_the_events_that_led_to_it(
    talk: ConversationRef,
    follow: Follow,
    hooked: Hooked,
    hints_by_layer: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub, "POLL_S", 0.3)
    (client,) = await follow(1)
    held = hooked(states, "_full_state").hold()
    await astore.append(talk, [stored_status("finished")])
    await held.reached()
    lose_hints(monkeypatch)
    last = v1_event()
    await astore.append(talk, [last])
    held.let_go.set()
    frames = await receive(client, 3)
    assert ids(frames)[1:] == ids([last])
    assert is_full_state(frames[2])


async def test_pausing_is_told_as_a_whole_state(talk: ConversationRef, dial: Dial, staged: Stage) -> None:
    client = await dial(events_path())
    await greeted(client)
    await get_manager().pause(talk)
    assert (await until_full_state(client))["execution_status"] == "paused"


async def test_waiting_for_approval_is_told_as_a_whole_state(
    talk: ConversationRef, dial: Dial, staged: Stage
) -> None:
    client = await dial(events_path())
    await greeted(client)
    await client.send(message("approve"))
    assert (await until_full_state(client))["execution_status"] == "waiting_for_confirmation"
    assert [status_in(frame) for frame in client.frames if status_in(frame)][-2:] == [
        "waiting_for_confirmation",
        "waiting_for_confirmation",
    ]


# Pieces of answers


@pytest.mark.parametrize("options", [{"resend_mode": "all"}, {}])
async def test_pieces_of_an_answer_are_sent_to_clients_that_know_them(
    talk: ConversationRef, dial: Dial, dictate: Dictate, options: dict[str, str]
) -> None:
    client = await dial(events_path(), query=options)
    await greeted(client)
    await client.send(message())
    await dictate("Hel", "lo")
    end_answer()
    stored = await until_kind(client, "MessageEvent", source="agent")
    pieces = [frame for frame in client.frames if frame["kind"] == "StreamingDeltaEvent"]
    assert texts([stored]) == ["Hello"]
    assert "".join(piece["content"] for piece in pieces) in (("Hel", "Hello") if options else ("",))
    assert all(set(piece) == {"kind", "id", "timestamp", "source", "content"} for piece in pieces)


@pytest.mark.parametrize(
    ("facts", "options", "knows_pieces"),
    [
        ({"client_tools": []}, {}, True),
        ({"client_tools": []}, {"resend_all": "true"}, False),
        ({"tool_module_qualnames": {"terminal": "tools.terminal"}}, {}, False),
    ],
)
async def test_a_script_without_a_key_gets_pieces_in_a_conversation_of_a_release_that_knows_them(
    alice: User,
    dial: Dial,
    dictate: Dictate,
    facts: dict[str, Any],
    options: dict[str, str],
    knows_pieces: bool,
) -> None:
    await astore.call(agent_setups.create, alice, NewSetup(facts=facts), conversation_id=ID)
    client = await dial(events_path(), query=options)
    await greeted(client)
    await client.send(message())
    await dictate("Hel", "lo")
    end_answer()
    await until_kind(client, "MessageEvent", source="agent")
    pieces = [frame["content"] for frame in client.frames if frame["kind"] == "StreamingDeltaEvent"]
    assert "".join(pieces) in (("Hel", "Hello") if knows_pieces else ("",))


async def test_reasoning_is_sent_in_pieces_to_clients_that_know_them(
    talk: ConversationRef, dial: Dial, dictate: Dictate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_answer, "SNAPSHOT_S", 0.0)
    first = await dial(events_path(), query={"resend_mode": "all"})
    await greeted(first)
    await first.send(message())
    await dictate(Thought("The capital "), Thought("of "))
    late = await dial(events_path(), query={"resend_mode": "all"})
    await until_kind(late, "StreamingDeltaEvent")
    await dictate(Thought("France."), "Par", "is.")
    end_answer()
    for client in (first, late):
        stored = await until_kind(client, "MessageEvent", source="agent")
        pieces = [frame for frame in client.frames if frame["kind"] == "StreamingDeltaEvent"]
        reasoning = "".join(piece.get("reasoning_content", "") for piece in pieces)
        assert reasoning == stored["llm_message"]["reasoning_content"] == "The capital of France."
        assert texts([stored])[0].startswith("".join(piece.get("content", "") for piece in pieces))


# As another server has sent it


def recorded_frames(number: int) -> list[dict[str, Any]]:
    """Return what a server sent over the socket with this number."""
    lines = map(json.loads, (DATA / "openhands-v1" / "frames.jsonl").read_text().splitlines())
    return [
        line["data"]
        for line in lines
        if line["t"] == "ws" and line["n"] == number and line["dir"] == "server"
    ]


async def test_the_frames_of_a_recorded_conversation_come_in_their_order(
    talk: ConversationRef, dial: Dial
) -> None:
    """Two clients, the second of which joins before the last run; the events are those of the record."""
    first, second = recorded_frames(1), recorded_frames(16)
    joined_at = next(at for at, frame in enumerate(first) if frame["id"] == second[1]["id"])
    one, two = await dial(events_path()), None
    run: list[dict[str, Any]] = []
    for at, frame in enumerate(first):
        if at == joined_at:
            two = await dial(events_path())
            assert is_full_state(await two.receive())
        if not is_full_state(frame):
            run.append(frame)
            continue
        if run:
            stored = [event(raw=json.dumps(each), event_id=each["id"]) for each in run]
            await astore.append(talk, stored)
            run = []
        await until_full_state(one)
    assert two is not None
    await until_full_state(two)
    # In the record the second client's last two events stand in the order in which they were stored.
    for client, expected in ((one, first), (two, second)):
        assert list(map(is_full_state, client.frames)) == list(map(is_full_state, expected))
        assert ids(client.frames) == ids(expected)
        assert [set(frame) for frame in client.frames if is_full_state(frame)] == [
            set(frame) for frame in expected if is_full_state(frame)
        ]


# The sequenced socket


@pytest.mark.needs_engine
async def test_the_sequenced_socket_goes_on_after_any_seq(
    talk: ConversationRef, dial: Dial, chance: random.Random
) -> None:
    stored = some_events(chance.randint(1, 40))
    before = chance.randint(1, len(stored))
    await astore.append(talk, stored[:before])
    cursors = [-1, before - 1, *(chance.randrange(-1, before) for _ in range(10))]
    clients = [await dial(session_path(), query={"after_seq": after}) for after in cursors]
    for each in stored[before:]:
        await astore.append(talk, [each])
    for after, client in zip(cursors, clients, strict=True):
        sync, *durable = await receive(client, len(stored) - after)
        assert sync == {"kind": "Sync", "from_seq": after + 1, "through_seq": sync["through_seq"]}
        assert before - 1 <= sync["through_seq"] < len(stored)
        assert [frame["seq"] for frame in durable] == list(range(after + 1, len(stored)))
        assert all(set(frame) == {"kind", "seq", "event"} for frame in durable)
        assert ids([frame["event"] for frame in durable]) == ids(stored[after + 1 :])


async def test_the_sequenced_socket_says_where_the_log_ends_to_who_has_more(
    talk: ConversationRef, dial: Dial
) -> None:
    await astore.append(talk, some_events(3))
    client = await dial(session_path(), query={"after_seq": 7})
    assert await client.receive() == {"kind": "Sync", "from_seq": 3, "through_seq": 2}
    await astore.append(talk, some_events(1))
    assert (await client.receive())["seq"] == 3


@pytest.mark.one_engine
async def test_a_wrong_cursor_is_refused(
    talk: ConversationRef, dial: Dial, subtests: pytest.Subtests
) -> None:
    for after in ["", "-2", "x", str(2**63)]:
        with subtests.test(after=after):
            assert await is_refused(dial, session_path(), query={"after_seq": after})


async def test_the_sequenced_socket_takes_messages_and_says_what_is_wrong_with_them(
    old_talk: ConversationRef, dial: Dial, silence: None
) -> None:
    client = await dial(f"/agent{session_path()}")
    await client.send(message(role="tool"))
    await client.send(message("hello"))
    kinds = [(await client.receive())["kind"] for _ in range(2)]
    said = await until_kind(client, "Durable")
    while said["event"]["kind"] != "MessageEvent":
        said = await until_kind(client, "Durable")
    assert kinds == ["Sync", "ServerErrorEvent"]
    assert texts([said["event"]]) == ["hello"]


# The page that describes them


def documented_frames() -> dict[str, dict[str, Any]]:
    examples = re.findall(r"```json\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    return {frame.get("kind", "auth"): frame for frame in map(json.loads, examples)}


async def test_the_frames_of_the_page_have_the_keys_that_are_sent(talk: ConversationRef, dial: Dial) -> None:
    client = await dial(session_path())
    await client.send("no JSON")
    frames = [await client.receive() for _ in range(2)]
    await astore.append(talk, [v1_event()])
    frames.append(await client.receive())
    documented = documented_frames()
    assert {frame["kind"] for frame in frames} == documented.keys() - {"auth"}
    assert all(frame.keys() == documented[frame["kind"]].keys() for frame in frames)
    assert frames[1]["detail"] == documented["ServerErrorEvent"]["detail"]


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    page = " ".join(PAGE.read_text().split())
    assert all(f"`{code}`" in page for code in (*socket.CLOSE_CODES.values(), 1012))
    assert all(f"`{reason}`" in page for reason in (v1_arrival.FAILED, v1_arrival.GONE))
    assert f"pings every {serving.PING_S:.0f} seconds and waits {serving.PONG_WAIT_S:.0f}" in page
    assert f"at least {events.RUN_SETTLES_S * 1000:.0f} ms after" in page
    assert f"{handshake.AUTH_WAIT_S:.0f} seconds for a first frame" in page
    assert f"nothing for {SLOW_READER_S:.0f} seconds" in page
