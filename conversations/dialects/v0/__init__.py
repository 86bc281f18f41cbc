"""The V0 wire as the doors use it: what clients send, what they are shown, what agents write."""

from __future__ import annotations

from conversations.dialects.shown.v0 import shown
from conversations.dialects.v0.author import AUTHOR
from conversations.dialects.v0.browser_fields import without_browser_fields
from conversations.dialects.v0.emitted import STATE_TYPES, emitted
from conversations.dialects.v0.reading import called_tool, is_interrupted, is_notice, read
from conversations.dialects.v0.received import received
from conversations.events import EventEnvelope

__all__ = [
    "AUTHOR",
    "NOT_FOR_PROMPTS",
    "STATE_TYPES",
    "appears_in_trajectory",
    "called_tool",
    "emitted",
    "is_interrupted",
    "is_notice",
    "read",
    "received",
    "shown",
    "without_browser_fields",
]

NOT_FOR_PROMPTS = frozenset({"null", "change_agent_state", "agent_state_changed"})
"""Types that tell a model nothing about the work around them (spec V0 §1.6)."""


def appears_in_trajectory(event: EventEnvelope) -> bool:
    """Say whether a trajectory has the event: hidden ones may hold what nobody should pass on."""
    return not event["hidden"]
