"""Clients of the V1 wire's sockets: addresses, events, and what to wait for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from conversations.dialects import v1
from conversations.events import ConversationRef, NewEvent
from tests.support.data.events import event
from tests.support.people.clients import Client

ID = "3c294d95-9ff6-4d2d-9c53-0a5849f2c4a0"
START = datetime(2026, 1, 1, tzinfo=UTC)

_numbers = itertools.count()


def events_path(conversation: ConversationRef | str = ID) -> str:
    return f"/sockets/events/{conversation if isinstance(conversation, str) else conversation.public_id}"


def session_path(conversation: ConversationRef | str = ID) -> str:
    """Return the address of a conversation's sequenced socket."""
    return f"/sockets/session/{conversation if isinstance(conversation, str) else conversation.public_id}"


def message(content: Any = "hello", **members: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **members}


def auth(key: Any) -> dict[str, Any]:
    """Return a first frame."""
    return {"type": "auth", "session_api_key": key}


def v1_event(text: str = "noted", *, at_s: float = 0) -> NewEvent:
    """Return an event of the V1 wire that asks nothing; its time is so many seconds after START."""
    event_id = str(UUID(int=next(_numbers), version=4))
    timestamp = v1.stamp(START + timedelta(seconds=at_s))
    raw = v1.written(v1.user_message([v1.text_part(text)]), event_id=event_id, timestamp=timestamp)
    return event(raw=raw, event_id=event_id)


def stored_status(value: str) -> NewEvent:
    event_id = str(UUID(int=next(_numbers), version=4))
    raw = v1.written(v1.execution_status(value), event_id=event_id, timestamp=v1.stamp(START))
    return event(raw=raw, event_id=event_id)


def v1_events(count: int) -> list[NewEvent]:
    """Return events a second apart."""
    return [v1_event(str(number), at_s=number) for number in range(count)]


def ids(frames: Sequence[NewEvent | dict[str, Any]]) -> list[str]:
    return [
        frame.event_id if isinstance(frame, NewEvent) else frame["id"]
        for frame in frames
        if isinstance(frame, NewEvent) or not is_full_state(frame)
    ]


def is_full_state(frame: dict[str, Any]) -> bool:
    return (frame["kind"], frame.get("key")) == ("ConversationStateUpdateEvent", "full_state")


def status_in(frame: dict[str, Any]) -> str | None:
    """Return the status that a frame tells, whole state or not."""
    if frame["kind"] != "ConversationStateUpdateEvent":
        return None
    if frame["key"] == "full_state":
        return str(frame["value"]["execution_status"])
    return str(frame["value"]) if frame["key"] == "execution_status" else None


async def receive(client: Client, count: int) -> list[dict[str, Any]]:
    return [await client.receive() for _ in range(count)]


async def until_kind(client: Client, kind: str, **members: Any) -> dict[str, Any]:
    """Return the next frame of this kind with these members."""
    while True:
        frame = await client.receive()
        if frame["kind"] == kind and members.items() <= frame.items():
            return frame


async def until_full_state(client: Client) -> dict[str, Any]:
    """Return the value of the next whole state."""
    value: dict[str, Any] = (await until_kind(client, "ConversationStateUpdateEvent", key="full_state"))[
        "value"
    ]
    return value


def texts(frames: Sequence[dict[str, Any]]) -> list[str]:
    """Return what was said in messages, as the first part of each has it."""
    return [frame["llm_message"]["content"][0]["text"] for frame in frames if frame["kind"] == "MessageEvent"]
