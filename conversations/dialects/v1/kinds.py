"""The kinds of V1 events: what each of them is to any reader (spec V1 §4.2, §4.3)."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects import columns
from conversations.events import Kind

KINDS: Mapping[str, Kind] = {
    "MessageEvent": Kind.MESSAGE,
    "ActionEvent": Kind.TOOL_CALL,
    "ACPToolCallEvent": Kind.TOOL_CALL,
    "ObservationEvent": Kind.TOOL_RESULT,
    "UserRejectObservation": Kind.TOOL_RESULT,
    "AgentErrorEvent": Kind.ERROR,
    "ConversationErrorEvent": Kind.ERROR,
    "ServerErrorEvent": Kind.ERROR,
    "PauseEvent": Kind.STATE,
    "InterruptEvent": Kind.STATE,
    "ConversationStateUpdateEvent": Kind.STATE,
    "SystemPromptEvent": Kind.SYSTEM,
    "Condensation": Kind.SUMMARY,
    "CondensationSummaryEvent": Kind.SUMMARY,
    "CondensationRequest": Kind.OTHER,
    "LLMCompletionLogEvent": Kind.OTHER,
    "TokenEvent": Kind.OTHER,
    "HookExecutionEvent": Kind.OTHER,
    "StreamingDeltaEvent": Kind.OTHER,
}
"""Every kind of every release; what is of another kind is stored and shown all the same."""


def kind_of(value: object) -> str:
    """Return the short name of what carries a `kind`: an event, an action, an observation.

    Some senders write the class with the path to it: the name is what stands after the last dot.
    """
    written = columns.first_text(columns.fields(value).get("kind"))
    return written.rpartition(".")[2] or written
