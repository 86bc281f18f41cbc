"""Live updates over HTTP: the frames of the native sockets as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client as LoginClient

from conversations.events import ConversationRef
from conversations.store import changes, creation, deletion
from convserver.quotas import Quotas
from sessions_app import astore
from sessions_app.identity import conversation_keys, open_sockets
from sessions_app.live import marks, open_streams
from sessions_app.models import ApiToken, Grant, Scope
from sessions_app.sockets.native import list_reader, reader, stream
from tests.conftest import Join
from tests.support.data.events import event, payload
from tests.support.people.dictation import Dictate, dictate, end_answer, silence
from tests.support.wires.streams import ServerSentEvents, Stream

pytestmark = pytest.mark.one_engine

__all__ = ["dictate", "silence"]

TALK = "/api/native/conversations/talk/stream"
LIST = "/api/native/stream"

Follow = Callable[..., Awaitable[Stream]]


@pytest.fixture
async def follow(live: None, alice: User) -> AsyncIterator[Follow]:
    """Open a stream; alice's in local mode, nobody's in accounts mode without a token."""
    streams: list[Stream] = []

    async def opened(path: str = TALK, *, token: str = "", **options: Any) -> Stream:
        headers = options.pop("headers", {})
        if token:
            headers = {**headers, "authorization": f"Bearer {token}"}
        streams.append(Stream(path, headers=headers, **options))
        return await streams[-1].open()

    yield opened
    for each in streams:
        await each.leave()


def seqs(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["seq"] for frame in frames if frame["type"] == "event"]


async def test_a_stream_brings_what_the_socket_brings(
    conversation: ConversationRef, follow: Follow, join: Join
) -> None:
    await astore.append(conversation, [event(), event()])
    client, socket = await follow(), await join(conversation)
    await client.until("replay_complete")
    await socket.until("replay_complete")
    await astore.append(conversation, [event(text="live")])
    await client.until("event", text="live")
    await socket.until("event", text="live")
    await astore.change(changes.retitle, conversation, "Another title")
    await client.until("conversation")
    await socket.until("conversation")
    del socket.frames[0]["session"]  # a socket's own frames have one
    assert client.frames == socket.frames


async def test_a_stream_is_kept_by_no_cache_and_no_proxy(
    conversation: ConversationRef, follow: Follow
) -> None:
    client = await follow()
    assert client.status == 200
    assert client.headers["content-type"].startswith("text/event-stream")
    assert (client.headers["cache-control"], client.headers["x-accel-buffering"]) == ("no-store", "no")


@pytest.mark.no_second_try
async def test_a_client_resumes_after_the_last_id_without_a_gap_or_a_double(
    conversation: ConversationRef, follow: Follow
) -> None:
    await astore.append(conversation, [event() for _ in range(3)])
    client = await follow(after=0)
    await client.until("event", seq=1)
    await client.leave()
    await astore.append(conversation, [event() for _ in range(130)])
    again = await follow(after=0, headers={"last-event-id": client.last_id})
    await again.until("replay_complete")
    assert seqs([*client.frames, *again.frames]) == list(range(1, 133))


async def test_what_is_not_stored_has_no_id(
    conversation: ConversationRef, follow: Follow, dictate: Dictate, join: Join
) -> None:
    client = await follow()
    await client.until("replay_complete")
    socket = await join(conversation)
    await socket.send({"type": "message", "text": "hello"})
    await client.until("event", source="user")
    await dictate("It ", "is ")
    delta = await client.until("delta", index=1)
    last = max(seqs(client.frames))
    assert (delta["text"], client.last_id.partition(".")[0]) == ("is ", str(last))
    late = await follow(headers={"last-event-id": client.last_id})
    assert "It is ".startswith((await late.until("answer"))["text"])  # what was stored of it so far
    end_answer()
    answer = await client.until("event", source="agent")
    assert client.last_id == answer["cursor"]


async def test_a_payload_of_several_lines_is_one_event(conversation: ConversationRef, follow: Follow) -> None:
    value = json.loads(payload("lines"))
    lines = json.dumps(value, indent=1).replace("\n", "\r\n")
    await astore.append(conversation, [event(raw=lines)])
    client = await follow()
    assert (await client.until("event"))["event"] == value
    bare = await follow(payload="false")
    assert "event" not in await bare.until("event")


async def test_a_client_that_polls_gets_what_there_is_and_an_end(
    conversation: ConversationRef, follow: Follow
) -> None:
    await astore.append(conversation, [event(), event()])
    client = await follow(follow="false", after=0)
    assert (await client.ended())["code"] == 1000
    assert [frame["type"] for frame in client.frames] == ["hello", "event", "replay_complete", "end"]


async def test_a_cursor_of_another_history_is_said_to_be_one(
    conversation: ConversationRef, follow: Follow, subtests: pytest.Subtests
) -> None:
    await astore.append(conversation, [event()])
    for cursor, code in (("7", "cursor_ahead"), ("0.0123456789abcdef", "history_replaced")):
        with subtests.test(cursor=cursor):
            client = await follow(headers={"last-event-id": cursor})
            assert (await client.until("error"))["code"] == code
            await client.until("replay_complete")
    refused = await follow(headers={"last-event-id": "yesterday"})
    assert (refused.status, json.loads(await refused.text())["code"]) == (400, "invalid_cursor")


# Who may read


def _tokens(talk: ConversationRef, alice: User, bob: User) -> dict[str, str]:
    other = creation.create(alice, conversation_id="other")
    grants = {
        "read only": Grant(scopes=[Scope.READ]),
        "write only": Grant(scopes=[Scope.WRITE]),
        "this one": Grant(scopes=[Scope.READ], conversation=talk),
        "another one": Grant(scopes=[Scope.READ], conversation=other),
    }
    made = {name: ApiToken.issue(alice.pk, name, grant)[1] for name, grant in grants.items()}
    return {**made, "stranger": ApiToken.issue(bob.pk, "laptop")[1]}


async def test_a_stream_is_open_to_those_who_may_read(
    accounts: None,
    conversation: ConversationRef,
    alice: User,
    bob: User,
    follow: Follow,
    subtests: pytest.Subtests,
) -> None:
    tokens = await astore.call(_tokens, conversation, alice, bob)
    expected = {
        "read only": (200, 200),
        "write only": (403, 403),
        "this one": (200, 403),
        "another one": (404, 403),
        "stranger": (404, 200),
        "": (401, 401),
    }
    for name, statuses in expected.items():
        with subtests.test(token=name):
            found = [(await follow(path, token=tokens.get(name, ""))).status for path in (TALK, LIST)]
            assert tuple(found) == statuses
    key = await astore.call(conversation_keys.key_of, conversation)  # opens OpenHands' addresses only
    assert (await follow(headers={"x-session-api-key": key})).status == 401


async def test_a_stream_ends_when_its_access_does(
    accounts: None, conversation: ConversationRef, alice: User, follow: Follow, subtests: pytest.Subtests
) -> None:
    def login() -> str:
        client = LoginClient()
        client.force_login(alice)
        return client.cookies["sessionid"].value

    for path in (TALK, LIST):
        with subtests.test("token", path=path):
            token, text = await astore.call(ApiToken.issue, alice.pk, "lost")
            client = await follow(path, token=text)
            await client.until("hello")
            await astore.call(token.revoke)
            assert (await client.ended())["code"] == 4401
        with subtests.test("login", path=path):
            session = await astore.call(login)
            client = await follow(path, headers={"cookie": f"sessionid={session}"})
            await client.until("hello")
            await astore.call(_log_out, session)
            assert (await client.ended())["code"] == 4401
    whole = (await astore.call(ApiToken.issue, alice.pk, "whole"))[1]
    client = await follow(token=whole)
    await client.until("replay_complete")
    await astore.call(deletion.soft_delete, conversation)
    assert (await client.ended())["code"] == 4404
    assert (await follow(token=whole)).status == 404


def _log_out(session: str) -> None:
    client = LoginClient()
    client.cookies["sessionid"] = session
    client.post("/ui/logout")


# Bounds


async def test_a_stream_counts_as_an_open_socket(
    configured: Callable[..., None], conversation: ConversationRef, alice: User, follow: Follow
) -> None:
    configured(quotas=Quotas(sockets=1))
    first = await follow()
    await first.until("hello")
    second = await follow(LIST)
    assert (second.status, json.loads(await second.text())["code"]) == (429, "quota_exceeded")
    await first.leave()
    assert open_sockets.number_of(alice.pk) == 0
    assert (await follow(LIST)).status == 200


async def test_an_idle_stream_ends(
    conversation: ConversationRef, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reader, list_reader):
        monkeypatch.setattr(module, "HEARTBEAT_S", 0.01)
    client = await follow()
    await client.until("heartbeat")
    monkeypatch.setattr(stream, "IDLE_S", 0.0)
    assert (await client.ended())["code"] == 1000
    assert (await (await follow(LIST)).ended())["code"] == 1000


async def test_a_server_that_ends_ends_its_streams(conversation: ConversationRef, follow: Follow) -> None:
    streams = [await follow(), await follow(LIST)]
    for each in streams:
        await each.until("hello")
    open_streams.end_all()
    assert [(await each.ended())["code"] for each in streams] == [1012, 1012]


# The list


async def test_the_list_is_followed_and_resumed(conversation: ConversationRef, follow: Follow) -> None:
    client = await follow(LIST)
    hello = await client.until("hello")
    assert client.last_id == hello["cursor"]
    await astore.change(changes.retitle, conversation, "Another title")
    shown = await client.until("conversation")
    assert (shown["conversation"]["id"], shown["conversation"]["title"]) == ("talk", "Another title")
    await client.leave()
    await astore.change(changes.retitle, conversation, "A third title")
    polled = await follow(LIST, headers={"last-event-id": client.last_id}, follow="false")
    assert (await polled.ended())["code"] == 1000
    titles = [each["conversation"]["title"] for each in polled.frames if each["type"] == "conversation"]
    assert titles == ["A third title"]
    nothing = await follow(LIST, headers={"last-event-id": polled.last_id}, follow="false")
    await nothing.ended()
    assert [each["type"] for each in nothing.frames] == ["hello", "heartbeat", "end"]
    assert (await follow(LIST, since="yesterday")).status == 400


async def test_what_a_user_has_seen_is_noted_by_rest(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.append(conversation, [event(), event()])
    address = "/api/native/conversations/talk"
    answers = [await rest.patch(address, json={"seen_through": seq}) for seq in (0, 7, 1, -1)]
    assert [each.json()["seen_through"] for each in answers] == [0, 1, 1, 1]
    assert await astore.call(marks.seen_through, alice.pk, conversation) == 1
    assert (await rest.patch(address, json={})).status_code == 400


def test_frames_are_read_as_browsers_do() -> None:
    events = ServerSentEvents()
    assert events.read('retry: 2000\n\nid: 1.a\ndata: {"a":\n') == []
    assert events.read("data: 1}\n\n") == [("1.a", {"a": 1})]
