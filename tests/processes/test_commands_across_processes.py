"""Two servers on one database: what is asked of one is done by the loop that runs in the other."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from conversations.events import Kind
from conversations.log import writes
from conversations.models import ConversationRef, Event, Version
from conversations.store import creation
from sessions_app.models import AgentLoop, WhileWorking
from sessions_app.openhands_v1 import sandboxes
from sessions_app.settings import run_options
from tests.conftest import on_postgresql
from tests.support.data.events import event
from tests.support.people.clients import HTTP, Server
from tests.support.wires.app_face import child_of, said
from tests.support.wires.network import NetworkClient, wait_until
from tests.support.wires.socketio_clients import PythonClient

pytestmark = on_postgresql  # a second server on one SQLite file is refused

AGENT = "tests.support.people.agents.DirectedAgent"
NATIVE = "/api/native/conversations"
STOPPED = "stopped: The agent was stopped."
WITHIN_S = 7.5
"""Without hints a command is obeyed within 6 s, and a test machine may be slow."""


class Servers(NamedTuple):
    """Two servers on one database."""

    holder: Server
    """Runs the loops."""
    asked: Server
    """Is asked. Without Redis it gives no hints to the holder."""
    deaf: Server
    """Is asked, and gives hints that the holder cannot hear."""


@pytest.fixture(scope="module")
def servers(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    """Servers for the whole file: the conversations of every test have ids of their own."""
    with django_db_blocker.unblock(), ExitStack() as running:

        def started(name: str, hints: str = settings.TEST_RUN) -> Server:
            server = Server(tmp_path_factory.mktemp(name))
            running.callback(server.kill)
            server.start(CONVSERVER_AGENT=AGENT, CONVSERVER_TEST_RUN=hints)
            return server

        holder, asked = started("holder"), started("asked")
        yield Servers(holder, asked, started("deaf", "another"))


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A V0 conversation whose id V1 clients can ask for as well."""
    return creation.create(alice, conversation_id=uuid4().hex)


@pytest.fixture
def talk_of_v1(alice: User) -> ConversationRef:
    return creation.create(alice, conversation_id=uuid4().hex, version=Version.V1)


def post(server: Server, path: str, **body: Any) -> httpx.Response:
    return HTTP.post(f"{server.url}{path}", json=body)


def say(server: Server, conversation: ConversationRef, text: str) -> None:
    if conversation.version == Version.V1:
        answer = post(server, f"{agent_face(conversation)}/events", **said(text), run=True)
    else:
        answer = post(server, f"{NATIVE}/{conversation.public_id}/events", type="message", text=text)
    assert answer.status_code == 200, answer.text


def agent_face(conversation: ConversationRef) -> str:
    return f"/agent/api/conversations/{conversation.public_id}"


def texts(conversation: ConversationRef, *kinds: Kind) -> list[str]:
    return [row.text for row in Event.objects.of(conversation).oldest_first().filter(kind__in=kinds)]


def loop_of(conversation: ConversationRef) -> AgentLoop:
    return AgentLoop.objects.of(conversation).get()


def until_status(conversation: ConversationRef, execution_status: str) -> None:
    rows = AgentLoop.objects.of(conversation).filter(execution_status=execution_status)
    wait_until(rows.exists)


def hang(server: Server, conversation: ConversationRef) -> None:
    """Let the conversation's loop run in this server, with an agent that is busy for ever."""
    say(server, conversation, "hang")
    wait_until(lambda: bool(texts(conversation, Kind.TOOL_CALL)))


def hanging_in(server: Server, owner: User) -> ConversationRef:
    """Return a conversation whose loop hangs in this server.

    Servers look for what waits for an agent, so another may take what was said to this one.
    """
    while True:
        talk = creation.create(owner, conversation_id=uuid4().hex)
        hang(server, talk)
        if loop_of(talk).owner.pid == server.pid:
            return talk
        stop_by_native_rest(server, talk)


# Stop


def stop_by_native_rest(server: Server, conversation: ConversationRef) -> None:
    answer = post(server, f"{NATIVE}/{conversation.public_id}/stop")
    assert (answer.status_code, answer.json()["loop"]["status"]) == (200, "stopped")


def stop_by_native_socket(server: Server, conversation: ConversationRef) -> None:
    with NetworkClient(server, conversation.public_id) as client:
        client.send({"type": "stop", "id": "stop"})
        assert client.until("ack", id="stop") == {"type": "ack", "id": "stop"}


def stop_by_v0(server: Server, conversation: ConversationRef) -> None:
    answer = post(server, f"/api/conversations/{conversation.public_id}/stop")
    assert (answer.status_code, answer.json()["message"]) == (200, "Conversation stopped successfully")


def stop_by_v1(server: Server, conversation: ConversationRef) -> None:
    sandbox = sandboxes.id_of(conversation.public_id)
    answer = post(server, f"/api/v1/sandboxes/{sandbox}/pause")
    assert (answer.status_code, answer.json()) == (200, {"success": True})


def delete(server: Server, conversation: ConversationRef) -> None:
    answer = HTTP.delete(f"{server.url}{NATIVE}/{conversation.public_id}")
    assert answer.status_code == 204


STOPS = {
    "native REST": stop_by_native_rest,
    "native socket": stop_by_native_socket,
    "V0": stop_by_v0,
    "delete": delete,
}
"""Without hints, as on SQLite, each takes seconds: one speaks for all."""


@pytest.mark.parametrize(
    "door", [pytest.param(door, marks=() if door == "native REST" else on_postgresql) for door in STOPS]
)
def test_a_stop_has_ended_the_turn_in_the_other_process_when_it_is_answered(
    servers: Servers, talk: ConversationRef, door: str
) -> None:
    hang(servers.holder, talk)
    STOPS[door](servers.asked, talk)
    assert texts(talk, Kind.TURN) == [STOPPED]
    assert loop_of(talk).ended_by == "stopped"


def test_a_pause_of_a_sandbox_has_ended_the_turn_in_the_other_process_when_it_is_answered(
    servers: Servers, talk_of_v1: ConversationRef
) -> None:
    hang(servers.holder, talk_of_v1)
    stop_by_v1(servers.asked, talk_of_v1)
    assert len(texts(talk_of_v1, Kind.TURN)) == 1
    assert loop_of(talk_of_v1).ended_by == "stopped"


def test_a_stop_by_the_socket_of_v0_ends_the_turn_in_the_other_process(
    servers: Servers, talk: ConversationRef
) -> None:
    hang(servers.holder, talk)
    asyncio.run(stop_by_v0_socket(servers.asked, talk))
    wait_until(lambda: texts(talk, Kind.TURN) == [STOPPED])
    assert loop_of(talk).status == "running"


async def stop_by_v0_socket(server: Server, conversation: ConversationRef) -> None:
    client = PythonClient(server)
    await client.connect(conversation.public_id)
    await client.ask({"action": "change_agent_state", "args": {"agent_state": "stopped"}})
    await client.leave()


def test_a_stop_without_a_hint_is_obeyed_within_seconds(servers: Servers, talk: ConversationRef) -> None:
    hang(servers.holder, talk)
    began = time.monotonic()
    stop_by_native_rest(servers.deaf, talk)
    assert texts(talk, Kind.TURN) == [STOPPED]
    assert time.monotonic() - began < WITHIN_S


def test_a_stop_stops_what_the_conversation_has_started_in_the_other_process(
    servers: Servers, talk: ConversationRef, alice: User
) -> None:
    child = child_of(talk, alice)
    hang(servers.holder, child)
    stop_by_native_rest(servers.asked, talk)
    assert loop_of(child).ended_by == "stopped"


# Pause, run, interrupt, confirm


def go_on(conversation: ConversationRef) -> None:
    """Let an agent that waits for it say the rest."""
    writes.append(conversation, [event("go on")])


def wait(server: Server, conversation: ConversationRef) -> None:
    """Let the conversation's loop run in this server, with an agent between two steps."""
    say(server, conversation, "wait")
    wait_until(lambda: "step 1" in texts(conversation, Kind.MESSAGE))


@pytest.mark.parametrize("version", Version)
def test_a_pause_and_a_run_reach_the_loop_in_the_other_process(
    servers: Servers, alice: User, version: Version
) -> None:
    talk = creation.create(alice, conversation_id=uuid4().hex, version=version)
    path = f"{NATIVE}/{talk.public_id}" if version == Version.V0 else agent_face(talk)
    wait(servers.holder, talk)
    assert post(servers.asked, f"{path}/pause").status_code == 200
    go_on(talk)
    until_status(talk, "paused")
    assert post(servers.asked, f"{path}/run").status_code == 200
    until_status(talk, "finished")
    assert (loop_of(talk).epoch, len(texts(talk, Kind.TURN))) == (1, 1)


def test_a_pause_by_the_native_socket_reaches_the_loop_in_the_other_process(
    servers: Servers, talk: ConversationRef
) -> None:
    wait(servers.holder, talk)
    with NetworkClient(servers.asked, talk.public_id) as client:
        client.send({"type": "pause", "id": "pause"})
        client.until("ack", id="pause")
        go_on(talk)
        until_status(talk, "paused")
        client.send({"type": "run", "id": "run"})
        client.until("ack", id="run")
    until_status(talk, "finished")


def test_a_run_of_v1_that_is_on_in_the_other_process_is_refused(
    servers: Servers, talk_of_v1: ConversationRef
) -> None:
    hang(servers.holder, talk_of_v1)
    assert post(servers.asked, f"{agent_face(talk_of_v1)}/run").status_code == 409


def test_an_interruption_reaches_the_loop_in_the_other_process(
    servers: Servers, talk_of_v1: ConversationRef
) -> None:
    hang(servers.holder, talk_of_v1)
    answer = post(servers.asked, f"{agent_face(talk_of_v1)}/interrupt")
    until_status(talk_of_v1, "paused")
    assert (answer.status_code, loop_of(talk_of_v1).status) == (200, "running")


def test_an_approval_reaches_the_loop_in_the_other_process(servers: Servers, talk: ConversationRef) -> None:
    say(servers.holder, talk, "approve")
    until_status(talk, "waiting_for_confirmation")
    answer = post(servers.asked, f"{NATIVE}/{talk.public_id}/confirm", accept=True)
    assert answer.status_code == 200
    until_status(talk, "finished")
    assert (loop_of(talk).epoch, len(texts(talk, Kind.TOOL_RESULT))) == (1, 1)


def test_a_message_reaches_the_loop_in_the_other_process(servers: Servers, talk: ConversationRef) -> None:
    say(servers.holder, talk, "hello")
    until_status(talk, "finished")
    say(servers.asked, talk, "and again")
    wait_until(lambda: len(texts(talk, Kind.TURN)) == 2)
    assert loop_of(talk).epoch == 1


# Room


@pytest.mark.parametrize("asked", ["deaf", "asked"])
def test_a_message_interrupts_the_turn_in_the_other_process_also_without_a_hint(
    servers: Servers, talk: ConversationRef, asked: str
) -> None:
    run_options.change(talk, {"while_working": WhileWorking.INTERRUPT})
    hang(servers.holder, talk)
    say(getattr(servers, asked), talk, "hello")
    wait_until(lambda: "You said: hello" in texts(talk, Kind.MESSAGE))
    until_status(talk, "finished")
    assert loop_of(talk).epoch == 1


def test_a_new_loop_closes_the_one_of_the_other_process_that_is_wanted_least(
    servers: Servers, alice: User
) -> None:
    talks = [creation.create(alice, conversation_id=uuid4().hex) for _ in range(4)]
    for server, each in zip([servers.holder] * 3 + [servers.asked], talks, strict=True):
        say(server, each, "hello")
        until_status(each, "finished")
    assert [loop_of(each).ended_by for each in talks] == ["crowded_out", "", "", ""]


# Not yet


def test_an_agent_that_does_not_let_go_is_told_of_and_stops_when_it_does(
    servers: Servers, talk_of_v1: ConversationRef
) -> None:
    talk = talk_of_v1
    say(servers.holder, talk, "cling")
    wait_until(lambda: "clinging" in texts(talk, Kind.MESSAGE))

    def ack_of_a_stop() -> Any:
        with NetworkClient(servers.asked, talk.public_id) as client:
            client.send({"type": "stop", "id": "stop"})
            return client.until("ack", id="stop")

    asks: list[Callable[[], Any]] = [
        partial(post, servers.asked, f"{NATIVE}/{talk.public_id}/stop"),
        partial(post, servers.holder, f"{NATIVE}/{talk.public_id}/stop"),
        partial(post, servers.asked, f"/api/conversations/{talk.public_id}/stop"),
        partial(post, servers.asked, f"/api/v1/sandboxes/{sandboxes.id_of(talk.public_id)}/pause"),
        ack_of_a_stop,
    ]
    with ThreadPoolExecutor(len(asks)) as pool:
        native, of_the_own, v0, v1, ack = pool.map(lambda ask: ask(), asks)
    words = "The agent has not let go yet; it stops as soon as it does."
    for answer in (native, of_the_own):
        assert answer.status_code == 202, answer.text
        assert answer.json()["status"] == "stopping"
        assert answer.json()["loop"]["status"] == "running"
    assert v0.status_code == 500
    assert v0.json() == {
        "status": "error",
        "conversation_id": talk.public_id,
        "message": f"Failed to stop conversation: {words}",
    }
    assert (v1.status_code, v1.json()) == (503, {"detail": words})
    assert ack == {"type": "ack", "id": "stop", "status": "stopping"}

    writes.append(talk, [event("let go")])
    wait_until(lambda: loop_of(talk).ended_by == "stopped")
    assert len(texts(talk, Kind.TURN)) == 1


OPEN_TRANSACTIONS = """
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type = 'client backend' AND xact_start IS NOT NULL
"""


def has_open_transactions() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(OPEN_TRANSACTIONS)
        return bool(cursor.rowcount)


def freeze(server: Server) -> None:
    """Freeze a process at a moment when it holds no transaction, whose locks would hold up everybody."""
    while True:
        os.kill(server.pid, SIGSTOP)
        try:
            wait_until(lambda: not has_open_transactions(), within_s=1)
        except TimeoutError:
            os.kill(server.pid, SIGCONT)
        else:
            return


@pytest.mark.no_second_try
def test_a_stop_that_a_frozen_process_did_not_hear_is_done_by_the_recovery_of_its_loop(
    database: None, alice: User, tmp_path: Path
) -> None:
    directories = [tmp_path / name for name in ("frozen", "asked")]
    for directory in directories:
        directory.mkdir()
    frozen, asked = map(Server, directories)
    try:
        frozen.start(CONVSERVER_AGENT=AGENT)
        # On a busy machine the loop may be recovered while one waits as long as usual.
        asked.start(constants={"sessions_app.loops.command_channel.WAIT_S": 1.0}, CONVSERVER_AGENT=AGENT)
        talk = hanging_in(frozen, alice)
        freeze(frozen)
        answer = post(asked, f"{NATIVE}/{talk.public_id}/stop")
        os.kill(frozen.pid, SIGKILL)
        assert answer.status_code == 202, answer.text
        assert answer.json()["status"] == "stopping"
        wait_until(lambda: texts(talk, Kind.TURN) == [STOPPED])
    finally:
        for server in (frozen, asked):
            server.kill()
