"""Access that is taken away in one process ends in every other: announced, or found where no hint arrives."""

from __future__ import annotations

import secrets
import time

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation, deletion
from sessions_app.identity import conversation_keys
from sessions_app.models import ApiToken
from tests.conftest import on_postgresql
from tests.doors.v1.test_v1_commands import processes_with
from tests.support.people.clients import HTTP, Server
from tests.support.people.commands import require_bubblewrap
from tests.support.wires.network import NetworkClient, wait_until
from tests.support.wires.v1_socket import ID, auth, events_path, session_path

ANNOUNCED_S = 1.0
POLL_S = 1.0
UNANNOUNCED_S = POLL_S + 1.0


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation of alice's that every wire can join."""
    return creation.create(alice, conversation_id=ID, version=Version.V1)


def open_all(server: Server, talk: ConversationRef, alice: User) -> list[NetworkClient]:
    """Open one socket at each door, by a token or by a key that its holder was shown."""
    token = ApiToken.issue(alice.pk, "laptop")[1]
    key = conversation_keys.key_of(talk)
    clients = []
    for path, frame in (
        (f"/ws/conversations/{talk.public_id}", {"type": "auth", "token": token}),
        ("/ws/conversations", {"type": "auth", "token": token}),
        (events_path(), auth(token)),
        (session_path(), auth(key)),
    ):
        client = NetworkClient(server, path)
        client.send(frame)
        client.receive()
        clients.append(client)
    return clients


def open_v0(server: Server, talk: ConversationRef) -> NetworkClient:
    """Join by Socket.IO, by a token."""
    token = ApiToken.issue(talk.owner_id, "phone")[1]
    query = f"EIO=4&transport=websocket&conversation_id={talk.public_id}&session_api_key={token}"
    client = NetworkClient(server, f"/socket.io/?{query}")
    client.receive_text()
    client.send("40")
    while not client.receive_text().startswith("40"):
        pass
    return client


def close_codes(clients: list[NetworkClient], v0: NetworkClient, *, within_s: float) -> list[int]:
    """Return with what the sockets close. Fail if one does not in time, or V0 is not told."""
    began_at = time.monotonic()
    codes = [client.closed().code for client in clients]
    while v0.receive_text() != "41":
        pass
    assert time.monotonic() - began_at < within_s
    return codes


@on_postgresql
def test_sockets_of_another_process_close_within_a_second(
    server: Server, talk: ConversationRef, alice: User
) -> None:
    server.start(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="127.0.0.1")
    clients, v0 = open_all(server, talk, alice), open_v0(server, talk)
    for token in ApiToken.objects.all():
        token.revoke()
    assert close_codes(clients, v0, within_s=ANNOUNCED_S) == [4401, 4401, 4001, 4001]


def test_without_hints_the_poll_closes_sockets(server: Server, talk: ConversationRef, alice: User) -> None:
    constants = {"sessions_app.live.hub.POLL_S": POLL_S}
    server.start(
        constants=constants,
        CONVSERVER_TEST_RUN="another",
        CONVSERVER_AUTH="accounts",
        CONVSERVER_ALLOWED_HOSTS="127.0.0.1",
    )
    clients, v0 = open_all(server, talk, alice), open_v0(server, talk)
    for token in ApiToken.objects.all():
        token.revoke()
    assert close_codes(clients, v0, within_s=UNANNOUNCED_S) == [4401, 4401, 4001, 4001]


def begin_command(server: Server, talk: ConversationRef, credential: str, mark: str) -> None:
    """Start a command that would run for ten minutes in the server."""
    path = f"/agent/api/conversations/{talk.public_id}/bash/start_bash_command"
    headers = {"x-session-api-key": credential}
    body = {"command": f"sleep {mark}", "timeout": 3600}
    HTTP.post(f"{server.url}{path}", json=body, headers=headers).raise_for_status()
    wait_until(lambda: bool(processes_with(mark)))


@pytest.mark.parametrize("hints", [pytest.param(True, marks=on_postgresql), False])
def test_commands_in_another_process_end_with_the_access_and_with_the_conversation(
    server: Server, talk: ConversationRef, alice: User, hints: bool
) -> None:
    require_bubblewrap()
    server.start(
        constants={} if hints else {"sessions_app.live.hub.POLL_S": POLL_S},
        CONVSERVER_AUTH="accounts",
        CONVSERVER_ALLOWED_HOSTS="127.0.0.1",
        CONVSERVER_SANDBOX="auto",
        **({} if hints else {"CONVSERVER_TEST_RUN": "another"}),
    )
    (lost, text), (_, other) = [ApiToken.issue(alice.pk, name) for name in ("laptop", "phone")]
    marks = [f"600.{secrets.randbelow(10**9)}" for _ in range(2)]
    for token, mark in zip((text, other), marks, strict=True):
        begin_command(server, talk, token, mark)
    lost.revoke()
    wait_until(lambda: not processes_with(marks[0]))
    assert processes_with(marks[1])
    deletion.soft_delete(talk)
    wait_until(lambda: not processes_with(marks[1]))
