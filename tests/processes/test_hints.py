"""Hints between processes: whatever happens to Redis, sockets stay, nobody waits, and hints come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import User

from conversations import hints
from conversations.events import ConversationRef
from conversations.hint_channels import over_redis
from conversations.hint_channels.over_redis import RedisHints
from conversations.live import appended, conversation_group, user_group
from conversations.log import reads, writes
from conversations.store import creation
from sessions_app.identity.authentication import local_user
from tests.conftest import once
from tests.support.data.events import event
from tests.support.people.clients import HTTP, WAIT_S, Server
from tests.support.people.scripted_agent import until_here
from tests.support.servers.redis_server import PASSWORD, RedisServer
from tests.support.wires.network import NetworkClient, wait_until

ENVELOPE: dict[str, Any] = {
    "seq": 0,
    "fingerprint": "0123456789abcdef",
    "id": "a",
    "dialect": "v0",
    "type": "message",
    "kind": "message",
    "source": "user",
    "timestamp": "2026-01-01T00:00:00.000000Z",
    "cause": None,
    "turn": None,
    "tool_call_id": None,
    "hidden": False,
    "brings_envelope": False,
    "text": "Hello",
    "payload": "{}",
}
APPENDED = {"kind": "appended", "last_seq": 0, "events": [ENVELOPE]}
GOOD: list[dict[str, object]] = [
    APPENDED,
    {"kind": "appended", "last_seq": 7, "events": []},
    {"kind": "changed"},
    {"kind": "run"},
    {"kind": "answer", "answer": "a", "through": 3},
    {"kind": "delta", "turn": "t", "answer": "a", "index": 0, "text": "Hel", "reasoning": ""},
    {"kind": "listed", "conversation": 1},
    {"kind": "draft", "conversation": None, "version": 1},
    {"kind": "command"},
    {"kind": "wake", "conversation": 1},
    {"kind": "settled", "command": 1},
]
BAD: list[Any] = [
    None,
    [],
    "changed",
    7,
    {},
    {"kind": None},
    {"kind": []},
    {"kind": "unheard of"},
    {"kind": "state", "state": {}},
    {"kind": "state"},
    {"kind": "polled"},
    {"kind": "back"},
    {"kind": "appended"},
    {"kind": "appended", "last_seq": 3},
    {"kind": "appended", "last_seq": 3, "events": None},
    {"kind": "appended", "last_seq": 3, "events": [None]},
    {"kind": "appended", "last_seq": 3, "events": [{}]},
    {"kind": "appended", "last_seq": "3", "events": []},
    {"kind": "appended", "last_seq": 2**64 - 1, "events": []},
    {"kind": "appended", "last_seq": -1, "events": []},
    {"kind": "appended", "last_seq": True, "events": []},
    {"kind": "appended", "last_seq": 5, "events": [ENVELOPE]},
    {"kind": "appended", "last_seq": 0, "events": [{**ENVELOPE, "payload": None}]},
    {"kind": "appended", "last_seq": 0, "events": [{**ENVELOPE, "seq": "0"}]},
    {"kind": "appended", "last_seq": 1, "events": [ENVELOPE, ENVELOPE]},
    {"kind": "delta"},
    {"kind": "answer"},
    {"kind": "delta", "turn": "t", "answer": "a", "index": "0", "text": "Hel", "reasoning": ""},
    {"kind": "delta", "turn": "t", "answer": "a", "index": 0, "text": "Hel", "reasoning": 1},
    {"kind": "delta", "turn": "t", "answer": [], "index": 0, "text": "Hel", "reasoning": ""},
    {"kind": "listed"},
    {"kind": "listed", "conversation": "talk"},
    {"kind": "listed", "conversation": 2**64 - 1},
    {"kind": "draft"},
    {"kind": "draft", "conversation": 3, "version": None},
]
LIST = "/ws/conversations"
LOGINS = 40
REDIS_WAIT_S = 1.0
"""No request waits for Redis longer than half a second; a machine that tests keep busy has as much again."""


def test_what_processes_tell_each_other_passes_the_check(subtests: pytest.Subtests) -> None:
    for hint in GOOD:
        with subtests.test(hint=hint):
            message = {**hint, "type": "hint", "group": "conversation.1"}
            assert hints.checked(message) == message


def test_whatever_is_no_hint_does_not(subtests: pytest.Subtests) -> None:
    for message in BAD:
        with subtests.test(message=message):
            sent = {"group": "user.1", **message} if isinstance(message, dict) else message
            assert hints.checked(sent) is None


def test_events_that_no_wire_could_show_are_left_to_be_read(subtests: pytest.Subtests) -> None:
    for payload in ["not json", "", "[]", "7", "NaN", '{"a": NaN}', '{"a"', "{}" + " " * 200_000]:
        with subtests.test(payload=payload):
            message = {**APPENDED, "group": "conversation.1", "events": [ENVELOPE | {"payload": payload}]}
            assert hints.checked(message) == {**message, "events": []}


def test_a_hint_names_its_group(subtests: pytest.Subtests) -> None:
    groups: list[object] = [None, 3, [], {}, b"conversation.1"]
    for group in groups:
        with subtests.test(group=group):
            assert hints.checked({"kind": "changed", "group": group}) is None


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that nobody else uses; not started yet."""
    own_redis = RedisServer(tmp_path)
    yield own_redis
    own_redis.stop()


@pytest.fixture
def served(server: Server, own_redis: RedisServer, alice: User) -> Callable[[], Server]:
    """Start a server of which hints travel by the test's own Redis, and which polls for nothing by itself."""

    def start(**environment: str) -> Server:
        polling = {"sessions_app.live.hub.POLL_S": 3600.0}
        server.start(constants=polling, **{"REDIS_URL": own_redis.url, **environment})
        return server

    return start


class Talk:
    """A conversation that another process appends to."""

    def __init__(self, own_redis: RedisServer, name: str) -> None:
        self.ref: ConversationRef = creation.create(local_user(), conversation_id=name)
        self._redis = own_redis

    @property
    def group(self) -> str:
        return conversation_group(self.ref.pk)

    def tell(self) -> None:
        """Append an event and give the hint, once somebody receives it."""
        (stored,) = writes.append(self.ref, [event()])
        hint = {**appended(reads.read_after(self.ref, stored.seq - 1)), "group": self.group}
        wait_until(lambda: self._redis.publish(self.group, hint) > 0)


@pytest.fixture
def talk(own_redis: RedisServer) -> Talk:
    return Talk(own_redis, "talk")


@once
def test_messages_that_are_no_hints_end_neither_hints_nor_sockets(
    served: Callable[[], Server], own_redis: RedisServer
) -> None:
    own_redis.start()
    talk = Talk(own_redis, "0123456789abcdef0123456789abcdef")
    server, owner = served(), user_group(talk.ref.owner_id)
    with ExitStack() as stack:
        native = stack.enter_context(NetworkClient(server, talk.ref.public_id))
        v1 = stack.enter_context(NetworkClient(server, f"/sockets/events/{talk.ref.public_id}"))
        listed = stack.enter_context(NetworkClient(server, LIST))
        native.until("replay_complete")
        listed.until("hello")
        v1.receive()
        for group in (talk.group, owner):
            own_redis.publish(group, b"\xc1 no msgpack")
            for message in BAD:
                own_redis.publish(
                    group, {"group": group, **message} if isinstance(message, dict) else message
                )
        talk.tell()
        own_redis.publish(owner, {"kind": "listed", "conversation": talk.ref.pk, "group": owner})
        assert native.until("event")["seq"] == 0
        assert "id" in v1.receive()
        assert listed.until("conversation")["conversation"]["id"] == talk.ref.public_id


@pytest.mark.no_second_try
@once
def test_a_forged_event_is_not_shown_in_place_of_the_stored_one(
    served: Callable[[], Server], own_redis: RedisServer
) -> None:
    own_redis.start()
    talk = Talk(own_redis, "talk")
    with NetworkClient(served(), "talk") as client:
        client.until("replay_complete")
        forged = {**APPENDED, "group": talk.group, "events": [ENVELOPE | {"payload": "not json"}]}
        wait_until(lambda: own_redis.publish(talk.group, forged) > 0)
        talk.tell()
        assert client.until("event")["event"]["args"] == json.loads(event().payload)["args"]


@pytest.fixture
async def layer(own_redis: RedisServer) -> AsyncIterator[RedisHints]:
    """Hints of this process, by the test's own Redis."""
    own_redis.start()
    layer = RedisHints(url=own_redis.url, prefix=settings.HINTS_PREFIX)
    yield layer
    await layer.close()


@once
async def test_hints_that_are_encrypted_show_nothing_of_what_was_said(own_redis: RedisServer) -> None:
    own_redis.start()
    said = {"kind": "delta", "text": "a word that was said"}
    with redis.Redis.from_url(own_redis.url) as listener, listener.pubsub() as heard:
        heard.psubscribe("*")
        layers = [RedisHints(url=own_redis.url, prefix="test", keys=[key]) for key in ("one", "one", "other")]
        speaker, reader, stranger = layers
        channels = [await each.new_channel() for each in (reader, stranger)]
        for each, channel in zip((reader, stranger), channels, strict=True):
            await each.group_add("talk", channel)
        await speaker.group_send("talk", said)
        async with asyncio.timeout(WAIT_S):
            received = [
                await each.receive(channel)
                for each, channel in zip((reader, stranger), channels, strict=True)
            ]
        await asyncio.gather(*(each.close() for each in layers))
        messages = iter(lambda: heard.get_message(timeout=0.2), None)
        sent = [message["data"] for message in messages if message["channel"] == b"test__group__talk"]
    assert received == [said, None]
    assert len(sent) == 1
    assert b"a word" not in sent[0]


@once
async def test_hints_that_cannot_be_read_are_told_once_in_the_log(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_redis.start()
    speaker = RedisHints(url=own_redis.url, prefix="test")
    reader = RedisHints(url=own_redis.url, prefix="test", keys=["one"])
    channel = await reader.new_channel()
    await reader.group_add("talk", channel)
    async with asyncio.timeout(WAIT_S):
        for _ in range(2):
            await speaker.group_send("talk", {"kind": "delta"})
            assert await reader.receive(channel) is None
    await asyncio.gather(speaker.close(), reader.close())
    assert caplog.text.count("A hint could not be read") == 1


@pytest.mark.no_second_try
@once
async def test_an_event_loop_that_was_busy_gets_every_hint_that_came_meanwhile(
    layer: RedisHints, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_redis, "SILENT_S", 1.0)
    channel = await layer.new_channel()
    await layer.group_add("talk", channel)
    await until_here(lambda: own_redis.publish("talk", {"n": 0}) > 0)
    busy_until, sent = monotonic() + 1.5, 1
    while monotonic() < busy_until:
        own_redis.publish("talk", {"n": sent})
        sent += 1
    async with asyncio.timeout(WAIT_S):
        received = [(await layer.receive(channel)).get("n") for _ in range(sent)]
    assert (received, layer.away_since) == (list(range(sent)), None)


@once
async def test_a_group_that_is_left_before_it_was_joined_is_left_at_redis_as_well(
    layer: RedisHints, own_redis: RedisServer
) -> None:
    channel = await layer.new_channel()
    await layer.group_add("before", channel)
    await until_here(lambda: own_redis.publish("before", {}) > 0)
    with own_redis.frozen():
        await layer.group_add("talk", channel)
        await layer.group_discard("talk", channel)
    await layer.group_add("after", channel)
    await until_here(lambda: own_redis.publish("after", {}) > 0)
    await until_here(lambda: own_redis.publish("talk", {}) == 0)


@once
def test_a_server_that_starts_without_redis_serves_and_gets_hints_once_it_is_there(
    served: Callable[[], Server], own_redis: RedisServer
) -> None:
    server, talk = served(), Talk(own_redis, "0123456789abcdef0123456789abcdef")
    with ExitStack() as stack:
        native = stack.enter_context(NetworkClient(server, talk.ref.public_id))
        v1 = stack.enter_context(NetworkClient(server, f"/sockets/events/{talk.ref.public_id}"))
        listed = stack.enter_context(NetworkClient(server, LIST))
        native.until("replay_complete")
        listed.until("hello")
        v1.receive()
        wait_until(lambda: hints_of(server).startswith("away since 20"))
        own_redis.start()
        talk.tell()
        assert native.until("event")["seq"] == 0
        assert "id" in v1.receive()
    assert is_told_once(server, times=1)
    assert hints_of(server) == "ok"


@once
def test_hints_come_back_after_redis_was_started_anew(
    served: Callable[[], Server], own_redis: RedisServer, talk: Talk
) -> None:
    own_redis.start()
    server = served()
    with NetworkClient(server, "talk") as before:
        before.until("replay_complete")
        talk.tell()
        own_redis.stop()
        with NetworkClient(server, "meanwhile") as meanwhile:
            meanwhile.until("replay_complete")
            own_redis.start()
            own_redis.ask("FLUSHALL")
            talk.tell()
            assert before.until("event", seq=1)
            meanwhile.send({"type": "event", "id": "a", "event": json.loads(event().payload)})
            assert meanwhile.until("ack")["seq"] == 0
    assert is_told_once(server, times=1)


@once
def test_with_redis_frozen_nobody_waits_and_afterwards_hints_come_again(
    served: Callable[..., Server], own_redis: RedisServer, talk: Talk
) -> None:
    own_redis.start()
    server = served()
    with NetworkClient(server, "talk") as before:
        before.until("replay_complete")
        talk.tell()
        before.until("event", seq=0)
        with own_redis.frozen():
            with NetworkClient(server, "meanwhile") as meanwhile:
                meanwhile.until("replay_complete")
                meanwhile.send({"type": "event", "id": "a", "event": json.loads(event().payload)})
                meanwhile.until("ack", id="a")
                meanwhile.until("event", seq=0)
            wait_until(lambda: "Redis cannot be reached" in server.log.read_text())
        talk.tell()
        assert before.until("event", seq=1)
    assert is_told_once(server, times=1)


@once
def test_a_wrong_password_is_an_outage_like_any_other(
    served: Callable[..., Server], own_redis: RedisServer, talk: Talk
) -> None:
    own_redis.start("--requirepass", PASSWORD)
    server = served()
    with NetworkClient(server, "talk") as client:
        client.until("replay_complete")
        own_redis.ask("CONFIG", "SET", "requirepass", "", password=PASSWORD)
        talk.tell()
        assert client.until("event")["seq"] == 0
    assert PASSWORD not in server.log.read_text()


@once
def test_a_login_waits_for_a_frozen_redis_no_longer_than_a_moment(
    served: Callable[..., Server], own_redis: RedisServer, alice: User
) -> None:
    own_redis.start()
    server = served(SESSION_API_KEY="the-key-of-this-server")
    with (
        own_redis.frozen(),
        httpx.Client(base_url=server.url, timeout=4, trust_env=False, follow_redirects=True) as browser,
    ):
        browser.get("/ui/key")
        form = {"key": "a wrong key", "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
        assert browser.post("/ui/key", data=form).status_code == 200


@once
def test_of_many_logins_with_redis_frozen_none_waits_for_it_and_no_probe_waits_for_them(
    served: Callable[..., Server], own_redis: RedisServer, alice: User
) -> None:
    own_redis.start()
    server = served(SESSION_API_KEY="the-key-of-this-server")
    usual = slowest_login_and_probe(server)
    with own_redis.frozen():
        found = slowest_login_and_probe(server)
    waited = [frozen_s - usual_s for frozen_s, usual_s in zip(found, usual, strict=True)]
    assert max(waited) < REDIS_WAIT_S


def slowest_login_and_probe(server: Server) -> tuple[float, float]:
    """Give many wrong keys at once and probe meanwhile; return the seconds that the slowest of each took."""
    page = HTTP.get(f"{server.url}/ui/key")
    token = page.cookies["csrftoken"]
    form = {"key": "a wrong key", "csrfmiddlewaretoken": token}
    headers = {"Cookie": f"csrftoken={token}", "Referer": server.url}

    def log_in() -> float:
        began = monotonic()
        assert HTTP.post(f"{server.url}/ui/key", data=form, headers=headers).status_code in (200, 429)
        return monotonic() - began

    def probe() -> float:
        began = monotonic()
        assert HTTP.get(f"{server.url}/alive").status_code == 200
        return monotonic() - began

    with ThreadPoolExecutor(LOGINS) as threads:
        logins = [threads.submit(log_in) for _ in range(LOGINS)]
        probes = [probe()]
        while not all(login.done() for login in logins):
            probes.append(probe())
        return max(login.result() for login in logins), max(probes)


def hints_of(server: Server) -> str:
    """Return what the server tells whoever watches it about its hints."""
    answer = HTTP.get(f"{server.url}/health")
    assert answer.status_code == 200
    return str(answer.headers["X-Hints"])


def is_told_once(server: Server, *, times: int) -> bool:
    """Say whether the log tells of so many outages and recoveries, a line each, and shows no traceback."""
    wait_until(lambda: "Redis is back" in server.log.read_text())
    log = server.log.read_text()
    lines = [log.count("Redis cannot be reached"), log.count("Redis is back"), log.count("Traceback")]
    assert lines == [times, times, 0], log
    return True
