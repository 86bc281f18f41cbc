"""Joining a conversation that is there: it reads, so that nobody who writes holds it up."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from django.contrib.auth.models import User
from django.db import connection

from conversations.log import reads, writes
from conversations.store import creation
from sessions_app import astore
from sessions_app.models import Connection
from tests.conftest import Dial, on_sqlite, once
from tests.support.data.events import event
from tests.support.data.faulty import fail
from tests.support.people.clients import Server
from tests.support.wires.network import NetworkClient, wait_until

ID = "0123456789abcdef0123456789abcdef"
DOORS = {
    "native": f"/ws/conversations/{ID}",
    "list": "/ws/conversations",
    "V1": f"/sockets/events/{ID}?resend_all=true",
    "V0": f"/socket.io/?EIO=4&transport=websocket&conversation_id={ID}",
}


@pytest.mark.no_second_try
@on_sqlite
def test_a_join_waits_for_no_write_lock(server: Server, alice: User) -> None:
    conversation = creation.create(alice, conversation_id=ID)
    server.start()
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        for path in DOORS.values():
            with NetworkClient(server, path) as client:
                client.receive_text(within_s=5)
                if "socket.io" in path:
                    client.send("40")
                    client.receive_text(within_s=5)
        with NetworkClient(server, DOORS["native"]) as client:
            client.until("replay_complete")
            writer.execute("ROLLBACK")
            wait_until(lambda: Connection.objects.filter(conversation_id=conversation.pk).exists())


@once
@pytest.mark.parametrize("path", [DOORS["native"], DOORS["V1"]])
async def test_a_socket_that_fails_is_closed_with_a_code(
    alice: User, dial: Dial, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    conversation = await astore.call(creation.create, alice, conversation_id=ID)
    await astore.call(writes.append, conversation, [event()])
    monkeypatch.setattr(reads, "read_after", fail)
    client = await dial(path.partition("?")[0], query={"resend_all": "true"} if "?" in path else None)
    closed = await client.closed()
    assert (closed.code, closed.reason) == (1011, "The server had to close the connection. Connect again.")
