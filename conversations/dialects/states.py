"""What the agent does, as a stored state of either wire says it."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects.author import AgentState
from conversations.events import EventEnvelope, Kind

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
"""The words of both wires (spec V0 §3.6, spec V1 §4.2) for states that a reader acts on."""


def state_of(event: EventEnvelope) -> AgentState | None:
    """Return what a state says the agent does; None for any other event, or a word that is not known."""
    return state_in(event["text"]) if event["kind"] == Kind.STATE else None


def state_in(text: str) -> AgentState | None:
    """Return the state that the text column of a state begins with; a reason may follow behind a colon."""
    return _STATES.get(text.partition(":")[0])
