"""What a V0 socket is sent of a log, live and on replay alike (spec V0 §2.4, §2.5)."""

from __future__ import annotations

from conversations.dialects.shown.v0 import shown
from conversations.events import Dialect, EventEnvelope, Kind

STATE_TYPES = frozenset({"agent_state_changed", "ConversationStateUpdateEvent"})
"""The types that sockets of this wire show as a state of the agent, of either wire."""
_OBSERVED = frozenset({"run", "agent_state_changed", "recall", "error"})
"""What the environment observes and clients are told, in the agent's name."""


def emitted(event: EventEnvelope) -> str | None:
    """Return the event as the frame's JSON object; None for one that sockets of this wire leave out.

    Left out are hidden events, `null`, the `recall` action, and what the environment does to itself.
    """
    if event["hidden"]:
        return None
    is_foreign = event["dialect"] == Dialect.V1
    if not is_foreign and (event["type"] == "null" or _is_recall_action(event)):
        return None
    if event["source"] != "environment":
        return shown(event)
    if is_foreign or _is_observed(event):
        return shown(event, source="agent")
    return None


def _is_observed(event: EventEnvelope) -> bool:
    if event["type"] == "success":
        return event["kind"] == Kind.OTHER  # a notice of the server
    return event["type"] in _OBSERVED and event["kind"] != Kind.TOOL_CALL


def _is_recall_action(event: EventEnvelope) -> bool:
    return event["type"] == "recall" and event["kind"] == Kind.TOOL_CALL
