"""The program of docs/agents.md plays turns in a process of its own, and is killed in the middle of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.events import Kind
from conversations.models import ConversationRef, Event
from sessions_app.models import ApiToken, Grant, RemoteProgram, Scope
from sessions_app.settings import run_options
from tests.support.people.clients import Server
from tests.support.wires.network import NetworkClient, wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
(PROGRAM,) = re.findall(r'^```python\n("""A remote agent.+?)^```$', PAGE, re.MULTILINE | re.DOTALL)
LONG = "a message that is long enough to be cut off in the middle of its answer"


class Program:
    """The program of the page, as a process: started, killed and started again."""

    def __init__(self, server: Server, token: str, directory: Path) -> None:
        self._environment = {
            **os.environ,
            "AGENT_URL": f"{server.ws_url}/ws/agents/helper",
            "AGENT_TOKEN": token,
        }
        self._file = directory / "remote_agent.py"
        self._file.write_text(PROGRAM)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it connects by itself, and again after each loss."""
        self._process = subprocess.Popen([sys.executable, str(self._file)], env=self._environment)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ended(self) -> int:
        assert self._process is not None
        return self._process.wait(timeout=60)


@pytest.fixture
def talk(conversation: ConversationRef) -> ConversationRef:
    """A conversation whose agent is the program."""
    run_options.change(conversation, {"agent": "remote:helper"})
    return conversation


@pytest.fixture
def owner(alice: User, server: Server) -> str:
    """The key of the conversation's owner; the server asks for keys."""
    server.start(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="127.0.0.1")
    return ApiToken.issue(alice.pk, "laptop")[1]


@pytest.fixture
def program(alice: User, server: Server, owner: str, tmp_path: Path) -> Iterator[Program]:
    """The program with a token of its own, not started yet."""
    token = ApiToken.issue(alice.pk, "helper", Grant(scopes=[Scope.READ, Scope.RUN]))[1]
    found = Program(server, token, tmp_path)
    yield found
    found.kill()


@pytest.fixture
def reader(server: Server, owner: str, talk: ConversationRef) -> Iterator[NetworkClient]:
    with NetworkClient(server, talk.public_id) as client:
        client.send({"type": "auth", "token": owner})
        client.until("replay_complete")
        yield client


def say(reader: NetworkClient, text: str) -> None:
    reader.send({"type": "message", "text": text})


def until_loop(reader: NetworkClient, **members: str) -> None:
    while not members.items() <= reader.until("conversation")["changes"].get("loop", {}).items():
        pass


def stored(talk: ConversationRef, *kinds: Kind) -> list[str]:
    rows = Event.objects.of(talk).oldest_first().filter(kind__in=kinds)
    return list(rows.exclude(source="user").values_list("text", flat=True))


def test_the_program_has_at_most_40_lines_of_code() -> None:
    assert len([line for line in PROGRAM.splitlines() if line]) <= 40


@pytest.mark.slow(on="postgresql")
def test_the_program_answers_calls_asks_is_stopped_paused_and_resumed(
    program: Program, reader: NetworkClient, talk: ConversationRef
) -> None:
    say(reader, "hello")
    until_loop(reader, status="error")
    program.start()
    answer = reader.until("delta")["answer"]
    assert reader.until("event", kind="message", source="agent")["id"] == answer
    say(reader, "time")
    assert "done at" in reader.until("event", kind="tool_result")["text"]
    reader.until("event", kind="turn")
    for accept in (True, False):
        say(reader, "delete everything")
        until_loop(reader, execution_status="waiting_for_confirmation")
        reader.send({"type": "confirm", "id": f"accept {accept}", "accept": accept})
        reader.until("event", kind="turn")
    assert len([text for text in stored(talk, Kind.TOOL_RESULT) if "delete everything: done" in text]) == 1
    say(reader, LONG)
    reader.until("delta")
    reader.send({"type": "pause", "id": "pause"})
    until_loop(reader, execution_status="paused")
    reader.send({"type": "run", "id": "run"})
    reader.until("event", kind="turn")
    say(reader, LONG)
    reader.until("delta")
    reader.send({"type": "stop", "id": "stop"})
    reader.until("event", kind="turn")
    *_, whole, cut = stored(talk, Kind.MESSAGE)
    assert whole == f"You said: {LONG}"
    assert whole.startswith(cut.strip())
    assert cut != whole


@pytest.mark.no_second_try
def test_a_program_that_is_killed_goes_on_with_its_turn_and_doubles_nothing(
    program: Program, reader: NetworkClient, talk: ConversationRef
) -> None:
    program.start()
    say(reader, "time")
    reader.until("event", kind="tool_result")
    reader.until("delta")
    program.kill()
    program.start()
    reader.until("event", kind="turn")
    assert stored(talk, Kind.MESSAGE) == ["You said: time"]
    assert len(stored(talk, Kind.TOOL_CALL)) == len(stored(talk, Kind.TOOL_RESULT)) == 1
    say(reader, LONG)
    for _ in range(4):
        reader.until("delta")
    program.kill()
    program.start()
    reader.until("event", kind="turn")
    assert stored(talk, Kind.MESSAGE) == ["You said: time", f"You said: {LONG}"]
    assert [text for text in stored(talk, Kind.TURN) if "error" in text] == []


def test_a_second_program_takes_the_name_and_the_first_one_ends(
    program: Program, server: Server, owner: str, reader: NetworkClient, talk: ConversationRef
) -> None:
    program.start()
    wait_until(RemoteProgram.objects.exists)
    with NetworkClient(server, "/ws/agents/helper") as second:
        second.send({"type": "auth", "token": owner})
        second.until("hello")
        assert program.ended() == 0
        say(reader, "hello")
        assert second.until("turn")["conversation"] == talk.public_id


@pytest.mark.no_second_try
def test_a_turn_goes_on_with_its_program_after_the_server_was_killed(
    program: Program, server: Server, owner: str, reader: NetworkClient, talk: ConversationRef
) -> None:
    program.start()
    say(reader, "time")
    reader.until("event", kind="tool_result")
    reader.until("delta")
    server.kill()
    server.start(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="127.0.0.1")
    with NetworkClient(server, talk.public_id) as again:
        again.send({"type": "auth", "token": owner})
        again.until("event", kind="turn")
    assert len(stored(talk, Kind.TOOL_CALL)) == len(stored(talk, Kind.TOOL_RESULT)) == 1
    *cut, whole = stored(talk, Kind.MESSAGE)
    assert (whole, len(cut) <= 1) == ("You said: time", True)
    assert [text for text in stored(talk, Kind.TURN) if "error" in text] == []
