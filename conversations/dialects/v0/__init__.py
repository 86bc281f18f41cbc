"""The V0 wire for views and sockets: received events, shown events, events of agents."""

from __future__ import annotations

from conversations.dialects.shown.v0 import shown
from conversations.dialects.v0.author import AUTHOR
from conversations.dialects.v0.browser_fields import without_browser_fields
from conversations.dialects.v0.emitted import STATE_TYPES, emitted
from conversations.dialects.v0.reading import read
from conversations.dialects.v0.received import received
from conversations.events import EventEnvelope

__all__ = [
    "AUTHOR",
    "NOT_FOR_PROMPTS",
    "STATE_TYPES",
    "appears_in_trajectory",
    "emitted",
    "read",
    "received",
    "shown",
    "without_browser_fields",
]

# Types that tell a model nothing about the work around them (spec V0 §1.6).
NOT_FOR_PROMPTS = frozenset({"null", "change_agent_state", "agent_state_changed"})


def appears_in_trajectory(event: EventEnvelope) -> bool:
    """Return whether a trajectory has the event: hidden ones may contain tokens."""
    return not event["hidden"]
