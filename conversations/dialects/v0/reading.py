"""Reading any event of the V0 wire into columns."""

from __future__ import annotations

import json
from collections.abc import Mapping

from conversations.dialects import columns, command_tool
from conversations.dialects.author import COMMAND_TOOL
from conversations.dialects.file_tool import FILE_TOOL
from conversations.dialects.v0 import file_calls
from conversations.events import EVENT_ID_MAX_LENGTH, Dialect, EventEnvelope, Kind, Reading

_ACTION_KINDS = {
    "message": Kind.MESSAGE,
    "finish": Kind.MESSAGE,
    "reject": Kind.MESSAGE,
    "system": Kind.SYSTEM,
    "condensation": Kind.SUMMARY,
} | dict.fromkeys(("change_agent_state", "start", "pause", "resume", "stop"), Kind.STATE)
_ACTION_KINDS |= dict.fromkeys(
    (
        *("run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive", "call_tool_mcp"),
        *("think", "delegate", "recall", "task_tracking", "push", "send_pr"),
    ),
    Kind.TOOL_CALL,
)
_OBSERVATION_KINDS = {
    "agent_state_changed": Kind.STATE,
    "error": Kind.ERROR,
    "condense": Kind.SUMMARY,
    "message": Kind.MESSAGE,
    "chat": Kind.MESSAGE,
} | dict.fromkeys(
    (
        *("run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive", "mcp", "delegate"),
        *("recall", "task_tracking", "think", "success", "user_rejected", "download"),
    ),
    Kind.TOOL_RESULT,
)
_TELLING_ARGS = ("path", "url", "browser_actions", "query", "agent", "content", "command", "code", "thought")


def read(payload: Mapping[str, object]) -> Reading:
    """Return the columns of one V0 event; ignore optional fields of the wrong type.

    Without a source an action is the user's, as from a socket, and an observation the environment's.
    """
    action = columns.name(payload.get("action"), columns.TYPE_MAX_CHARS)
    observation = columns.name(payload.get("observation"), columns.TYPE_MAX_CHARS) or ""
    args, extras = columns.fields(payload.get("args")), columns.fields(payload.get("extras"))
    if action:
        kind = _ACTION_KINDS.get(action, Kind.OTHER)
        text = _action_text(action, args, payload)
    else:
        kind = Kind.OTHER if is_notice(payload) else _OBSERVATION_KINDS.get(observation, Kind.OTHER)
        text = _observation_text(extras, payload)
    call = columns.fields(payload.get("tool_call_metadata"))
    return Reading(
        dialect=Dialect.V0,
        type=action or observation,
        kind=kind,
        source=columns.name(payload.get("source"), columns.SOURCE_MAX_CHARS)
        or ("user" if action else "environment"),
        text=columns.readable(text),
        timestamp=columns.instant(payload.get("timestamp")),
        wire_id=columns.wire_id(payload.get("id")),
        cause_wire_id=columns.wire_id(payload.get("cause")),
        tool_call_id=columns.name(call.get("tool_call_id"), EVENT_ID_MAX_LENGTH),
        hidden=args.get("hidden") is True or extras.get("hidden") is True,
        brings_envelope=not payload.keys().isdisjoint(("id", "timestamp", "cause")),
    )


def whole_text(payload: Mapping[str, object]) -> str:
    """Return the readable text of an event, however long it is."""
    if action := columns.name(payload.get("action"), columns.TYPE_MAX_CHARS):
        return _action_text(action, columns.fields(payload.get("args")), payload)
    return _observation_text(columns.fields(payload.get("extras")), payload)


def is_interrupted(payload: Mapping[str, object]) -> bool:
    """Return whether an agent's message is marked as stopped before its end.

    The mark is a key of the event itself: readers of this wire ignore unknown keys there, but some refuse an
    unknown key in `args`.
    """
    return payload.get("interrupted") is True


def is_notice(payload: Mapping[str, object]) -> bool:
    """Return whether an event is a notice of the server: it has a key for that."""
    return payload.get("observation") == "success" and payload.get("notice") is True


def called_tool(payload: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return name and arguments of a tool call."""
    name = columns.first_text(columns.fields(payload.get("tool_call_metadata")).get("function_name"))
    args = columns.fields(payload.get("args"))
    match payload.get("action"):
        case "run":
            return name or COMMAND_TOOL, _command_arguments(args, payload)
        case "call_tool_mcp":
            return name or columns.first_text(args.get("name")), columns.fields(args.get("arguments"))
        case "read" | "edit" as type_ if name == FILE_TOOL:
            return name, file_calls.arguments_of(type_, args)
        case _:
            return name, args


def _command_arguments(args: Mapping[str, object], payload: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments as a model has given them: what the wire alone adds is left out."""
    return {"command": args.get("command", ""), **command_tool.without_defaults({**payload, **args})}


def _action_text(action: str, args: Mapping[str, object], payload: Mapping[str, object]) -> str:
    message = payload.get("message")
    outputs = columns.fields(args.get("outputs"))
    match action:
        case "message" | "system":
            return columns.first_text(args.get("content"), message)
        case "run":
            return columns.first_text(args.get("command"), message)
        case "run_ipython":
            return columns.first_text(args.get("code"), message)
        case "think":
            return columns.first_text(args.get("thought"), message)
        case "finish":
            return columns.first_text(args.get("final_thought"), outputs.get("content"), message)
        case "reject":
            return columns.first_text(outputs.get("reason"), message)
        case "change_agent_state":
            return columns.first_text(args.get("agent_state"), message)
        case "condensation":
            return columns.first_text(args.get("summary"), message)
        case "call_tool_mcp":
            name, given = columns.first_text(args.get("name")), args.get("arguments", {})
            return columns.first_text(message) or f"{name} {columns.as_json(given)}".strip()
        case _:
            return columns.first_text(message, *(args.get(key) for key in _TELLING_ARGS))


def _observation_text(extras: Mapping[str, object], payload: Mapping[str, object]) -> str:
    if payload.get("observation") == "agent_state_changed":
        state = (columns.first_text(extras.get(key)) for key in ("agent_state", "reason"))
        return ": ".join(filter(None, state)) or columns.first_text(payload.get("message"))
    outputs = columns.fields(extras.get("outputs"))
    return columns.first_text(
        columns.content_text(payload.get("content")), payload.get("message"), outputs.get("content")
    )


def number_of(event: EventEnvelope) -> int:
    """Return the number under which clients of this wire know a stored event."""
    number = json.loads(event["payload"]).get("id") if event["brings_envelope"] else None
    return number if isinstance(number, int) else event["seq"]
