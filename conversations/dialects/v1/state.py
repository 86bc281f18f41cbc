"""The state of a conversation for V1 clients: whole, or one field."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects.author import AgentState
from conversations.dialects.v1.payload import V1Event, state_update
from conversations.events import Metrics

FULL_STATE = "full_state"  # the key of a frame with all of the state; such a frame is sent and never stored

_NOT_STATE = frozenset({"title", "metrics", "created_at", "updated_at"})
EXECUTION_STATUSES = {
    AgentState.IDLE: "idle",
    AgentState.RUNNING: "running",
    AgentState.WAITING_FOR_CONFIRMATION: "waiting_for_confirmation",
    AgentState.PAUSED: "paused",
    AgentState.FINISHED: "finished",
    # The wire knows no stopped loop; a paused one can be run again.
    AgentState.STOPPED: "paused",
    AgentState.INTERRUPTED: "error",
    AgentState.STUCK: "stuck",
    AgentState.ERROR: "error",
}


def full_state(information: Mapping[str, object]) -> V1Event:
    """Write the whole state: a ConversationInfo without other members, and without nulls."""
    state = {
        name: value for name, value in information.items() if name not in _NOT_STATE and value is not None
    }
    return state_update(FULL_STATE, state)


def execution_status(value: str) -> V1Event:
    """Return this wire's word for the agent's state."""
    return state_update("execution_status", value)


def stats(usage_to_metrics: Mapping[str, Mapping[str, object]]) -> V1Event:
    """Return the totals so far, by use of the model; frontends look for `agent`."""
    return state_update("stats", {"usage_to_metrics": usage_to_metrics})


def snapshot(metrics: Metrics, *, model: str) -> dict[str, object]:
    """Return totals in this wire's form, without lists, which would grow with each call of the model."""
    counted = ("cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "context_window")
    usage = {
        "model": model,
        "prompt_tokens": metrics.prompt_tokens,
        "completion_tokens": metrics.completion_tokens,
        **dict.fromkeys((*counted, "per_turn_token"), 0),
        "response_id": "",
    }
    return {
        "model_name": model,
        "accumulated_cost": metrics.accumulated_cost,
        "accumulated_token_usage": usage,
    }
