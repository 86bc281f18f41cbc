"""A commit whose answer was lost: nobody is told that something failed which is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines import failures
from conversations.engines.lost_commits import LostCommit
from conversations.engines.postgresql.base import DatabaseWrapper
from conversations.models import Conversation, ConversationRef, Event, Version
from conversations.store import creation
from tests.conftest import on_postgresql
from tests.support.data.events import event
from tests.support.people.clients import HTTP, Server
from tests.support.servers import read_only_database
from tests.support.servers.database_proxy import NAME, DatabaseProxy
from tests.support.wires.network import NetworkClient, wait_until

pytestmark = [on_postgresql, pytest.mark.no_second_try]

FRAME = {"type": "event", "id": "an id", "event": json.loads(event().payload)}
LOST = 6
"""More than the tries of one append: whoever only repeats it gives up with all of them lost."""


@pytest.fixture
def proxy(database: None) -> Iterator[DatabaseProxy]:
    """The way to the database; nothing is lost yet."""
    with DatabaseProxy() as proxy:
        yield proxy


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """An empty conversation of the V1 wire, which every door shows."""
    return creation.create(alice, conversation_id=uuid4().hex, version=Version.V1)


def by_native_socket(server: Server, talk: ConversationRef, proxy: DatabaseProxy) -> Any:
    with NetworkClient(server, talk.public_id) as client:
        client.until("replay_complete")
        proxy.lose_commits(LOST)
        client.send(FRAME)
        while (answer := client.receive())["type"] not in ("ack", "error"):
            pass
        return answer["type"]


def by_native_rest(server: Server, talk: ConversationRef, proxy: DatabaseProxy) -> Any:
    proxy.lose_commits(LOST)
    answer = HTTP.post(f"{server.url}/api/native/conversations/{talk.public_id}/events", json=FRAME)
    return answer.json()["type"]


def by_v1(server: Server, talk: ConversationRef, proxy: DatabaseProxy) -> Any:
    proxy.lose_commits(LOST)
    said = {"role": "user", "content": [{"type": "text", "text": "Hello"}], "run": False}
    answer = HTTP.post(f"{server.url}/agent/api/conversations/{talk.public_id}/events", json=said)
    return "ack" if answer.status_code == 200 else answer.text


@pytest.mark.parametrize("send", [by_native_socket, by_native_rest, by_v1])
def test_an_event_whose_commit_was_answered_to_nobody_is_acknowledged_and_stored_once(
    proxy: DatabaseProxy,
    talk: ConversationRef,
    server: Server,
    send: Callable[[Server, ConversationRef, DatabaseProxy], Any],
) -> None:
    server.start(DATABASE_URL=proxy.url)
    assert send(server, talk, proxy) == "ack"
    assert Event.objects.of(talk).filter(is_input=send is by_v1).count() == 1


def test_a_commit_that_cannot_be_looked_up_is_called_unknown_and_may_be_repeated(
    proxy: DatabaseProxy, talk: ConversationRef, server: Server
) -> None:
    server.start(constants={"conversations.log.commits.LOOK_UP_S": 0.5}, DATABASE_URL=proxy.url)
    with NetworkClient(server, talk.public_id) as client:
        client.until("replay_complete")
        proxy.lose_commits(1_000_000, are_delivered=False)
        client.send(FRAME)
        error = client.until("error", id="an id")
        proxy.lose_commits(0)
        client.send(FRAME)
        assert (error["code"], client.until("ack", id="an id")["seq"]) == ("outcome_unknown", 0)


def test_readers_are_shown_at_once_what_was_looked_up(
    proxy: DatabaseProxy, talk: ConversationRef, server: Server
) -> None:
    server.start(constants={"sessions_app.live.hub.POLL_S": 3600}, DATABASE_URL=proxy.url)
    with NetworkClient(server, talk.public_id) as reader:
        reader.until("replay_complete")
        by_native_rest(server, talk, proxy)
        assert reader.until("event")["seq"] == 0


def test_what_was_stored_by_a_session_that_was_then_terminated_is_shown_at_once(
    proxy: DatabaseProxy, talk: ConversationRef, server: Server
) -> None:
    server.start(constants={"sessions_app.live.hub.POLL_S": 3600}, DATABASE_URL=proxy.url)
    with NetworkClient(server, talk.public_id) as reader, NetworkClient(server, talk.public_id) as writer:
        reader.until("replay_complete")
        writer.until("replay_complete")
        proxy.terminate_after_commits(LOST)
        writer.send(FRAME)
        assert writer.until("ack", id="an id")["seq"] == 0
        assert reader.until("event")["seq"] == 0


def test_a_creation_under_a_key_whose_commit_is_lost_is_answered_as_stored(
    proxy: DatabaseProxy, alice: User, server: Server
) -> None:
    server.start(DATABASE_URL=proxy.url)
    address = f"{server.url}/api/native/conversations"
    HTTP.get(address)  # what a first request makes besides
    proxy.lose_commits(1)
    answer = HTTP.post(address, json={}, headers={"Idempotency-Key": '"a key"'})
    stored = Conversation.objects.values_list("public_id", flat=True)
    assert (answer.status_code, [answer.json().get("id")]) == (201, list(stored))


def create_v0(server: Server, talk: ConversationRef) -> httpx.Response:
    return HTTP.post(f"{server.url}/api/conversations", json={"initial_user_msg": "Hello"})


def change(server: Server, talk: ConversationRef) -> httpx.Response:
    address = f"{server.url}/api/native/conversations/{talk.public_id}"
    return HTTP.patch(address, json={"title": "Another title"})


@pytest.mark.parametrize(
    ("send", "code"), [(create_v0, {}), (change, {"code": "outcome_unknown"})], ids=["v0", "native"]
)
def test_a_change_whose_commit_is_lost_is_called_unknown(
    proxy: DatabaseProxy,
    talk: ConversationRef,
    server: Server,
    send: Callable[[Server, ConversationRef], httpx.Response],
    code: dict[str, str],
) -> None:
    server.start(DATABASE_URL=proxy.url)
    HTTP.get(f"{server.url}/api/native/conversations")  # what a first request makes besides
    proxy.lose_commits(LOST)
    answer = send(server, talk)
    assert (answer.status_code, answer.json()) == (503, {**code, "detail": failures.UNKNOWN})
    assert "Retry-After" not in answer.headers


@pytest.fixture
def unpooled(proxy: DatabaseProxy) -> Iterator[BaseDatabaseWrapper]:
    """A connection by the proxy that no pool replaces."""
    address = urlsplit(proxy.url)
    place: dict[str, Any] = {"HOST": address.hostname, "PORT": address.port, "OPTIONS": {}}
    connections[NAME] = DatabaseWrapper({**connection.settings_dict, **place}, alias=NAME)
    yield connections[NAME]
    connections[NAME].close()
    del connections[NAME]


def test_a_lost_commit_is_reported_as_one_though_the_database_refuses_connections_then(
    proxy: DatabaseProxy, unpooled: BaseDatabaseWrapper
) -> None:
    unpooled.ensure_connection()
    proxy.lose_commits(1, then=proxy.go_away)
    with pytest.raises(LostCommit), transaction.atomic(using=NAME), unpooled.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE something (id integer)")
    with pytest.raises(OperationalError):
        unpooled.ensure_connection()
    proxy.come_back()
    with transaction.atomic(using=NAME), unpooled.cursor() as cursor:
        cursor.execute("SELECT 1")


# Sessions that begin after the commit are read-only


@pytest.fixture
def read_only_afterwards() -> Iterator[Callable[[], None]]:
    """Makes new sessions of the server read-only, until the test ends."""
    yield lambda: read_only_database.begin(NAME)
    read_only_database.end(NAME)


V1_BODY = {"workspace": {"kind": "LocalWorkspace", "working_dir": "/workspace"}}
SESSIONS_MAX = 50
"""More than the sessions of a server."""
ANSWERS = b"sessions_app_recordedanswer"
"""The table of the answers under keys: its name is in the transactions that create."""
CREATIONS = {
    "native": ("/api/native/conversations", {}),
    "V0": ("/api/conversations", {}),
    "V1": ("/agent/api/conversations", V1_BODY),
    "V1 app": ("/api/v1/app-conversations", {}),
    "fork": ("/api/native/conversations/{talk}/fork", {}),
}


def test_what_is_stored_is_acknowledged_though_new_sessions_are_read_only(
    proxy: DatabaseProxy,
    talk: ConversationRef,
    server: Server,
    read_only_afterwards: Callable[[], None],
    subtests: pytest.Subtests,
) -> None:
    server.start(DATABASE_URL=proxy.url)
    with subtests.test("socket"), NetworkClient(server, talk.public_id) as client:
        client.until("replay_complete")
        proxy.lose_commits(1, of=b"an id", then=read_only_afterwards)
        client.send(FRAME)
        assert client.until("ack", id="an id")["seq"] == 0
    for name, (path, body) in CREATIONS.items():
        with subtests.test(name):
            can_write_again(server)
            there = public_ids()
            proxy.lose_commits(1, of=ANSWERS, then=read_only_afterwards)
            answer = created_with_a_loss(proxy, server, path.format(talk=talk.public_id), body)
            assert answer.is_success, answer.text
            (new,) = public_ids() - there
            assert name == "V1 app" or new in answer.text.replace("-", "")


def test_what_may_be_stored_is_called_unknown_while_new_sessions_are_read_only(
    proxy: DatabaseProxy,
    talk: ConversationRef,
    server: Server,
    read_only_afterwards: Callable[[], None],
    subtests: pytest.Subtests,
) -> None:
    server.start(constants={"conversations.log.commits.LOOK_UP_S": 0.5}, DATABASE_URL=proxy.url)
    with subtests.test("socket"), NetworkClient(server, talk.public_id) as client:
        client.until("replay_complete")
        proxy.lose_commits(1, of=b"an id", are_delivered=False, then=read_only_afterwards)
        client.send(FRAME)
        assert client.until("error", id="an id")["code"] == "outcome_unknown"
    for name, (path, body) in CREATIONS.items():
        with subtests.test(name):
            can_write_again(server)
            proxy.lose_commits(1, of=ANSWERS, are_delivered=False, then=read_only_afterwards)
            answer = created_with_a_loss(proxy, server, path.format(talk=talk.public_id), body)
            assert (answer.status_code, failures.UNKNOWN in answer.text) == (503, True), answer.text


def can_write_again(server: Server) -> None:
    """End the read-only time, and wait until the server creates and stores again."""
    read_only_database.end(NAME)
    wait_until(lambda: created(server, "/api/native/conversations", {}).status_code == 201)


def created(server: Server, path: str, body: Any) -> httpx.Response:
    return HTTP.post(f"{server.url}{path}", json=body, headers={"Idempotency-Key": uuid4().hex})


def created_with_a_loss(proxy: DatabaseProxy, server: Server, path: str, body: Any) -> httpx.Response:
    """Return the answer of the request whose commit is lost: one before may meet a session that has ended."""
    answers = (created(server, path, body) for _ in range(SESSIONS_MAX))
    return next(answer for answer in answers if proxy.has_lost_all)


def public_ids() -> set[str]:
    return set(Conversation.objects.values_list("public_id", flat=True))
