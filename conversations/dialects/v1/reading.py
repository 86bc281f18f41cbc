"""Reading any event of the V1 wire into columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from conversations.dialects import columns
from conversations.dialects.author import COMMAND_TOOL
from conversations.dialects.v1.kinds import KINDS, kind_of
from conversations.events import EVENT_ID_MAX_LENGTH, Dialect, Kind, Reading
from conversations.payloads import bounds

# The `extended_content` of an answer that was stopped before its end.
INTERRUPTED_NOTE = "This answer was interrupted before it was complete."
# The `extended_content` of a notice.
NOTICE_NOTE = "This is a notice of the server. Neither the user nor the assistant has said it."

_DEFAULT_SOURCES = dict.fromkeys(
    (
        *("SystemPromptEvent", "ActionEvent", "AgentErrorEvent", "TokenEvent"),
        *("ACPToolCallEvent", "StreamingDeltaEvent"),
    ),
    "agent",
) | {"PauseEvent": "user", "InterruptEvent": "user", "HookExecutionEvent": "hook"}
_ROLE_SOURCES = {"user": "user", "assistant": "agent"}
_TELLING_FIELDS = (
    "text",
    "message",
    "detail",
    "error",
    "summary",
    "title",
    "reason",
    "stdout",
    "hook_command",
    "filename",
)
COMMAND_TOOL_NAME = "terminal"  # this wire's name of COMMAND_TOOL
DEFAULT_REJECTION = "User rejected the action"


def read(payload: Mapping[str, object]) -> Reading:
    """Return the columns of one V1 event; ignore optional fields of the wrong type.

    Without a source an event has that of its kind, a message that of its role, any other the environment.
    """
    event_kind, call = kind_of(payload), columns.fields(payload.get("tool_call"))
    call_id = columns.first_text(payload.get("tool_call_id"), call.get("id"))
    return Reading(
        dialect=Dialect.V1,
        type=columns.name(event_kind, columns.TYPE_MAX_CHARS) or "",
        kind=_kind(payload, event_kind),
        source=columns.name(payload.get("source"), columns.SOURCE_MAX_CHARS) or _default_source(payload),
        text=columns.readable(whole_text(payload)),
        timestamp=columns.instant(payload.get("timestamp")),
        event_id=columns.event_id(payload.get("id")),
        cause_event_id=columns.event_id(payload.get("action_id")),
        parent_event_id=columns.event_id(payload.get("parent_id")),
        tool_call_id=columns.name(call_id, EVENT_ID_MAX_LENGTH),
    )


def is_interrupted(payload: Mapping[str, object]) -> bool:
    """Return whether an agent's message is marked as stopped before its end.

    The mark is a note in `extended_content`, a field of every release: a model that continues the
    conversation reads it there, while the message that people see stays unchanged.
    """
    if payload.get("source") != "agent":
        return False
    return columns.content_text(payload.get("extended_content")) == INTERRUPTED_NOTE


def _kind(payload: Mapping[str, object], event_kind: str) -> Kind:
    if is_notice(payload):
        return Kind.OTHER
    return Kind.MESSAGE if _is_finish(payload) else KINDS.get(event_kind, Kind.OTHER)


def is_notice(payload: Mapping[str, object]) -> bool:
    """Return whether an event is a notice of the server: a message of the environment with a fixed note."""
    if payload.get("source") != "environment" or kind_of(payload) != "MessageEvent":
        return False
    return columns.content_text(payload.get("extended_content")) == NOTICE_NOTE


def called_tool(payload: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return name and arguments of a tool call: the model's own, as JSON beside the action."""
    call = columns.fields(payload.get("tool_call"))
    name = columns.first_text(payload.get("tool_name"), call.get("name"))
    try:
        arguments = columns.fields(_decoded(columns.first_text(call.get("arguments"))))
    except (ValueError, RecursionError):
        arguments = {}
    return COMMAND_TOOL if name == COMMAND_TOOL_NAME else name, arguments


def exit_code(observation: Mapping[str, object]) -> object:
    """Return the exit code of a command's observation: its own or, without one, that of its metadata."""
    own = observation.get("exit_code")
    return columns.fields(observation.get("metadata")).get("exit_code") if own is None else own


def _decoded(text: str) -> Any:
    """Return the value of JSON in a string of an event; the event's bounds do not count its values."""
    bounds.require_bounded(text)
    return json.loads(text)


def _is_finish(payload: Mapping[str, object]) -> bool:
    return kind_of(payload) == "ActionEvent" and kind_of(payload.get("action")) == "FinishAction"


def _default_source(payload: Mapping[str, object]) -> str:
    role = columns.fields(payload.get("llm_message")).get("role")
    event_kind = kind_of(payload)
    if event_kind == "MessageEvent" and isinstance(role, str):
        return _ROLE_SOURCES.get(role, "environment")
    return _DEFAULT_SOURCES.get(event_kind, "environment")


def whole_text(payload: Mapping[str, object]) -> str:
    """Return the readable text of an event, however long it is."""
    match kind_of(payload):
        case "MessageEvent":
            return columns.content_text(columns.fields(payload.get("llm_message")).get("content"))
        case "ActionEvent":
            return _action_text(payload)
        case "ObservationEvent":
            return columns.content_text(columns.fields(payload.get("observation")).get("content"))
        case "UserRejectObservation":
            return columns.first_text(payload.get("rejection_reason"), DEFAULT_REJECTION)
        case "AgentErrorEvent":
            return columns.first_text(payload.get("error"))
        case "ConversationErrorEvent" | "ServerErrorEvent":
            return columns.first_text(payload.get("detail"), payload.get("code"))
        case "ConversationStateUpdateEvent":
            return _state_text(payload)
        case "SystemPromptEvent":
            return columns.content_text(payload.get("system_prompt"))
        case _:
            content = columns.content_text(payload.get("content"))
            return columns.first_text(*(payload.get(key) for key in _TELLING_FIELDS), content)


def _action_text(payload: Mapping[str, object]) -> str:
    action = columns.fields(payload.get("action"))
    answer = action.get("message") if _is_finish(payload) else None
    thought = columns.content_text(payload.get("thought"))
    if said := columns.first_text(answer, thought):
        return said
    call = columns.fields(payload.get("tool_call"))
    tool = columns.first_text(payload.get("tool_name"), call.get("name"))
    arguments = {key: value for key, value in action.items() if key != "kind"}
    shown = columns.first_text(call.get("arguments")) or (columns.as_json(arguments) if arguments else "")
    return f"{tool} {shown}".strip()


def _state_text(payload: Mapping[str, object]) -> str:
    key, value = columns.first_text(payload.get("key")), payload.get("value")
    if not isinstance(value, str | int | float):
        return key
    shown = columns.as_text(value)
    return shown if key == "execution_status" else f"{key}: {shown}"
