"""Live events at many readers of a server: each once and in order, whoever else reads, and however slowly."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack

import pytest
from django.contrib.auth.models import User

from conversations.store import creation
from sessions_app.live.text_frames import CHUNK_BYTES
from tests.support.people.clients import Server
from tests.support.wires.network import NetworkClient
from tests.support.wires.v1_socket import ID, events_path, session_path

pytestmark = pytest.mark.no_second_try

EVENTS = 300
LENGTHS = (1, 100, 125, 126, 2_000, CHUNK_BYTES - 500, CHUNK_BYTES + 1, 200_000)
"""In characters: frames with each form of length, some longer than one write, or than a hint."""


@pytest.mark.one_engine
def test_each_reader_gets_every_live_event_once_and_in_order(server: Server, alice: User) -> None:
    creation.create(alice, conversation_id=ID)
    chance = random.Random(7)
    texts = [f"{n} " + "x" * chance.choice(LENGTHS) for n in range(EVENTS)]
    server.start()
    with ExitStack() as until_left:
        native, columns = (
            until_left.enter_context(NetworkClient(server, path))
            for path in (f"/ws/conversations/{ID}", f"/ws/conversations/{ID}?payload=false")
        )
        v1, sequenced = (
            until_left.enter_context(NetworkClient(server, path)) for path in (events_path(), session_path())
        )
        for reader in (native, columns):
            reader.until("replay_complete")
        for other in (v1, sequenced):
            other.receive()
        writer = until_left.enter_context(NetworkClient(server, ID))
        writer.until("replay_complete")
        for text in texts:
            event = {"source": "agent", "action": "message", "args": {"content": text}}
            writer.send(json.dumps({"type": "event", "event": event}))
        # One after the other: meanwhile the server has to wait for those that do not read yet.
        shown = [native.until("event")["event"]["args"]["content"] for _ in texts]
        assert shown == texts
        assert [columns.until("event")["seq"] for _ in texts] == list(range(EVENTS))
        assert [said(v1) for _ in texts] == texts
        frames = [sequenced.receive() for _ in texts]
    assert [frame["seq"] for frame in frames] == list(range(EVENTS))


def said(client: NetworkClient) -> str:
    """Return the words of the next event, passing over the conversation's states."""
    while (frame := client.receive())["kind"] != "MessageEvent":
        pass
    text: str = frame["llm_message"]["content"][0]["text"]
    return text
