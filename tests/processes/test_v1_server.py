"""The V1 sockets of a server in a process of its own: large frames, clients that do not read, ends, logs."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Event, Version
from conversations.store import creation
from sessions_app.models import ApiToken, Connection
from tests.processes.test_shutdown import (
    MEGABYTE,
    SLOW_READER_S,
    append_megabytes,
    forget_peak,
    peak_bytes,
    resident_bytes,
)
from tests.support.people.clients import WAIT_S, Server, SocketClosed
from tests.support.wires.network import NetworkClient, StalledClient, wait_until
from tests.support.wires.v1_socket import ID, auth, events_path, message, session_path

ALL = f"{events_path()}?resend_all=true"


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    return creation.create(alice, conversation_id=ID, version=Version.V1)


def until_kind(client: NetworkClient, kind: str) -> dict[str, object]:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if (frame := client.receive())["kind"] == kind:
            return frame
    raise TimeoutError


def test_an_image_of_several_megabytes_is_stored_and_shown(server: Server, talk: ConversationRef) -> None:
    url = "data:image/png;base64," + "A" * (12 * MEGABYTE)
    server.start()
    with NetworkClient(server, events_path()) as client:
        client.receive()
        client.send(message([{"type": "image_url", "image_url": {"url": url}}]))
        said = until_kind(client, "MessageEvent")
        assert said["llm_message"] == {"role": "user", "content": [{"type": "image", "image_urls": [url]}]}


@pytest.mark.one_engine
@pytest.mark.parametrize("path", [ALL, session_path()])
@pytest.mark.sampled(1)
def test_a_client_that_does_not_read_is_closed_with_1013_and_costs_little(
    server: Server, talk: ConversationRef, path: str
) -> None:
    append_megabytes(talk, 64)
    server.start(constants=SLOW_READER_S)
    with NetworkClient(server, events_path()) as reader:
        reader.receive()
        before = resident_bytes(server)
        forget_peak(server)
        with StalledClient(server, path) as stalled:
            wait_until(lambda: Connection.objects.count() == 2)
            wait_until(lambda: Connection.objects.count() == 1)
            _, closed = stalled.read_the_rest()
        reader.send(message("still there"))
        until_kind(reader, "MessageEvent")
        peak = peak_bytes(server) - before
    assert (closed.code, closed.reason) == (1013, "You did not read")
    # What is kept for others (`recent`, twice), and what one page brings.
    assert peak < 64 * MEGABYTE


@pytest.mark.one_engine
def test_sigterm_closes_the_sockets_with_1012(server: Server, talk: ConversationRef) -> None:
    server.start()
    with NetworkClient(server, events_path()) as first, NetworkClient(server, session_path()) as second:
        first.receive()
        second.receive()
        server.stop()
        assert [client.closed().code for client in (first, second)] == [1012, 1012]


@pytest.mark.one_engine
def test_an_idle_socket_is_sent_pings(server: Server, talk: ConversationRef) -> None:
    server.start(
        constants={"convserver.commands.serving.PING_S": 0.05, "convserver.commands.serving.PONG_WAIT_S": 3.0}
    )
    with NetworkClient(server, events_path()) as client, StalledClient(server, events_path()) as stalled:
        client.receive()
        wait_until(lambda: Connection.objects.count() == 2)
        wait_until(lambda: Connection.objects.count() == 1)
        with pytest.raises(TimeoutError):
            client.receive_text(within_s=1.0)  # its library answers them, else it had been closed before
        assert stalled.read_the_rest()[1].code in (1006, 1011)


@pytest.mark.one_engine
def test_no_key_of_an_address_is_logged(server: Server, alice: User, talk: ConversationRef) -> None:
    key = ApiToken.issue(alice.pk, "laptop")[1]
    server.start(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="127.0.0.1")
    with NetworkClient(server, f"{events_path()}?session_api_key={key}") as client:
        client.receive()
    with pytest.raises(SocketClosed, match="403"):
        NetworkClient(server, f"{events_path()}?session_api_key=wrong-{key}")
    with NetworkClient(server, events_path()) as client:
        client.send(auth(f"wrong-{key}"))
        assert client.closed().code == 4001
    server.stop()
    assert key not in server.log.read_text()


@pytest.mark.no_second_try
def test_a_message_is_stored_although_its_sender_leaves_at_once(
    server: Server, talk: ConversationRef
) -> None:
    server.start()
    with NetworkClient(server, events_path()) as client:
        client.receive()
        client.send(message("good bye"))
    wait_until(lambda: Event.objects.of(talk).filter(text__startswith="You said: good bye").exists())
