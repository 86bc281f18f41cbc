"""Frames that wait in a transport while the server stores the one before: refused with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Event, Version
from conversations.store import creation
from tests.store.test_frame_order import locked
from tests.support.people.clients import WAIT_S, Server
from tests.support.wires.network import NetworkClient
from tests.support.wires.v1_socket import message, session_path

pytestmark = pytest.mark.no_second_try

NAMES = ["f01", "f02", "f03", "f04", "f05", "f06"]
PADDING = 200_000
"""Characters of a frame: of so large ones, the transport gives the server no two at once."""


def outcomes(client: NetworkClient, found_in: Callable[[str], Any], count: int) -> list[Any]:
    """Return what the next answers to frames say."""
    found: list[Any] = []
    while len(found) < count:
        if (outcome := found_in(client.receive_text(within_s=2 * WAIT_S))) is not None:
            found.append(outcome)
    return found


def in_v1(text: str) -> str | None:
    """Return the code of an error, or the name of a stored message."""
    frame = json.loads(text)
    event = frame.get("event", frame)
    if "code" in event:
        return str(event["code"])
    is_message = event["kind"] == "MessageEvent" and event["source"] == "user"
    return event["llm_message"]["content"][0]["text"][:3] if is_message else None


def in_v0(text: str) -> str | None:
    """Return the words of a refused event's acknowledgement, or that it was stored."""
    if not text.startswith("43"):
        return None
    (answer,) = json.loads(text[text.index("[") :])
    return "stored" if answer["success"] else str(answer["error"])


def v1_frame(name: str) -> str:
    return json.dumps(message([{"type": "text", "text": name.ljust(PADDING)}]))


def v0_frame(name: str) -> str:
    """Return a packet that records a command of this name and asks for an acknowledgement."""
    event = {"action": "run", "args": {"command": name.ljust(PADDING)}}
    return f"42{name[1:]}{json.dumps(['oh_user_action', event])}"


def stored(talk: ConversationRef) -> list[str]:
    """Return the names of the frames in the log."""
    payloads = Event.objects.of(talk).filter(source="user").order_by("seq").values_list("payload", flat=True)
    return [name for payload in payloads for name in NAMES if f'"{name} ' in payload]


def test_frames_that_waited_unread_in_the_transport_are_refused_with_the_one_before(
    server: Server, alice: User, subtests: pytest.Subtests
) -> None:
    server.start(DATABASE_LOCK_TIMEOUT_S="1")
    v0_path = "/socket.io/?EIO=4&transport=websocket&latest_event_id=-1&conversation_id="
    for version, path, frame, found_in in (
        (Version.V1, session_path, v1_frame, in_v1),
        (Version.V0, lambda talk: f"{v0_path}{talk.public_id}", v0_frame, in_v0),
    ):
        talk = creation.create(alice, version=version)
        with subtests.test(wire=version), NetworkClient(server, path(talk)) as client:
            client.receive_text()
            if version == Version.V0:
                client.send("40")
                while not client.receive_text().startswith("40"):
                    pass
            with locked(talk) as unlock:
                for name in NAMES:
                    client.send(frame(name))
                (refused,) = outcomes(client, found_in, 1)
                unlock()
            assert outcomes(client, found_in, len(NAMES) - 1) == [refused] * (len(NAMES) - 1)
            assert stored(talk) == []
            for name in NAMES:
                client.send(frame(name))
            assert refused not in outcomes(client, found_in, len(NAMES))
            assert stored(talk) == NAMES
