"""The V0 wire: reading any of its events into columns, and writing the server's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from conversations.dialects import columns
from conversations.dialects.author import COMMAND_TOOL, AgentState, command_of, to_json
from conversations.events import Authored, Dialect, Kind, Reading

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
_STATES = {
    AgentState.IDLE: "awaiting_user_input",
    AgentState.RUNNING: "running",
    AgentState.WAITING_FOR_CONFIRMATION: "awaiting_user_confirmation",
    AgentState.PAUSED: "paused",
    # A turn that ended normally waits for the user; `finished` would be the task's end.
    AgentState.FINISHED: "awaiting_user_input",
    AgentState.STOPPED: "stopped",
    AgentState.INTERRUPTED: "error",
    AgentState.ERROR: "error",
}
_INTERRUPTED_REASON = "The agent was interrupted."


def read(payload: Mapping[str, object]) -> Reading:
    """Read the columns off one V0 event, ignoring optional fields of the wrong type.

    Without a source an action is the user's, as from a socket, and an observation the environment's.
    """
    action = columns.name(payload.get("action"), columns.TYPE_MAX_CHARS)
    observation = columns.name(payload.get("observation"), columns.TYPE_MAX_CHARS) or ""
    args, extras = columns.fields(payload.get("args")), columns.fields(payload.get("extras"))
    if action:
        kind, text = _ACTION_KINDS.get(action, Kind.OTHER), _action_text(action, args, payload)
    else:
        kind, text = _OBSERVATION_KINDS.get(observation, Kind.OTHER), _observation_text(extras, payload)
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
        tool_call_id=columns.name(call.get("tool_call_id"), columns.ID_MAX_CHARS),
        hidden=args.get("hidden") is True or extras.get("hidden") is True,
        brings_envelope=not payload.keys().isdisjoint(("id", "timestamp", "cause")),
    )


def is_interrupted(payload: Mapping[str, object]) -> bool:
    """Say whether an agent's message is marked as stopped before its end.

    The mark is a key of the event itself: readers of this wire ignore unknown ones there, while some of
    them refuse an unknown key in `args`.
    """
    return payload.get("interrupted") is True


def called_tool(payload: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return name and arguments of a tool call."""
    name = columns.first_text(columns.fields(payload.get("tool_call_metadata")).get("function_name"))
    args = columns.fields(payload.get("args"))
    match payload.get("action"):
        case "run":
            return name or COMMAND_TOOL, {"command": args.get("command", "")}
        case "call_tool_mcp":
            return name or columns.first_text(args.get("name")), columns.fields(args.get("arguments"))
        case _:
            return name, args


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
            return columns.first_text(message) or _mcp_text(args)
        case _:
            return columns.first_text(message, *(args.get(key) for key in _TELLING_ARGS))


def _mcp_text(args: Mapping[str, object]) -> str:
    return f"{columns.first_text(args.get('name'))} {columns.as_json(args.get('arguments', {}))}".strip()


def _observation_text(extras: Mapping[str, object], payload: Mapping[str, object]) -> str:
    if payload.get("observation") == "agent_state_changed":
        state = (columns.first_text(extras.get(key)) for key in ("agent_state", "reason"))
        return ": ".join(filter(None, state)) or columns.first_text(payload.get("message"))
    outputs = columns.fields(extras.get("outputs"))
    return columns.first_text(
        columns.content_text(payload.get("content")), payload.get("message"), outputs.get("content")
    )


class V0Author:
    """Writes V0 events; `id`, `timestamp` and `cause` are left out, for the server lays them over."""

    def user_message(self, *, text: str, image_urls: Sequence[str] = (), event_id: str) -> Authored:
        args = _message_args(text, image_urls=list(image_urls), wait_for_response=False)
        return _authored({"source": "user", "message": text, "action": "message", "args": args})

    def agent_message(self, *, text: str, event_id: str, interrupted: bool = False) -> Authored:
        args = _message_args(text, image_urls=None, wait_for_response=True)
        mark = {"interrupted": True} if interrupted else {}
        return _authored({"source": "agent", "message": text, "action": "message", **mark, "args": args})

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
        if name == COMMAND_TOOL:
            command = command_of(arguments)
            action, message = "run", f"Running command: {command}"
            args = _run_args(command, thought, awaiting_confirmation=awaiting_confirmation)
        else:
            action, message = "call_tool_mcp", _mcp_message(name, arguments)
            args = _mcp_args(name, arguments, thought, awaiting_confirmation=awaiting_confirmation)
        return _authored(
            {
                "source": "agent",
                "message": message,
                "action": action,
                "tool_call_metadata": _tool_call_metadata(name, tool_call_id),
                "args": args,
            }
        )

    def tool_result(
        self,
        *,
        name: str,
        arguments: Mapping[str, object],
        content: str,
        tool_call_id: str,
        event_id: str,
        call_event_id: str,
    ) -> Authored:
        metadata = _tool_call_metadata(name, tool_call_id)
        if name != COMMAND_TOOL:
            extras: dict[str, object] = {"name": name, "arguments": arguments}
            return _answer("mcp", message=content, metadata=metadata, content=content, extras=extras)
        command = command_of(arguments)
        return _answer(
            "run",
            message=f"Command `{command}` executed with exit code 0.",
            metadata=metadata,
            content=content,
            extras={"command": command, "metadata": _run_metadata(), "hidden": False},
            success=True,
        )

    def tool_rejected(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        metadata = _tool_call_metadata(name, tool_call_id)
        return _answer("user_rejected", message=reason, metadata=metadata, content=reason, extras={})

    def tool_failed(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        metadata = _tool_call_metadata(name, tool_call_id)
        return _answer("error", message=reason, metadata=metadata, content=reason, extras={"error_id": ""})

    def state(self, *, state: AgentState, event_id: str, reason: str = "") -> Authored:
        if state is AgentState.INTERRUPTED:
            reason = reason or _INTERRUPTED_REASON
        return _authored(
            {
                "source": "environment",
                "message": "",
                "observation": "agent_state_changed",
                "content": "",
                "extras": {"agent_state": _STATES[state], "reason": reason},
            }
        )

    def error(self, *, code: str, detail: str, event_id: str) -> Authored:
        return _authored(
            {
                "source": "environment",
                "message": detail,
                "observation": "error",
                "content": detail,
                "extras": {"error_id": code},
            }
        )

    def decision(self, *, accepted: bool, event_id: str) -> Authored:
        state = "user_confirmed" if accepted else "user_rejected"
        return _authored(
            {
                "source": "user",
                "message": f"Agent state changed to {state}",
                "action": "change_agent_state",
                "args": {"agent_state": state, "thought": ""},
            }
        )


AUTHOR = V0Author()


def _authored(event: Mapping[str, object]) -> Authored:
    payload = to_json(event)
    return Authored(payload=payload, reading=read(json.loads(payload)))


def _answer(
    observation: str,
    *,
    message: str,
    metadata: Mapping[str, object],
    content: str,
    extras: Mapping[str, object],
    success: bool | None = None,
) -> Authored:
    event: dict[str, object] = {
        "source": "agent",
        "message": message,
        "observation": observation,
        "tool_call_metadata": metadata,
        "content": content,
        "extras": extras,
    }
    return _authored(event if success is None else event | {"success": success})


def _message_args(text: str, *, image_urls: list[str] | None, wait_for_response: bool) -> dict[str, object]:
    return {
        "content": text,
        "file_urls": None,
        "image_urls": image_urls,
        "wait_for_response": wait_for_response,
        "security_risk": -1,
    }


def _run_args(command: str, thought: str, *, awaiting_confirmation: bool) -> dict[str, object]:
    return {
        "command": command,
        "is_input": False,
        "thought": thought,
        "blocking": False,
        "is_static": False,
        "cwd": None,
        "hidden": False,
        "confirmation_state": "awaiting_confirmation" if awaiting_confirmation else "confirmed",
        "security_risk": -1,
    }


def _mcp_args(
    name: str, arguments: Mapping[str, object], thought: str, *, awaiting_confirmation: bool
) -> dict[str, object]:
    args = {"name": name, "arguments": arguments, "thought": thought, "security_risk": -1}
    # The wire's own call_tool_mcp has no such field, and strict readers refuse it: set only when it matters.
    return args | {"confirmation_state": "awaiting_confirmation"} if awaiting_confirmation else args


def _mcp_message(name: str, arguments: Mapping[str, object]) -> str:
    return (
        f"I am interacting with the MCP server with name:\n```\n{name}\n```\n"
        f"and arguments:\n```\n{dict(arguments)}\n```"
    )


def _tool_call_metadata(name: str, tool_call_id: str) -> dict[str, object]:
    return {
        "function_name": name,
        "tool_call_id": tool_call_id,
        "model_response": {},
        "total_calls_in_response": 1,
    }


def _run_metadata() -> dict[str, object]:
    nulls = dict.fromkeys(("username", "hostname", "working_dir", "py_interpreter_path"))
    return {"exit_code": 0, "pid": -1, **nulls, "prefix": "", "suffix": ""}
