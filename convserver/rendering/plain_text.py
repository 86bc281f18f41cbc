"""All that an event says, as plain text."""

from __future__ import annotations

from conversations.events import Dialect, EventEnvelope
from convserver.rendering import v0, v1
from convserver.rendering.page import payload_of


def whole_text(event: EventEnvelope) -> str:
    """Return what a person would read of an event, however long it is: the column is cut where it is long."""
    payload = payload_of(event)
    wire = v0 if event["dialect"] == Dialect.V0 else v1
    return wire.whole_text(payload) or event["text"]
