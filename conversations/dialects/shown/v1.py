"""A stored event for readers of the V1 wire: their own as they are stored, others as their counterparts."""

from __future__ import annotations

from conversations.dialects.translation import v0_as_v1
from conversations.events import Dialect, EventEnvelope


def shown(event: EventEnvelope, public_id: str) -> str:
    """Return an event of the conversation with this id as JSON text.

    An event of this wire is its payload, byte for byte, and is never decoded.
    """
    if event["dialect"] == Dialect.V1:
        return event["payload"]
    return v0_as_v1.payload(event, public_id)


def shown_id(event: EventEnvelope, public_id: str) -> str:
    return id_of(event["id"], public_id, dialect=event["dialect"], seq=event["seq"])


def id_of(event_id: str, public_id: str, *, dialect: str, seq: int) -> str:
    """Return the id under which a stored event is shown."""
    return event_id if dialect == Dialect.V1 else v0_as_v1.event_id(public_id, seq)
