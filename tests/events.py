"""Small factories of events whose every default is boring."""

from __future__ import annotations

import itertools
import json
from typing import Any

from conversations import dialects
from conversations.events import NewEvent

_numbers = itertools.count()


def payload(text: str = "hello", **members: Any) -> str:
    """Return a V0 message as JSON text."""
    return json.dumps({"action": "message", "source": "user", "args": {"content": text}, **members})


def event(
    text: str = "hello", *, event_id: str | None = None, raw: str | None = None, **values: Any
) -> NewEvent:
    """Return a new event, with an id of its own unless one is given; no example of the docs has such ids."""
    body = payload(text) if raw is None else raw
    return NewEvent(
        event_id=event_id or f"made-{next(_numbers)}",
        payload=body,
        reading=dialects.read(json.loads(body)),
        **values,
    )
