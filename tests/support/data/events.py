"""Small factories of events whose every default is boring."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from django.db import connection

from conversations import dialects
from conversations.engines import guards
from conversations.events import NewEvent
from conversations.models import ConversationRef, Event

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


def delete_events(conversation: ConversationRef, seqs: Iterable[int]) -> None:
    """Make a hole in a log, as somebody with the database's password can."""
    table = " ON conversations_event" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER event_refuse_delete{table}")
    Event.objects.of(conversation).filter(seq__in=list(seqs)).delete()
    guards.install(connection)
