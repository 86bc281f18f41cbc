"""A database that takes no writes for a while: the server says so, briefly, and goes on by itself."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User

from conversations.engines import failures
from conversations.events import ConversationRef
from conversations.store import creation
from tests.conftest import on_postgresql
from tests.support.data.events import event
from tests.support.people.clients import HTTP, Server, database_url
from tests.support.servers.read_only_database import read_only
from tests.support.wires.network import NetworkClient, wait_until

pytestmark = on_postgresql

NAME = "of_the_server"
EVENT = json.loads(event().payload)


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    return creation.create(alice, conversation_id="talk")


def test_the_server_goes_on_by_itself_after_sessions_were_read_only(
    talk: ConversationRef, server: Server
) -> None:
    server.start(DATABASE_URL=f"{database_url()}?application_name={NAME}")

    def is_taken(name: str) -> bool:
        client.send({"type": "event", "id": name, "event": EVENT})
        while (answer := client.receive())["type"] not in ("ack", "error"):
            pass
        return bool(answer["type"] == "ack")

    def is_created() -> bool:
        return HTTP.post(f"{server.url}/api/native/conversations", json={}).status_code == 201

    with NetworkClient(server, "talk") as client:
        client.until("replay_complete")
        assert is_taken("before")
        with read_only(NAME):
            for number in range(50):
                assert not is_taken(f"meanwhile {number}")
            for _ in range(5):
                assert not is_created()
            wait_until(lambda: failures.READ_ONLY in HTTP.get(f"{server.url}/health").text)
            assert HTTP.get(f"{server.url}/health").status_code == 503
        wait_until(lambda: is_taken("afterwards"))
        # One thread after the other: none may keep what cannot write for longer than `KEPT_S`.
        wait_until(lambda: all(is_created() for _ in range(20)))
        assert HTTP.get(f"{server.url}/health").status_code == 200
    log = server.log.read_text()
    assert [log.count(words) < 10 for words in ("takes no writes", "discarding")] == [True, True]
