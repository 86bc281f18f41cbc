"""The V1 wire: reading any of its events into columns, and writing the server's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from conversations.dialects import columns
from conversations.dialects.author import COMMAND_TOOL, AgentState, command_of, to_json
from conversations.events import Authored, Dialect, Kind, Reading

STAMP_PLACEHOLDER = "2000-01-01T00:00:00.000000"
"""The timestamp of an authored payload until its append."""

INTERRUPTED_NOTE = "This answer was interrupted before it was complete."
"""The `extended_content` of an answer that was stopped before its end."""

_KINDS = {
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
}
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
_COMMAND_TOOL_NAME = "terminal"
"""What this wire calls COMMAND_TOOL."""
_DEFAULT_REJECTION = "User rejected the action"
_EXECUTION_STATUSES = {
    AgentState.IDLE: "idle",
    AgentState.RUNNING: "running",
    AgentState.WAITING_FOR_CONFIRMATION: "waiting_for_confirmation",
    AgentState.PAUSED: "paused",
    AgentState.FINISHED: "finished",
    # The wire knows no stopped loop: a paused one is what can be run again.
    AgentState.STOPPED: "paused",
    AgentState.INTERRUPTED: "error",
    AgentState.ERROR: "error",
}


def read(payload: Mapping[str, object]) -> Reading:
    """Read the columns off one V1 event, ignoring optional fields of the wrong type.

    Without a source an event has its kind's own; a message that of its role; any other the environment.
    """
    event_kind = columns.name(payload.get("kind"), columns.TYPE_MAX_CHARS) or ""
    return Reading(
        dialect=Dialect.V1,
        type=event_kind,
        kind=Kind.MESSAGE if _is_finish(payload) else _KINDS.get(event_kind, Kind.OTHER),
        source=columns.name(payload.get("source"), columns.SOURCE_MAX_CHARS) or _default_source(payload),
        text=columns.readable(whole_text(payload)),
        timestamp=columns.instant(payload.get("timestamp")),
        event_id=columns.event_id(payload.get("id")),
        cause_event_id=columns.event_id(payload.get("action_id")),
        parent_event_id=columns.event_id(payload.get("parent_id")),
        tool_call_id=_tool_call_id(payload),
    )


def is_interrupted(payload: Mapping[str, object]) -> bool:
    """Say whether an agent's message is marked as stopped before its end.

    The mark is a note in `extended_content`, a field of every release: there a model that continues the
    conversation reads it, while the message that people see stays as it was said.
    """
    if payload.get("source") != "agent":
        return False
    return columns.content_text(payload.get("extended_content")) == INTERRUPTED_NOTE


def called_tool(payload: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return name and arguments of a tool call: those that the model gave, as JSON beside the action."""
    call = columns.fields(payload.get("tool_call"))
    name = columns.first_text(payload.get("tool_name"), call.get("name"))
    try:
        arguments = columns.fields(json.loads(columns.first_text(call.get("arguments"))))
    except (ValueError, RecursionError):
        arguments = {}
    return COMMAND_TOOL if name == _COMMAND_TOOL_NAME else name, arguments


def _is_finish(payload: Mapping[str, object]) -> bool:
    action = columns.fields(payload.get("action"))
    return payload.get("kind") == "ActionEvent" and action.get("kind") == "FinishAction"


def _default_source(payload: Mapping[str, object]) -> str:
    role = columns.fields(payload.get("llm_message")).get("role")
    if payload.get("kind") == "MessageEvent" and isinstance(role, str):
        return _ROLE_SOURCES.get(role, "environment")
    return _DEFAULT_SOURCES.get(columns.first_text(payload.get("kind")), "environment")


def _tool_call_id(payload: Mapping[str, object]) -> str | None:
    call = columns.fields(payload.get("tool_call"))
    return columns.name(columns.first_text(payload.get("tool_call_id"), call.get("id")), columns.ID_MAX_CHARS)


def whole_text(payload: Mapping[str, object]) -> str:
    """Return what a person would read of an event, however long it is."""
    match payload.get("kind"):
        case "MessageEvent":
            return columns.content_text(columns.fields(payload.get("llm_message")).get("content"))
        case "ActionEvent":
            return _action_text(payload)
        case "ObservationEvent":
            return columns.content_text(columns.fields(payload.get("observation")).get("content"))
        case "UserRejectObservation":
            return columns.first_text(payload.get("rejection_reason"), _DEFAULT_REJECTION)
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
    return columns.first_text(answer, thought) or _call_text(payload, action)


def _call_text(payload: Mapping[str, object], action: Mapping[str, object]) -> str:
    call = columns.fields(payload.get("tool_call"))
    tool = columns.first_text(payload.get("tool_name"), call.get("name"))
    arguments = {key: value for key, value in action.items() if key != "kind"}
    shown = columns.first_text(call.get("arguments")) or (columns.as_json(arguments) if arguments else "")
    return f"{tool} {shown}".strip()


def _state_text(payload: Mapping[str, object]) -> str:
    key, value = columns.first_text(payload.get("key")), payload.get("value")
    if not isinstance(value, str | int | float):
        return key
    shown = value if isinstance(value, str) else columns.as_json(value)
    return shown if key == "execution_status" else f"{key}: {shown}"


class V1Author:
    """Writes V1 events of release 1.3.0: only its base fields, no null that may be left out."""

    def user_message(self, *, text: str, image_urls: Sequence[str] | None = (), event_id: str) -> Authored:
        images = [{"type": "image", "image_urls": list(image_urls)}] if image_urls else []
        content = [*(_texts(text) if text or not images else ()), *images]
        message = {"role": "user", "content": content}
        fields = {"llm_message": message, "activated_skills": [], "extended_content": []}
        return _authored("MessageEvent", event_id, "user", fields)

    def agent_message(self, *, text: str, event_id: str, interrupted: bool = False) -> Authored:
        message = {"role": "assistant", "content": _texts(text)}
        mark = {"extended_content": _texts(INTERRUPTED_NOTE)} if interrupted else {}
        return _authored("MessageEvent", event_id, "agent", {"llm_message": message, **mark})

    def tool_call(
        self,
        *,
        name: str,
        arguments: Mapping[str, object],
        thought: str = "",
        tool_call_id: str,
        event_id: str,
        awaiting_confirmation: bool = False,
    ) -> Authored:
        """Write the call; on this wire a call awaits confirmation as long as nothing answers it."""
        tool_name = _tool_name(name)
        call = {
            "id": tool_call_id,
            "name": tool_name,
            "arguments": to_json(arguments),
            "origin": "completion",
        }
        return _authored(
            "ActionEvent",
            event_id,
            "agent",
            {
                "thought": _texts(thought) if thought else [],
                "action": _action(name, arguments),
                "tool_name": tool_name,
                "tool_call_id": tool_call_id,
                "tool_call": call,
                "llm_response_id": event_id,
                "security_risk": "UNKNOWN",
            },
        )

    def tool_result(
        self,
        *,
        name: str,
        arguments: Mapping[str, object],
        content: str,
        exit_code: int = 0,
        tool_call_id: str,
        event_id: str,
        call_event_id: str,
    ) -> Authored:
        answer = {
            "observation": _observation(name, arguments, content, exit_code),
            "action_id": call_event_id,
        }
        call = {"tool_name": _tool_name(name), "tool_call_id": tool_call_id}
        return _authored("ObservationEvent", event_id, "environment", {**call, **answer})

    def tool_rejected(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        answer = {"rejection_reason": reason or _DEFAULT_REJECTION, "action_id": call_event_id}
        call = {"tool_name": _tool_name(name), "tool_call_id": tool_call_id}
        return _authored("UserRejectObservation", event_id, "environment", call | answer)

    def tool_failed(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        """Write the failure; this kind names its call by `tool_call_id` alone."""
        call = {"tool_name": _tool_name(name), "tool_call_id": tool_call_id}
        return _authored("AgentErrorEvent", event_id, "agent", call | {"error": reason})

    def state(self, *, state: AgentState, event_id: str, reason: str = "") -> Authored:
        """Write the state; this kind has no place for a reason."""
        return _execution_status(_EXECUTION_STATUSES[state], event_id)

    def error(self, *, code: str, detail: str, event_id: str) -> Authored:
        fields = {"code": code, "detail": detail}
        return _authored("ConversationErrorEvent", event_id, "environment", fields)

    def decision(self, *, accepted: bool, event_id: str) -> Authored:
        """Write the state that the decision leads to: this wire has no event for the decision itself."""
        return _execution_status("running" if accepted else "idle", event_id)


AUTHOR = V1Author()


def _authored(kind: str, event_id: str, source: str, fields: Mapping[str, object]) -> Authored:
    envelope = {"kind": kind, "id": event_id, "timestamp": STAMP_PLACEHOLDER, "source": source}
    payload = to_json(envelope | dict(fields))
    # Quotes inside strings are escaped, so the first such key is the envelope's own.
    before = f'"timestamp":"{STAMP_PLACEHOLDER}"'
    stamp_offset = payload.index(before) + len('"timestamp":"')
    return Authored(payload=payload, reading=read(json.loads(payload)), stamp_offset=stamp_offset)


def _execution_status(value: str, event_id: str) -> Authored:
    fields = {"key": "execution_status", "value": value}
    return _authored("ConversationStateUpdateEvent", event_id, "environment", fields)


def _texts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _tool_name(name: str) -> str:
    return _COMMAND_TOOL_NAME if name == COMMAND_TOOL else name


def _action(name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    if name != COMMAND_TOOL:
        return {"kind": "MCPToolAction", "data": arguments}
    return {"kind": "TerminalAction", "command": command_of(arguments), "is_input": False, "reset": False}


def _observation(
    name: str, arguments: Mapping[str, object], content: str, exit_code: int
) -> dict[str, object]:
    shared: dict[str, object] = {"content": _texts(content), "is_error": exit_code != 0}
    if name != COMMAND_TOOL:
        return {"kind": "MCPToolObservation", **shared, "tool_name": name}
    return {
        "kind": "TerminalObservation",
        **shared,
        "command": command_of(arguments),
        "exit_code": exit_code,
        "timeout": False,
        "metadata": {"exit_code": exit_code, "pid": -1, "prefix": "", "suffix": ""},
    }
