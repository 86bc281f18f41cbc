"""The kinds of V1 events and their meaning for any reader (spec V1 §4.2, §4.3)."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects import columns
from conversations.events import Kind

# Every kind of every release; events of other kinds are stored and shown, too.
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
    "SecurityAnalysisEvent": Kind.OTHER,
    "StreamingDeltaEvent": Kind.OTHER,
}


def kind_of(value: object) -> str:
    """Return the short name in a `kind`: of an event, an action, an observation.

    Some senders write the class with its path: the name is the part after the last dot.
    """
    written = columns.first_text(columns.fields(value).get("kind"))
    return written.rpartition(".")[2] or written
