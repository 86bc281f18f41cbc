"""Events as V0 sockets send them, live and on replay alike (spec V0 §2.4, §2.5)."""

from __future__ import annotations

from conversations.dialects.shown.v0 import shown
from conversations.events import Dialect, EventEnvelope, Kind

# The types that sockets of this wire show as a state of the agent, of either wire.
STATE_TYPES = frozenset({"agent_state_changed", "ConversationStateUpdateEvent"})
# Observations of the environment that clients get, in the agent's name.
_OBSERVED = frozenset({"run", "agent_state_changed", "recall", "error"})


def emitted(event: EventEnvelope) -> str | None:
    """Return the event as the frame's JSON object; None for one that sockets of this wire leave out.

    These are hidden events, `null`, the `recall` action, and the environment's own actions.
    """
    if event["hidden"]:
        return None
    is_foreign = event["dialect"] == Dialect.V1
    is_recall = event["type"] == "recall" and event["kind"] == Kind.TOOL_CALL
    if not is_foreign and (event["type"] == "null" or is_recall):
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
