"""Two servers on one SQLite file: the second serves, and runs agents only after the first has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from conversations.events import Kind
from conversations.models import ConversationRef, Event
from conversations.store import creation
from sessions_app.models import AgentLoop
from tests.clients import HTTP, Server
from tests.conftest import on_sqlite
from tests.network import NetworkClient, wait_until

pytestmark = [on_sqlite, pytest.mark.no_second_try]

OFTEN = {"sessions_app.loops.manager.SWEEP_S": 0.2, "sessions_app.live.hub.POLL_S": 0.2}
SAID = "Another server runs the agents on"


@pytest.fixture
def servers(database: None, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """The first and the second server of the file."""
    with ExitStack() as running:

        def started(name: str) -> Server:
            directory = tmp_path / name
            directory.mkdir()
            server = Server(directory)
            running.callback(server.kill)
            server.start(constants=OFTEN, CONVSERVER_AGENT="tests.agents.DirectedAgent")
            return server

        yield started("first"), started("second")


def say(server: Server, talk: ConversationRef, text: str) -> None:
    body = {"type": "message", "text": text}
    answer = HTTP.post(f"{server.url}/api/native/conversations/{talk.public_id}/events", json=body)
    assert answer.status_code == 200, answer.text


def start(server: Server, talk: ConversationRef) -> int:
    return HTTP.post(f"{server.url}/api/conversations/{talk.public_id}/start", json={}).status_code


def texts(talk: ConversationRef, kind: Kind) -> list[str]:
    return list(Event.objects.of(talk).oldest_first().filter(kind=kind).values_list("text", flat=True))


def holder(talk: ConversationRef) -> int | None:
    return AgentLoop.objects.of(talk).get().owner_pid


def test_the_first_answers_what_the_second_was_told_and_the_second_once_the_first_is_gone(
    servers: tuple[Server, Server], alice: User
) -> None:
    first, second = servers
    talk = creation.create(alice, conversation_id=uuid4().hex)
    assert SAID not in first.log.read_text()
    assert SAID in second.log.read_text()
    say(second, talk, "one")
    wait_until(lambda: len(texts(talk, Kind.TURN)) == 1)
    assert holder(talk) == first.pid
    idle = creation.create(alice, conversation_id=uuid4().hex)
    assert start(second, idle) == 200
    assert AgentLoop.objects.of(idle).get().status == "stopped"  # it starts with its first message
    first.kill()
    say(second, talk, "two")
    wait_until(lambda: len(texts(talk, Kind.TURN)) == 2)
    assert holder(talk) == second.pid
    assert texts(talk, Kind.MESSAGE) == ["one", "You said: one", "two", "You said: two"]
    assert "this one runs the agents from now on" in second.log.read_text()
    assert start(second, idle) == 200
    assert holder(idle) == second.pid


def test_a_turn_is_stopped_from_the_second(servers: tuple[Server, Server], alice: User) -> None:
    _, second = servers
    talk = creation.create(alice, conversation_id=uuid4().hex)
    with NetworkClient(second, talk.public_id) as reader:
        reader.send({"type": "message", "text": "hang"})
        reader.until("event", kind="tool_call")
        reader.send({"type": "stop", "id": "s"})
        assert reader.until("event", kind="turn")["text"].startswith("stopped")
