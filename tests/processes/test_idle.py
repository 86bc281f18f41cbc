"""A socket on which nothing happens for longer than any time limit on its way."""

from __future__ import annotations

import time

import pytest
from django.conf import settings
from django.db import connection

from conversations.events import ConversationRef
from conversations.log import writes
from tests.support.data.events import event
from tests.support.people.clients import Server
from tests.support.wires.network import NetworkClient

IDLE_S = 70.0
NEVER_S = 3600.0


@pytest.mark.skipif(
    connection.vendor != "postgresql" or settings.CONFIGURATION.redis_url is None,
    reason="only PostgreSQL with Redis brings another process's hints",
)
@pytest.mark.timeout(150)
def test_a_socket_idle_for_70_s_receives_the_next_event_of_another_process_by_hint(
    server: Server, conversation: ConversationRef
) -> None:
    server.start(constants={"sessions_app.live.hub.POLL_S": NEVER_S})
    with NetworkClient(server, "talk") as client:
        client.until("replay_complete")
        received = frames_of(client, IDLE_S)
        writes.append(conversation, [event("after a long silence")])
        assert client.until("event")["text"] == "after a long silence"
    assert {frame["type"] for frame in received} == {"heartbeat"}


def frames_of(client: NetworkClient, seconds: float) -> list[dict[str, object]]:
    received: list[dict[str, object]] = []
    deadline = time.monotonic() + seconds
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            received.append(client.receive(within_s=left_s))
        except TimeoutError:
            break
    return received
