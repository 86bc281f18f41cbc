"""The complete text of an event."""

from __future__ import annotations

from conversations.events import Dialect, EventEnvelope
from convserver.rendering import v0, v1
from convserver.rendering.page import payload_of


def whole_text(event: EventEnvelope) -> str:
    """Return the complete text of an event, which the column `text` has only up to a limit."""
    payload = payload_of(event)
    wire = v0 if event["dialect"] == Dialect.V0 else v1
    return wire.whole_text(payload) or event["text"]
