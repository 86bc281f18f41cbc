"""The agent's state in a stored event of either wire."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects.author import AgentState
from conversations.events import EventEnvelope, Kind

# The words of both wires (spec V0 §3.6, spec V1 §4.2) for states that a reader acts on.
_STATES: Mapping[str, AgentState] = {
    "idle": AgentState.IDLE,
    "awaiting_user_input": AgentState.IDLE,
    "running": AgentState.RUNNING,
    "waiting_for_confirmation": AgentState.WAITING_FOR_CONFIRMATION,
    "awaiting_user_confirmation": AgentState.WAITING_FOR_CONFIRMATION,
    "paused": AgentState.PAUSED,
    "finished": AgentState.FINISHED,
    "stopped": AgentState.STOPPED,
    "rejected": AgentState.STOPPED,
    "error": AgentState.ERROR,
    "stuck": AgentState.STUCK,
}


def state_of(event: EventEnvelope) -> AgentState | None:
    """Return the agent's state in an event; None for an event without one, or an unknown word."""
    return state_in(event["text"]) if event["kind"] == Kind.STATE else None


def state_in(text: str) -> AgentState | None:
    """Return the state at the beginning of a state's text column; a reason may follow after a colon."""
    return _STATES.get(text.partition(":")[0])
