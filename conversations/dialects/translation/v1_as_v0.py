"""Events of the V1 wire as payloads of the V0 wire, one to one."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects import columns, file_tool
from conversations.dialects.author import COMMAND_TOOL, command_of
from conversations.dialects.file_tool import FILE_TOOL
from conversations.dialects.v0 import file_calls as v0_file_calls
from conversations.dialects.v0 import payload as v0_payload
from conversations.dialects.v0.actions import UNKNOWN_RISK
from conversations.dialects.v0.observations import OBSERVATIONS
from conversations.dialects.v1 import file_calls, reading
from conversations.dialects.v1.kinds import kind_of
from conversations.events import EventEnvelope, Kind
from conversations.exceptions import InvalidEvent

_SOURCES = frozenset({"agent", "user", "environment"})
_RISKS = {"LOW": 0, "MEDIUM": 1, "HIGH": 2}
_COMMAND_TOOLS = frozenset({COMMAND_TOOL, "execute_bash", "bash"})
_COMMAND_ACTIONS = frozenset({"TerminalAction", "ExecuteBashAction"})
_COMMAND_OBSERVATIONS = frozenset({"TerminalObservation", "ExecuteBashObservation"})
_NOT_ARGUMENTS = frozenset({"summary", "security_risk"})  # models give these beside the tool's own
_STATES = {
    "idle": "awaiting_user_input",
    "running": "running",
    "paused": "paused",
    "waiting_for_confirmation": "awaiting_user_confirmation",
    "finished": "finished",
    "error": "error",
    "stuck": "error",
    "deleting": "stopped",
}


def payload(event: EventEnvelope) -> str:
    """Return the V0 payload of a V1 event: its counterpart on that wire, or else its plain text.

    A tool call is shown with all its arguments, for the user who approves it. The state that follows shows
    whether it waits for that: one V1 event alone does not.
    """
    try:
        return _counterpart(event) or _plain(event)
    except (InvalidEvent, RecursionError):  # nested so deeply that it cannot be written again
        return _plain(event)


def _counterpart(event: EventEnvelope) -> str | None:
    match event["kind"]:
        case Kind.MESSAGE if event["type"] == "ActionEvent":
            return _finish(event)
        case Kind.MESSAGE:
            return _message(event)
        case Kind.TOOL_CALL:
            return _tool_call(event)
        case Kind.TOOL_RESULT:
            return _tool_result(event)
        case Kind.ERROR:
            return _error(event)
        case Kind.SYSTEM:
            return v0_payload.action("system", {"content": _text(event)}, source=_source(event))
        case Kind.SUMMARY:
            return v0_payload.observation("condense", _text(event) or event["type"], source=_source(event))
        case Kind.STATE | Kind.TURN if state := _agent_state(event):
            extras = {"agent_state": state, "reason": ""}
            return v0_payload.observation("agent_state_changed", extras=extras, source="environment")
        case Kind.OTHER if event["type"] == "MessageEvent":
            return v0_payload.notice(_text(event))
        case _ if event["type"] == "CondensationRequest":
            return v0_payload.action("condensation_request", {}, source=_source(event))
    return None


def _plain(event: EventEnvelope) -> str:
    return v0_payload.plain(_text(event) or event["type"], source=_source(event))


def _source(event: EventEnvelope) -> str:
    return event["source"] if event["source"] in _SOURCES else "environment"


def _finish(event: EventEnvelope) -> str:
    members = columns.members(event["payload"])
    args = {"final_thought": _text(event), "thought": columns.content_text(members.get("thought"))}
    name, _ = reading.called_tool(members)
    return v0_payload.action("finish", args, source=_source(event), beside=_metadata(event, name))


def _tool_call(event: EventEnvelope) -> str | None:
    members = columns.members(event["payload"])
    if not members:  # it cannot be read again
        return None
    name, arguments = _called(members)
    thought = columns.content_text(members.get("thought"))
    risk = _RISKS.get(columns.first_text(members.get("security_risk")), UNKNOWN_RISK)
    args: dict[str, object] = {"thought": thought, "security_risk": risk}
    if name == COMMAND_TOOL:
        action = "run"
        args |= {"command": command_of(arguments), "is_input": arguments.get("is_input") is True}
    elif (given := _file_arguments(members, name, arguments)) is not None:
        action, own = v0_file_calls.action(given)
        args |= own
    else:
        action = "call_tool_mcp"
        args |= {"name": name, "arguments": arguments}
    return v0_payload.action(action, args, source=_source(event), beside=_metadata(event, name))


def _file_arguments(
    members: Mapping[str, object], name: str, arguments: Mapping[str, object]
) -> dict[str, object] | None:
    """Return the arguments of a call of the tool for files; None for any other call."""
    if kind_of(members.get("action")) != file_calls.ACTION_KIND:
        return None
    own = {key: value for key, value in arguments.items() if key not in _NOT_ARGUMENTS}
    return file_tool.arguments_in(name, own)


def _called(members: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return name and arguments of a call; unreadable arguments stay text."""
    name, arguments = reading.called_tool(members)
    action = columns.fields(members.get("action"))
    done = {key: value for key, value in action.items() if key != "kind"}
    unread = columns.first_text(columns.fields(members.get("tool_call")).get("arguments"))
    arguments = (
        arguments
        or columns.fields(done.get("data"))
        or done
        or columns.fields(members.get("raw_input"))
        or ({"arguments": unread} if unread not in ("", "{}") else {})
    )
    name = name or columns.first_text(members.get("title"), kind_of(action), kind_of(members))
    is_command = name in _COMMAND_TOOLS or kind_of(action) in _COMMAND_ACTIONS
    return COMMAND_TOOL if is_command else name, arguments


def _tool_result(event: EventEnvelope) -> str:
    members = columns.members(event["payload"])
    name, _ = reading.called_tool(members)
    source, content = _source(event), _text(event)
    if event["type"] == "UserRejectObservation":
        beside = _metadata(event, name)
        return v0_payload.observation("user_rejected", content, source=source, beside=beside)
    seen = columns.fields(members.get("observation"))
    if kind_of(seen) in _COMMAND_OBSERVATIONS:
        given = {**columns.fields(seen.get("metadata")), "exit_code": reading.exit_code(seen)}
        known = OBSERVATIONS["run"].fields["metadata"].members
        met = {key: given[key] for key in known if key in given and known[key].is_met_by(given[key])}
        extras: dict[str, object] = {"command": columns.first_text(seen.get("command")), "metadata": met}
        beside = _metadata(event, COMMAND_TOOL)
        return v0_payload.observation("run", content, extras=extras, source=source, beside=beside)
    beside = _metadata(event, name)
    if files := list(columns.image_urls(seen.get("content"))):
        beside[v0_payload.FILES] = files
    is_error = seen.get("is_error") is True
    if is_error:
        beside[v0_payload.FAILED] = True
    if name == FILE_TOOL and kind_of(seen) == file_calls.OBSERVATION_KIND and (done := file_calls.seen(seen)):
        written = v0_file_calls.result(*done, content, is_error=is_error)
        beside |= written.beside
        return v0_payload.observation(
            written.type, written.content, extras=written.extras, source=source, beside=beside
        )
    return v0_payload.observation("mcp", content, extras={"name": name}, source=source, beside=beside)


def _error(event: EventEnvelope) -> str:
    members = columns.members(event["payload"])
    name, _ = reading.called_tool(members)
    extras = {"error_id": columns.first_text(members.get("code"))}
    return v0_payload.observation(
        "error", _text(event), extras=extras, source=_source(event), beside=_metadata(event, name)
    )


def _metadata(event: EventEnvelope, function_name: str) -> dict[str, object]:
    """Return the members that tie an event to its tool call; none for an event without one."""
    call_id = event["tool_call_id"]
    return {} if call_id is None else v0_payload.call_metadata(function_name, call_id)


def _message(event: EventEnvelope) -> str:
    source = "user" if event["source"] == "user" else "agent"
    args = {"content": _text(event), "wait_for_response": source == "agent"}
    return v0_payload.action("message", args, source=source)


def _text(event: EventEnvelope) -> str:
    """Return the whole readable text: the column is cut if it is long."""
    whole = reading.whole_text(columns.members(event["payload"])) if columns.may_be_cut(event["text"]) else ""
    return whole or event["text"]


def _agent_state(event: EventEnvelope) -> str | None:
    members = columns.members(event["payload"])
    status = members.get("value")
    if members.get("key") == "full_state":
        status = columns.fields(status).get("execution_status")
    elif members.get("key") != "execution_status":
        return None
    return _STATES.get(status) if isinstance(status, str) else None
