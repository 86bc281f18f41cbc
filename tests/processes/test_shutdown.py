"""Servers that start and end, clients that do not read, and servers that must not start."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGINT

import psutil
import pytest
from django.contrib.auth.models import User
from django.db import connection

from conversations.engines import guards
from conversations.events import Kind
from conversations.log import writes
from conversations.models import ConversationRef, Event
from sessions_app.models import AgentLoop, Connection, LoopStatus
from tests.support.data.events import event, payload
from tests.support.people.clients import WAIT_S, Server
from tests.support.wires.event_views import is_interrupted
from tests.support.wires.network import NetworkClient, StalledClient, wait_until

MEGABYTE = 1024 * 1024
SOON_S = 9.0
"""Before the server gives up on an agent or on a client that does not let go."""
STALLED = 30
COST_MAX_BYTES = 5 * MEGABYTE
"""Each of them, at a place of its own; half of it is what the allocator has free between what is used."""
LEFT_MAX_BYTES = 48 * MEGABYTE
SLOW_READER_S = {"sessions_app.sockets.socket.SLOW_READER_S": 4.0}
"""So long a client that does not read is there to be seen."""
SETTLED_S = 0.5


def append_megabytes(conversation: ConversationRef, count: int) -> None:
    for _ in range(count):
        writes.append(conversation, [event("x" * (MEGABYTE // 8)) for _ in range(8)])


def connections_of(conversation: ConversationRef) -> int:
    return Connection.objects.filter(conversation_id=conversation.pk).count()


@pytest.mark.one_engine
def test_ctrl_c_ends_the_server_without_a_trace(database: None, tmp_path: Path) -> None:
    # A shell's background jobs, and so perhaps these tests, ignore the signal.
    server = Server(tmp_path, run_by=["env", "--default-signal=INT"])
    server.start()
    try:
        server.signal(SIGINT)
        assert psutil.Process(server.pid).wait(timeout=WAIT_S) == 0
    finally:
        server.kill()
    assert "signal=SIGINT" in server.log.read_text()
    assert "Traceback" not in server.log.read_text()


def test_sigterm_closes_sockets_with_1012_and_ends_the_server_soon(
    server: Server, conversation: ConversationRef
) -> None:
    server.start()
    with NetworkClient(server, "talk") as first, NetworkClient(server, "talk") as second:
        for client in (first, second):
            client.until("replay_complete")
        start = time.monotonic()
        server.stop()
        elapsed_s = time.monotonic() - start
        assert [client.closed().code for client in (first, second)] == [1012, 1012]
        assert elapsed_s < SOON_S


@pytest.mark.one_engine
def test_a_server_that_has_started_collects_garbage(server: Server, conversation: ConversationRef) -> None:
    server.start(CONVSERVER_AGENT="tests.support.people.agents.CollectorAgent")
    with NetworkClient(server, "talk") as client:
        client.send({"type": "message", "text": "Is it on?"})
        assert client.until("event", kind="message", source="agent")["text"] == "The collector is on."


@pytest.mark.no_second_try
def test_sigterm_keeps_what_the_agent_had_said_and_ends_its_turn(
    server: Server, conversation: ConversationRef
) -> None:
    server.start()
    with NetworkClient(server, "talk") as client:
        client.send({"type": "message", "id": 1, "text": "/slow"})
        client.until("delta")
        server.stop()
    *_, partial, end = Event.objects.of(conversation).oldest_first()
    assert is_interrupted(json.loads(partial.payload))
    assert (partial.text.split()[0], end.kind) == ("This", Kind.TURN)
    assert AgentLoop.objects.get(conversation_id=conversation.pk).status == LoopStatus.STOPPED


@pytest.mark.one_engine
def test_a_client_that_does_not_read_is_told_where_to_resume(
    server: Server, conversation: ConversationRef
) -> None:
    append_megabytes(conversation, 16)
    server.start(constants=SLOW_READER_S)
    with StalledClient(server, "talk") as stalled:
        wait_until(lambda: connections_of(conversation) == 1)
        wait_until(lambda: connections_of(conversation) == 0)
        frames, closed = stalled.read_the_rest()
    through = [frame["seq"] for frame in frames if frame["type"] == "event"][-1]
    assert (closed.code, closed.reason) == (4408, f"You did not read; resume from {through}")
    with NetworkClient(server, "talk", after=through) as client:
        client.until("replay_complete")
        events = [frame["seq"] for frame in client.frames if frame["type"] == "event"]
        assert events == list(range(through + 1, 128))


def join_stalled(server: Server, door: str, *, after: int) -> StalledClient:
    if door == "native":
        return StalledClient(server, "talk", after=after)
    query = f"EIO=4&transport=websocket&conversation_id=talk&latest_event_id={after}"
    client = StalledClient(server, f"/socket.io/?{query}")
    client.join_v0()
    return client


@pytest.mark.one_engine
@pytest.mark.parametrize("door", ["native", "v0"])
@pytest.mark.sampled(1)
def test_clients_that_do_not_read_cost_neither_others_nor_the_memory(
    server: Server, conversation: ConversationRef, door: str
) -> None:
    append_megabytes(conversation, 16)
    server.start(constants={"sessions_app.live.hub.POLL_S": 0.5})
    with NetworkClient(server, "talk", after=127) as reader, ExitStack() as stack:
        reader.until("replay_complete")
        before = resident_bytes(server)
        for number in range(STALLED):
            stack.enter_context(join_stalled(server, door, after=number))
        wait_until(lambda: connections_of(conversation) == 1 + STALLED)
        reader.send({"type": "event", "id": "live", "event": json.loads(payload())})
        reader.until("event", id="live")
        assert settled_bytes(server) - before < STALLED * COST_MAX_BYTES
        stack.close()
        wait_until(lambda: connections_of(conversation) == 1)
        wait_until(lambda: resident_bytes(server) - before < LEFT_MAX_BYTES)


@pytest.mark.one_engine
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux gives up on its own")
def test_a_client_that_never_reads_is_not_kept_for_ever(
    server: Server, conversation: ConversationRef
) -> None:
    append_megabytes(conversation, 16)
    server.start(constants=SLOW_READER_S | {"convserver.commands.serving.UNREAD_WAIT_S": 1.0})
    with StalledClient(server, "talk"):
        wait_until(lambda: sockets_held(server) == 1)
        wait_until(lambda: sockets_held(server) == 0, within_s=2 * WAIT_S)


def sockets_held(server: Server) -> int:
    connections = psutil.Process(server.pid).net_connections("tcp")
    here = [each for each in connections if each.laddr.port == server.port]
    return sum(each.status != psutil.CONN_LISTEN for each in here)


def settled_bytes(server: Server) -> int:
    """Return what the server needs once it has needed no more for SETTLED_S."""
    peak, since = resident_bytes(server), time.monotonic()
    while time.monotonic() < since + SETTLED_S:
        if (now := resident_bytes(server)) > peak:
            peak, since = now, time.monotonic()
    return peak


def resident_bytes(server: Server) -> int:
    resident: int = psutil.Process(server.pid).memory_info().rss
    return resident


def forget_peak(server: Server) -> None:
    """Let `peak_bytes` begin again with what is resident now."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")


def peak_bytes(server: Server) -> int:
    """Return the largest resident size since `forget_peak`."""
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024


def test_an_event_of_a_megabyte_passes_through_a_socket_byte_for_byte(server: Server, alice: User) -> None:
    sent = payload("é" * (MEGABYTE // 2), number="1.10")
    server.start()
    with NetworkClient(server, "talk") as writer, NetworkClient(server, "talk") as reader:
        reader.until("replay_complete")
        writer.send(f'{{"type":"event","id":"big","event":{sent}}}')
        assert writer.until("ack")["seq"] == 0
        while not (text := reader.receive_text()).startswith('{"type":"event"'):
            pass
        assert text.endswith(f'"event":{sent}}}')


@pytest.fixture
def no_guards(database: None) -> Iterator[None]:
    """The database without its guards, until the test is over."""
    with connection.cursor() as cursor:
        for name in set(guards.TABLE_OF) - guards.missing(connection):
            on = f" ON {guards.TABLE_OF[name]}" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{on}")
    yield
    guards.install(connection)


@pytest.mark.no_second_try
def test_serving_puts_lost_guards_back_before_it_begins(no_guards: None, server: Server) -> None:
    lost = guards.missing(connection)
    server.start()
    assert lost
    assert guards.missing(connection) == set()


@pytest.mark.no_second_try
def test_the_application_does_not_start_without_guards_and_says_what_to_do(
    no_guards: None, server: Server
) -> None:
    ended = server.run(["uvicorn", "convserver.asgi:application", "--port", str(server.port)])
    assert ended.returncode != 0
    assert "run `convserver manage migrate`" in ended.stderr
