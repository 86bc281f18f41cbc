"""Quotas: beyond a limit every door says so in its own form, and another user is not affected."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction

from conversations.engines.watermark import EventHorizon
from conversations.exceptions import QuotaExceeded
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, StoredBytes
from conversations.storage import quotas, stored_bytes
from conversations.store import creation, forks
from convserver.asgi import application
from convserver.quotas import Quotas
from sessions_app import astore
from sessions_app.identity import open_sockets
from sessions_app.identity.conversation_keys import key_of
from sessions_app.live import drafts
from sessions_app.live.drafts import Edit
from sessions_app.models import ApiToken, Attachment, Draft
from sessions_app.storage import attachments, usage
from sessions_app.storage.attachments import NewFile
from tests.conftest import Dial, on_postgresql
from tests.support.data.events import event, payload
from tests.support.data.threads import in_threads, is_somebody_waiting
from tests.support.people.clients import WAIT_S, Client
from tests.support.people.web_browser import Browser, words
from tests.support.wires import app_face, v1, v1_socket
from tests.support.wires.v0_socket import Refused as RefusedByV0
from tests.support.wires.v0_socket import V0Client

NATIVE = "/api/native"
TALK = f"{NATIVE}/conversations/talk"
OK = (200, 201)

Limited = Callable[..., None]
Ask = Callable[[], Awaitable[httpx.Response]]


class Person:
    """A user with a token, and what they ask by each door."""

    def __init__(self, user: User, token: str, talk: ConversationRef, rest: httpx.AsyncClient) -> None:
        self.user, self.token, self.talk, self.rest = user, token, talk, rest
        self.key = ""
        self.browser = Browser()

    @property
    def path(self) -> str:
        """The native address of their conversation."""
        return f"{NATIVE}/conversations/{self.talk.public_id}"

    async def ask(self, method: str, path: str, *, key: str = "", **more: Any) -> httpx.Response:
        """Ask by REST with the token, or another key."""
        headers = {"x-session-api-key": key or self.token}
        return await self.rest.request(method, path, headers=headers, **more)

    def socket(self, path: str, **query: Any) -> Client:
        """Return a socket that is not connected yet."""
        return Client(application, path, token=self.token, query=query or None)

    def v0(self, conversation_id: str) -> V0Client:
        """Return a Socket.IO client that is not connected yet."""
        return V0Client(application, conversation_id=conversation_id, session_api_key=self.token)


@pytest.fixture
def limited(accounts: None, configured: Callable[..., None]) -> Limited:
    """Set quotas; all others are off."""

    def limit(**limits: int) -> None:
        configured(quotas=Quotas(**limits))

    return limit


@pytest.fixture
async def people(
    limited: Limited, alice: User, bob: User, rest: httpx.AsyncClient
) -> AsyncIterator[list[Person]]:
    """Two users, each with a V1 conversation."""

    def made(user: User) -> Person:
        talk = app_face.create(user, uuid4().hex)
        person = Person(user, ApiToken.issue(user.pk, "laptop")[1], talk, rest)
        person.key = key_of(talk)
        return person

    found = [await astore.call(made, user) for user in (alice, bob)]
    for person in found:
        await person.browser.log_in(person.user)
    yield found
    for person in found:
        await person.browser.http.aclose()


def refused(answer: httpx.Response, *said: str) -> None:
    """Assert that an answer is the refusal of a quota, which says when to try again, and these words."""
    assert answer.status_code == 429, answer.text
    assert 1 <= int(answer.headers["retry-after"]) <= 7200
    for each in said:
        assert each in words(answer), answer.text


# Conversations

MAKERS: dict[str, Callable[[Person], Awaitable[httpx.Response]]] = {
    "native": lambda who: who.ask("POST", f"{NATIVE}/conversations", json={}),
    "fork": lambda who: who.ask("POST", f"{v1.AGENT}/{who.talk.public_id}/fork", json={}),
    "v0": lambda who: who.ask("POST", "/api/conversations", json={}),
    "v1-app": lambda who: who.ask("POST", app_face.CONVERSATIONS, json={}),
    "v1-agent": lambda who: who.ask("POST", v1.AGENT, json=v1.START),
    "v1-report": lambda who: who.ask("POST", "/api/v1/webhooks/conversations", json={"id": str(uuid4())}),
    "page": lambda who: who.browser.send("/begin", {"text": "hi", "id": str(uuid4())}, page="/new"),
}


@pytest.mark.one_engine
@pytest.mark.parametrize("door", MAKERS)
async def test_a_user_makes_so_many_conversations_an_hour_by_any_door(
    door: str, people: list[Person], limited: Limited
) -> None:
    limited(conversations_per_hour=2)
    alice, bob = people
    make = MAKERS[door]
    for _ in range(2):
        made = await make(alice)
        assert made.status_code in (*OK, 302), made.text
    before = await astore.call(Conversation.objects.count)
    refused(await make(alice), "2 of 2 new conversations an hour", "CONVERSATIONS_PER_HOUR")
    assert await astore.call(Conversation.objects.count) == before
    assert (await make(bob)).status_code in (*OK, 302)


@pytest.mark.one_engine
async def test_joins_of_unknown_ids_are_refused_by_sockets_beyond_the_limit(
    people: list[Person], limited: Limited
) -> None:
    limited(conversations_per_hour=2)
    alice, bob = people
    for name in ("one", "two"):
        socket = alice.socket(f"/ws/conversations/{name}")
        await socket.connect()
        await socket.until("hello")
        await socket.leave()
    socket = alice.socket("/ws/conversations/three")
    await socket.connect()
    error = await socket.until("error", code="quota_exceeded", id=None)
    assert "2 of 2 new conversations an hour" in error["detail"]
    assert (await socket.closed()).code == 4429
    with pytest.raises(RefusedByV0, match="2 of 2 new conversations an hour"):
        await alice.v0("four").connect()
    assert not await astore.call(Conversation.objects.with_public_ids(["three", "four"]).exists)
    again = alice.socket("/ws/conversations/one")
    await again.connect()
    await again.until("hello")
    other = bob.socket("/ws/conversations/five")
    await other.connect()
    await other.until("hello")
    for each in (again, other):
        await each.leave()


@pytest.mark.one_engine
async def test_starts_are_limited_and_so_are_failed_ones(people: list[Person], limited: Limited) -> None:
    limited(starts_per_hour=2)
    alice, bob = people
    taken = {"conversation_id": bob.talk.public_id}
    for _ in range(2):
        answer = await alice.ask("POST", app_face.CONVERSATIONS, json=taken)
        assert answer.status_code == 200, answer.text
    refused(await alice.ask("POST", app_face.CONVERSATIONS, json=taken), "2 of 2 started conversations")
    refused(await alice.ask("POST", f"{app_face.CONVERSATIONS}/stream-start", json={}), "2 of 2 started")
    assert (await bob.ask("POST", app_face.CONVERSATIONS, json={})).status_code == 200


# Messages


async def _report(who: Person) -> httpx.Response:
    return await who.ask("POST", f"/api/v1/webhooks/events/{who.talk.public_id}", json=[app_face.reported()])


async def _say_on_page(who: Person) -> httpx.Response:
    page = f"/c/{who.talk.public_id}"
    return await who.browser.send(f"{page}/messages", {"text": "hello", "id": str(uuid4())}, page=page)


RECORDED = {"type": "event", "event": json.loads(payload("noted"))}
SPEAKERS: dict[str, Callable[[Person], Awaitable[httpx.Response]]] = {
    "native": lambda who: who.ask("POST", f"{who.path}/events", json={"type": "message", "text": "hello"}),
    "native-event": lambda who: who.ask("POST", f"{who.path}/events", json=RECORDED),
    "v0": lambda who: who.ask(
        "POST", f"/api/conversations/{who.talk.public_id}/message", json={"message": "hello"}
    ),
    "v1": lambda who: who.ask("POST", f"{v1.AGENT}/{who.talk.public_id}/events", json=v1.said("hello")),
    "v1-by-conversation-key": lambda who: who.ask(
        "POST", f"{v1.AGENT}/{who.talk.public_id}/events", key=who.key, json=v1.said("hello")
    ),
    "v1-report": _report,
    "page": _say_on_page,
}


@pytest.mark.one_engine
@pytest.mark.parametrize("door", SPEAKERS)
async def test_a_user_sends_so_many_messages_a_minute_by_any_door(
    door: str, people: list[Person], limited: Limited
) -> None:
    limited(messages_per_minute=2)
    alice, bob = people
    say = SPEAKERS[door]
    for _ in range(2):
        said = await say(alice)
        assert said.status_code in (*OK, 302), said.text
    refused(await say(alice), "2 of 2 messages and events a minute")
    refused(await SPEAKERS["v1-by-conversation-key"](alice))
    assert (await say(bob)).status_code in (*OK, 302)


@pytest.mark.one_engine
async def test_a_list_of_frames_is_stored_up_to_the_limit(people: list[Person], limited: Limited) -> None:
    limited(messages_per_minute=3)
    frames = [{**RECORDED, "id": str(number)} for number in range(5)]
    answer = await people[0].ask("POST", f"{people[0].path}/events", json=frames)
    assert [each["type"] for each in answer.json()] == ["ack", "ack", "ack", "error", "error"]
    assert answer.json()[3]["code"] == "quota_exceeded"


@pytest.mark.one_engine
async def test_a_native_socket_acknowledges_what_it_stored_then_says_error_and_closes(
    people: list[Person], limited: Limited
) -> None:
    limited(messages_per_minute=3)
    alice, bob = people
    socket = alice.socket(f"/ws/conversations/{alice.talk.public_id}")
    await socket.connect()
    await socket.until("replay_complete")
    for number in range(6):
        await socket.send({**RECORDED, "id": number})
    assert [(await socket.until("ack"))["id"] for _ in range(3)] == [0, 1, 2]
    error = await socket.until("error")
    assert (error["id"], error["code"]) == (3, "quota_exceeded")
    closed = await socket.closed()
    assert (closed.code, closed.reason[:19]) == (4429, "You have used 3 of ")
    other = bob.socket(f"/ws/conversations/{bob.talk.public_id}")
    await other.connect()
    await other.until("replay_complete")
    await other.send({**RECORDED, "id": 1})
    await other.until("ack", id=1)
    await other.leave()


@pytest.mark.one_engine
async def test_a_v1_socket_tells_the_error_and_closes(people: list[Person], limited: Limited) -> None:
    limited(messages_per_minute=1)
    alice, _ = people
    socket = Client(application, v1_socket.events_path(alice.talk))
    await socket.connect()
    await socket.send(v1_socket.auth(alice.token))
    for _ in range(2):
        await socket.send(v1_socket.message())
    error = await _of_kind(socket, "ServerErrorEvent")
    assert error["code"] == "QuotaExceeded"
    assert "1 of 1 messages and events a minute" in error["detail"]
    assert (await socket.closed()).code == 4429


async def _of_kind(socket: Client, kind: str) -> dict[str, Any]:
    while (frame := await socket.receive()).get("kind") != kind:
        pass
    return frame


@pytest.mark.one_engine
async def test_a_v0_socket_acknowledges_the_refusal_and_stays(people: list[Person], limited: Limited) -> None:
    limited(messages_per_minute=1)
    alice, _ = people
    talk = await astore.call(creation.create, alice.user)
    client = alice.v0(talk.public_id)
    await client.connect()
    said = {"action": "message", "args": {"content": "hello"}}
    assert (await client.asked(said))["success"]
    answer = await client.asked(said, number=8)
    assert not answer["success"]
    assert "1 of 1 messages and events a minute" in answer["error"]
    await client.leave()


@pytest.mark.one_engine
async def test_what_the_agent_says_counts_for_nobody(people: list[Person], limited: Limited) -> None:
    limited(messages_per_minute=1)
    alice, _ = people
    socket = alice.socket(f"/ws/conversations/{alice.talk.public_id}")
    await socket.connect()
    await socket.until("replay_complete")
    await socket.send({"type": "message", "id": 1, "text": "hello"})
    await socket.until("event", kind="message", source="agent")
    await socket.leave()


# Requests

READERS: dict[str, Callable[[Person], Awaitable[httpx.Response]]] = {
    "native": lambda who: who.ask("GET", who.path),
    "v0": lambda who: who.ask("GET", f"/api/conversations/{who.talk.public_id}"),
    "v1-app": lambda who: who.ask("GET", f"{app_face.CONVERSATIONS}/count"),
    "v1-agent": lambda who: who.ask("GET", f"{v1.AGENT}/{who.talk.public_id}"),
    "v1-by-conversation-key": lambda who: who.ask("GET", f"{v1.AGENT}/{who.talk.public_id}", key=who.key),
    "page": lambda who: who.browser.get("/"),
}


@pytest.mark.one_engine
@pytest.mark.parametrize("door", READERS)
async def test_a_user_makes_so_many_requests_a_minute_at_any_door(
    door: str, people: list[Person], limited: Limited
) -> None:
    limited(requests_per_minute=3)
    alice, bob = people
    read = READERS[door]
    for _ in range(3):
        assert (await read(alice)).status_code == 200
    refused(await read(alice), "3 of 3 requests a minute", "REQUESTS_PER_MINUTE")
    refused(await READERS["native"](alice))
    assert (await read(bob)).status_code == 200


@pytest.mark.one_engine
async def test_handshakes_of_sockets_are_requests(people: list[Person], limited: Limited) -> None:
    limited(requests_per_minute=1)
    alice, _ = people
    assert (await READERS["native"](alice)).status_code == 200
    socket = alice.socket(f"/ws/conversations/{alice.talk.public_id}")
    await socket.connect()
    assert (await socket.closed()).code == 4429


# Sockets

SOCKETS: dict[str, Callable[[Person], Client]] = {
    "native": lambda who: who.socket(f"/ws/conversations/{who.talk.public_id}"),
    "list": lambda who: who.socket("/ws/conversations"),
    "v1": lambda who: who.socket(v1_socket.events_path(who.talk)),
    "v1-session": lambda who: who.socket(v1_socket.session_path(who.talk)),
}


@pytest.mark.one_engine
@pytest.mark.parametrize("door", SOCKETS)
async def test_a_user_opens_so_many_sockets_by_any_door(
    door: str, people: list[Person], limited: Limited
) -> None:
    limited(sockets=2)
    alice, bob = people
    opened = [SOCKETS["native"](alice), SOCKETS[door](alice), SOCKETS[door](bob)]
    for socket in opened:
        await socket.connect()
        await socket.receive()
    beyond = SOCKETS[door](alice)
    await beyond.connect()
    closed = await beyond.closed()
    assert (closed.code, "2 of 2 open sockets" in closed.reason) == (4429, True)
    with pytest.raises(RefusedByV0, match="2 of 2 open sockets"):
        await alice.v0(alice.talk.public_id).connect()
    await opened[1].leave()
    again = SOCKETS[door](alice)
    await again.connect()
    await again.receive()
    for socket in (opened[0], opened[2], again):
        await socket.leave()
    assert open_sockets.number_of(alice.user.pk) == open_sockets.number_of(bob.user.pk) == 0


@pytest.mark.one_engine
async def test_socket_io_connections_count_until_they_end(people: list[Person], limited: Limited) -> None:
    limited(sockets=1)
    alice, _ = people
    client = alice.v0(alice.talk.public_id)
    await client.connect()
    beyond = SOCKETS["native"](alice)
    await beyond.connect()
    error = await beyond.until("error")
    assert error["code"] == "quota_exceeded"
    await client.leave()


# What is kept


@pytest.mark.one_engine
async def test_a_user_has_so_many_tokens(people: list[Person], limited: Limited) -> None:
    limited(tokens=2)
    alice, bob = people
    assert (await alice.ask("POST", f"{NATIVE}/tokens", json={"name": "second"})).status_code == 201
    refused(
        await alice.ask("POST", f"{NATIVE}/tokens", json={"name": "third"}), "2 of 2 API tokens", "Revoke"
    )
    form = {"label": "third", "id": str(uuid4())}
    refused(await alice.browser.send("/settings/tokens", form, page="/settings"), "2 of 2 API tokens")
    assert (await bob.ask("POST", f"{NATIVE}/tokens", json={"name": "second"})).status_code == 201
    await astore.call(lambda: ApiToken.objects.get(name="second", user=alice.user).revoke())
    assert (await alice.ask("POST", f"{NATIVE}/tokens", json={"name": "third"})).status_code == 201


def draft(text: str, version: int = 0) -> dict[str, Any]:
    return {"text": text, "version": version}


@pytest.mark.one_engine
async def test_a_user_has_so_many_drafts_that_are_not_empty(people: list[Person], limited: Limited) -> None:
    limited(drafts=2)
    alice, bob = people
    talks = [await astore.call(creation.create, alice.user) for _ in range(3)]
    paths = [f"{NATIVE}/conversations/{talk.public_id}/draft" for talk in talks]
    for path in paths[:2]:
        assert (await alice.ask("PUT", path, json=draft("hello"))).status_code == 200
    refused(
        await alice.ask("PUT", paths[2], json=draft("hello")), "2 of 2 drafts", "Send a draft or empty it"
    )
    assert (await alice.ask("PUT", paths[2], json=draft(""))).status_code == 200
    assert (await bob.ask("PUT", f"{NATIVE}/draft", json=draft("hello"))).status_code == 200
    assert (await alice.ask("PUT", paths[0], json=draft("", 1))).status_code == 200
    assert (await alice.ask("PUT", paths[2], json=draft("hello", 1))).status_code == 200
    assert (await alice.ask("PUT", paths[2], json=draft("outdated", 1))).status_code == 409
    refused(await alice.ask("PUT", paths[0], json=draft("hello", 2)), "2 of 2 drafts")


@pytest.mark.one_engine
async def test_drafts_of_a_user_have_so_many_bytes_also_those_from_before_they_were_counted(
    people: list[Person], limited: Limited
) -> None:
    limited(drafts_mb=1)
    alice, bob = people
    before = Draft(user=alice.user, conversation_id=alice.talk.pk, text="x" * 600_000, version=1)
    await astore.call(before.save)
    half = draft("x" * 500_000)
    refused(await alice.ask("PUT", f"{NATIVE}/draft", json=half), "600,000 of 1,000,000 bytes of drafts")
    assert (await bob.ask("PUT", f"{NATIVE}/draft", json=half)).status_code == 200
    assert (await alice.ask("PUT", f"{alice.path}/draft", json=draft("x" * 400_000, 1))).status_code == 200
    assert (await alice.ask("PUT", f"{NATIVE}/draft", json=half)).status_code == 200


def _form(size: int) -> dict[str, Any]:
    return {"files": [("files", ("a.txt", b"x" * size))]}


UPLOADERS: dict[str, Callable[[Person, int], Awaitable[httpx.Response]]] = {
    "v0": lambda who, size: who.ask(
        "POST", f"/api/conversations/{who.talk.public_id}/upload-files", **_form(size)
    ),
    "v1": lambda who, size: who.ask(
        "POST", "/agent/api/file/upload/a.txt", key=who.key, files=[("file", ("a.txt", b"x" * size))]
    ),
}


@pytest.mark.one_engine
@pytest.mark.parametrize("door", UPLOADERS)
async def test_uploads_of_a_user_have_so_many_bytes_also_those_from_before_they_were_counted(
    door: str, people: list[Person], limited: Limited
) -> None:
    limited(uploads_mb=1)
    alice, bob = people
    upload = UPLOADERS[door]
    earlier = Attachment(conversation_id=alice.talk.pk, name="old", size=300_000, content=b"x" * 300_000)
    await astore.call(earlier.save)
    assert (await upload(alice, 600_000)).status_code == 200
    refused(await upload(alice, 100_001), "900,000 of 1,000,000 bytes of uploads")
    assert (await upload(alice, 100_000)).status_code == 200
    assert (await upload(bob, 600_000)).status_code == 200


# Stored bytes

RECORDED_LONG = {"type": "event", "event": json.loads(payload("x" * 600_000))}


@pytest.mark.one_engine
async def test_events_of_a_user_have_so_many_bytes_by_any_door(
    people: list[Person], limited: Limited
) -> None:
    limited(stored_mb=1)
    alice, bob = people
    assert (await alice.ask("POST", f"{alice.path}/events", json=RECORDED_LONG)).status_code == 200
    beyond = await alice.ask("POST", f"{alice.path}/events", json=RECORDED_LONG)
    refused(beyond, "of 1,000,000 bytes of events", "STORED_MB")
    socket = alice.socket(f"/ws/conversations/{alice.talk.public_id}")
    await socket.connect()
    await socket.until("replay_complete")
    await socket.send(RECORDED_LONG)
    assert (await socket.until("error"))["code"] == "quota_exceeded"
    assert (await socket.closed()).code == 4429
    assert (await SPEAKERS["v1"](alice)).status_code == 200
    assert (await bob.ask("POST", f"{bob.path}/events", json=RECORDED_LONG)).status_code == 200


async def test_bytes_that_were_stored_before_or_elsewhere_count_once_they_are_read(
    people: list[Person], limited: Limited
) -> None:
    alice, bob = people
    await astore.append(alice.talk, [event("x" * 700_000)])
    fork = await astore.call(forks.fork, alice.user, alice.talk)
    limited(stored_mb=2)
    for who in people:
        assert (await SPEAKERS["native"](who)).status_code == 200
    await astore.change(quotas.meter.refresh)
    beyond = await alice.ask("POST", f"{NATIVE}/conversations/{fork.public_id}/events", json=RECORDED_LONG)
    refused(beyond, "bytes of events")
    assert (await bob.ask("POST", f"{bob.path}/events", json=RECORDED_LONG)).status_code == 200


async def test_what_is_stored_is_acknowledged_again_when_nothing_more_can_be_added(
    people: list[Person], limited: Limited
) -> None:
    limited(stored_mb=1)
    alice, _ = people
    frame, path = {**RECORDED_LONG, "id": "once"}, f"{alice.path}/events"
    first, again = [await alice.ask("POST", path, json=frame) for _ in range(2)]
    assert (first.status_code, again.status_code, again.json()) == (200, 200, first.json())
    refused(await alice.ask("POST", path, json={**frame, "id": "twice"}), "bytes of events")
    long = event("x" * 300_000, sender_id=alice.user.pk)
    stored = [await astore.call(writes.append, alice.talk, [long]) for _ in range(2)]
    assert [(each.seq, each.is_new) for (each,) in stored] == [(1, True), (1, False)]


async def test_the_bytes_of_a_fork_count_before_it_is_made(people: list[Person], limited: Limited) -> None:
    alice, bob = people
    for who in people:
        await astore.append(who.talk, [event("x" * 600_000)])
    limited(stored_mb=1)
    assert (await SPEAKERS["native"](alice)).status_code == 200
    await astore.change(quotas.meter.refresh)
    refused(await MAKERS["fork"](alice), "of 1,000,000 bytes of events")
    assert await astore.call(Conversation.objects.owned_by(alice.user.pk).count) == 1
    assert (await MAKERS["fork"](bob)).status_code in OK


def test_totals_of_stored_bytes_equal_the_log_whoever_counts_and_how_often(
    alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_bytes, "STEP_EVENTS", 3)
    talks = [creation.create(owner) for owner in (alice, bob, alice)]
    for talk in talks:
        writes.append(talk, [event("x" * number) for number in range(5)])
    sizes = {
        owner.pk: sum(row.size for row in Event.objects.filter(conversation__owner=owner))
        for owner in (alice, bob)
    }
    assert stored_bytes.totals(sizes) == sizes
    watermark = EventHorizon()
    watermark.look()
    while watermark.settled < watermark.newest:  # as long as an older transaction runs, in whichever database
        watermark.look()

    def count(number: int) -> None:
        while not stored_bytes.count(watermark):
            pass

    in_threads(4, count)
    counted = dict(StoredBytes.objects.values_list("owner_id", "total"))
    assert (counted, stored_bytes.totals(sizes)) == (sizes, sizes)


@pytest.mark.one_engine
async def test_staff_see_what_a_user_has_used(people: list[Person], limited: Limited) -> None:
    limited(drafts=3, messages_per_minute=1_000, stored_mb=1)
    alice, bob = people
    await bob.ask("PUT", f"{bob.path}/draft", json=draft("hello"))
    await SPEAKERS["native"](bob)
    page = words(await alice.browser.get(f"/admin/auth/user/{bob.user.pk}/change/"))
    assert "messages per minute: 1 of 1,000" in page
    assert "drafts: 1 of 3" in page
    assert "of 1,000,000" in page


# Two at once


def _write_draft(owner: User, talk: ConversationRef) -> None:
    drafts.write(owner.pk, talk, Edit(text="hello", images=[], version=0))


CHANGES: dict[str, tuple[dict[str, int], Callable[[User, ConversationRef], object]]] = {
    "tokens": ({"tokens": 1}, lambda owner, talk: usage.issue_token(owner.pk, talk.public_id)),
    "drafts": ({"drafts": 1}, _write_draft),
    "uploads": (
        {"uploads_mb": 1},
        lambda owner, talk: attachments.attach(talk, [NewFile(name="a", content=b"x" * 600_000)]),
    ),
}


@on_postgresql
@pytest.mark.parametrize("kept", CHANGES)
def test_two_changes_at_the_same_moment_do_not_exceed_a_quota_together(
    kept: str, limited: Limited, alice: User
) -> None:
    limits, change = CHANGES[kept]
    first, second = [creation.create(alice) for _ in range(2)]
    with transaction.atomic():
        usage.locked(alice.pk)
    limited(**limits)

    def change_second() -> None:
        try:
            change(alice, second)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            change(alice, first)
            meanwhile = pool.submit(change_second)
            while not (meanwhile.done() or is_somebody_waiting()):
                time.sleep(0.01)
        with pytest.raises(QuotaExceeded):
            meanwhile.result(WAIT_S)


@pytest.mark.one_engine
async def test_in_local_mode_nothing_is_limited_unless_it_is_set(dial: Dial, rest: httpx.AsyncClient) -> None:
    for _ in range(20):
        assert (await rest.post(f"{NATIVE}/conversations", json={})).status_code == 201
    sockets = [await dial("/ws/conversations/talk") for _ in range(5)]
    assert [(await socket.until("hello"))["last_seq"] for socket in sockets] == [-1] * 5
