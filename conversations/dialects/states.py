"""The agent's state in a stored event of either wire."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects.author import AgentState
from conversations.events import Dialect, EventEnvelope, Kind

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


# What a wire says after the user's decision about calls that wait; V1 has no event of its own for it.
_DECISIONS: Mapping[str, Mapping[str, bool]] = {
    Dialect.V0: {"user_confirmed": True, "user_rejected": False},
    Dialect.V1: {"running": True, "idle": False},
}


def decision_of(event: EventEnvelope) -> bool | None:
    """Return whether the calls that waited before an event were accepted; None if it is no decision."""
    word = event["text"].partition(":")[0] if event["kind"] == Kind.STATE else ""
    return _DECISIONS[event["dialect"]].get(word)


def state_of(event: EventEnvelope) -> AgentState | None:
    """Return the agent's state in an event; None for an event without one, or an unknown word."""
    return state_in(event["text"]) if event["kind"] == Kind.STATE else None


def state_in(text: str) -> AgentState | None:
    """Return the state at the beginning of a state's text column; a reason may follow after a colon."""
    return _STATES.get(text.partition(":")[0])
