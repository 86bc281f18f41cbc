"""Events of the V0 wire as events of the V1 wire, one to one.

`dialects.v1.filter.SHOWN_AS` chooses the V1 kind; this module writes the event. A hidden event, or one
without a counterpart, becomes a ConversationStateUpdateEvent with the key `v0_event`, which clients ignore.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID, uuid5

from conversations.dialects import attached, columns, file_tool
from conversations.dialects.file_tool import FileEdit
from conversations.dialects.v0 import file_calls as v0_file_calls
from conversations.dialects.v0 import reading
from conversations.dialects.v0.observations import OBSERVATIONS
from conversations.dialects.v0.older import todays_args, todays_extras
from conversations.dialects.v1 import file_calls, state
from conversations.dialects.v1 import payload as v1_payload
from conversations.dialects.v1.author import tool_name
from conversations.dialects.v1.filter import shown_kind
from conversations.dialects.v1.payload import Call, Part, V1Event, image_part, text_part
from conversations.dialects.v1.reading import INTERRUPTED_NOTE
from conversations.events import EventEnvelope, Kind

# The state's field that notes events without a counterpart; a value has `type` and `text`.
NOTE_KEY = "v0_event"

_EVENT_IDS = UUID("0d0b8f0e-3f3c-4a4e-9a9b-6f7a3f5b1c52")
_ANSWERS = (Kind.TOOL_RESULT, Kind.ERROR)
_TIMED_OUT = -1
_RISKS = {0: "LOW", 1: "MEDIUM", 2: "HIGH"}
_NOT_ARGUMENTS = frozenset({"thought", "security_risk", "confirmation_state", "hidden"})
_STATUSES = {
    "init": "idle",
    "loading": "idle",
    "running": "running",
    "awaiting_user_input": "idle",
    "paused": "paused",
    "rate_limited": "paused",
    "stopped": "paused",
    "finished": "finished",
    "rejected": "finished",
    "error": "error",
    "awaiting_user_confirmation": "waiting_for_confirmation",
    "user_confirmed": "running",
    "user_rejected": "idle",
}


def payload(event: EventEnvelope, public_id: str) -> str:
    """Return a V0 event of a conversation as the JSON text of its V1 counterpart."""
    try:
        return _written(_V0Event(event, columns.members(event["payload"]), public_id))
    except RecursionError:  # nested so deeply that it cannot be written again
        return _written(_V0Event(event, {}, public_id))


def event_id(public_id: str, seq: int) -> str:
    """Return the permanent id under which V1 readers know a V0 event."""
    return str(uuid5(_EVENT_IDS, f"{public_id} {seq}"))


def seqs_of(public_id: str, event_ids_shown: Iterable[str], *, last_seq: int) -> dict[str, int]:
    """Return the events, up to `last_seq`, that are known by these ids.

    All ids are looked for in one pass, the newest event first. Each event costs a hash, so query the database
    for stored ids before.
    """
    wanted = {each: found for each in event_ids_shown if (found := _uuid_5(each)) is not None}
    # The first six bytes of the hash are those of the UUID.
    beginnings = {each.bytes[:6] for each in wanted.values()}
    begun = hashlib.sha1(_EVENT_IDS.bytes + f"{public_id} ".encode(), usedforsecurity=False)
    seqs: dict[str, int] = {}
    for seq in range(last_seq, -1, -1):
        if len(seqs) == len(wanted):
            break
        hashed = begun.copy()
        hashed.update(b"%d" % seq)
        if hashed.digest()[:6] in beginnings and (shown := event_id(public_id, seq)) in wanted:
            seqs[shown] = seq
    return seqs


@dataclass(frozen=True)
class _V0Event:
    """An event in translation: its columns, and the readable members of its payload."""

    columns: EventEnvelope
    members: Mapping[str, object]
    public_id: str

    @property
    def id(self) -> str:
        return event_id(self.public_id, self.columns["seq"])

    @property
    def type(self) -> str:
        return self.columns["type"]

    @cached_property
    def text(self) -> str:
        """Return the whole readable text: the column is cut if it is long."""
        text = self.columns["text"]
        return (reading.whole_text(self.members) if columns.may_be_cut(text) else "") or text

    @cached_property
    def args(self) -> Mapping[str, object]:
        return todays_args(columns.fields(self.members.get("args")))

    @cached_property
    def extras(self) -> Mapping[str, object]:
        return todays_extras(columns.fields(self.members.get("extras")))

    @cached_property
    def call(self) -> Call:
        """Return the tool call that the event is, or answers."""
        answered = self.columns["cause"] if self.columns["kind"] in _ANSWERS else None
        place = self.columns["seq"] if answered is None else answered
        metadata = columns.fields(self.members.get("tool_call_metadata"))
        # Only these two say in their fields which tool it is.
        named = {"call_tool_mcp": self.args, "mcp": self.extras}.get(self.type, {})
        tool = columns.first_text(metadata.get("function_name"), named.get("name"), self.type)
        return Call(tool_name(tool), self.columns["tool_call_id"] or f"call_{place}")

    @property
    def action_id(self) -> str:
        """Return the id of the event that this one answers; for answers only."""
        cause = self.columns["cause"]
        return "" if cause is None else event_id(self.public_id, cause)


def _written(event: _V0Event) -> str:
    timestamp = event.columns["timestamp"].removesuffix("Z")
    return v1_payload.written(_counterpart(event), event_id=event.id, timestamp=timestamp)


def _counterpart(event: _V0Event) -> V1Event:
    match shown_kind(event.columns):
        case "MessageEvent":
            return _message(event)
        case "ActionEvent":
            return _action(event)
        case "ObservationEvent":
            return _observation(event)
        case "UserRejectObservation":
            return v1_payload.rejection(event.call, reason=event.text, action_id=event.action_id)
        case "AgentErrorEvent":
            return v1_payload.agent_error(event.call, error=event.text)
        case "ConversationErrorEvent":
            code = columns.first_text(event.extras.get("error_id"), "error")
            return v1_payload.conversation_error(code=code, detail=event.text)
        case "SystemPromptEvent":
            return v1_payload.system_prompt(event.text)
        case "Condensation":
            # the summary says which events are left out, in the numbers of the sender
            summary = event.text or None
            return v1_payload.condensation(forgotten_event_ids=[], response_id=event.id, summary=summary)
        case "CondensationRequest":
            return v1_payload.condensation_request()
        case _:
            return _state_update(event)


def _message(event: _V0Event) -> V1Event:
    if event.columns["kind"] == Kind.OTHER:
        return v1_payload.notice(event.text)
    images = [*_images(event.args), *_images(event.extras)]
    content = [*([text_part(event.text)] if event.text or not images else ()), *images]
    if event.columns["source"] == "user" and event.columns["kind"] == Kind.MESSAGE:
        files = attached.files_in(event.members.get("extended_content"))
        return v1_payload.user_message(content, beside=attached.parts_of(files))
    note = INTERRUPTED_NOTE if reading.is_interrupted(event.members) else ""
    reasoning = columns.first_text(event.members.get("reasoning_content"))
    return v1_payload.agent_message(content, note=note, reasoning=reasoning)


def _images(fields: Mapping[str, object]) -> list[Part]:
    urls = columns.texts(fields.get("image_urls"))
    return [image_part(urls)] if urls else []


def _action(event: _V0Event) -> V1Event:
    action, arguments = _action_and_arguments(event)
    risk = event.args.get("security_risk")
    metadata = columns.fields(event.members.get("tool_call_metadata"))
    answer = columns.fields(metadata.get("model_response"))
    return v1_payload.action(
        event.call,
        arguments=arguments,
        action=action,
        # The calls of one answer of the model share its id.
        response_id=columns.first_text(answer.get("id"), event.id),
        thought="" if event.type == "think" else columns.first_text(event.args.get("thought")),
        security_risk=_RISKS.get(risk, "UNKNOWN") if isinstance(risk, int) else "UNKNOWN",
    )


def _action_and_arguments(event: _V0Event) -> tuple[Part, Mapping[str, object]]:
    """Return the call in V1's form, and the tool's arguments.

    Only these kinds belong to the SDK itself or to all releases of its tools; any other call is shown as a
    tool of an MCP server, with all its arguments.
    """
    args = event.args
    match event.type:
        case "finish":
            return {"kind": "FinishAction", "message": event.text}, {"message": event.text}
        case "think":
            return {"kind": "ThinkAction", "thought": event.text}, {"thought": event.text}
        case "run":
            command = columns.first_text(args.get("command"), event.text)
            arguments: Mapping[str, object] = {
                "command": command,
                "is_input": args.get("is_input") is True,
            }
            return {"kind": "TerminalAction", **arguments, "reset": False}, arguments
        case "read" | "edit" if (given := _file_arguments(event)) is not None:
            return file_calls.action(given), given
        case "call_tool_mcp":
            arguments = columns.fields(args.get("arguments"))
        case _:
            arguments = {name: value for name, value in args.items() if name not in _NOT_ARGUMENTS}
    arguments = arguments or ({"text": event.text} if event.text else {})
    return {"kind": "MCPToolAction", "data": arguments}, arguments


def _file_arguments(event: _V0Event) -> dict[str, object] | None:
    """Return the arguments of a call of the server's own tool for files; None for another agent's."""
    return file_tool.arguments_in(*reading.called_tool(event.members))


def _observation(event: _V0Event) -> V1Event:
    content = [text_part(event.text), *_images(event.extras), *_images(event.members)]
    seen: dict[str, object] = {"content": content, "is_error": event.members.get("is_error") is True}
    match event.type:
        case "think":
            seen = {"kind": "ThinkObservation", **seen}
        case "run":
            seen = {"kind": "TerminalObservation", **seen, **_end_of_command(event)}
        case "read" | "edit" if event.call.tool_name == file_tool.FILE_TOOL:
            command = v0_file_calls.command_in(event.type, event.members)
            seen = file_calls.observation(command, _edit(event), seen)
        case _:
            seen = {"kind": "MCPToolObservation", **seen, "tool_name": event.call.tool_name}
    return v1_payload.observation(event.call, observation=seen, action_id=event.action_id)


def _edit(event: _V0Event) -> FileEdit:
    old, new = (
        text if isinstance(text := event.extras.get(name), str) else None
        for name in ("old_content", "new_content")
    )
    path, is_view = columns.first_text(event.extras.get("path")), event.type == "read"
    return FileEdit(path, is_view or event.extras.get("prev_exist") is True, old, new)


def _end_of_command(event: _V0Event) -> dict[str, object]:
    """Return the known facts of a command's end and place; `command` is required even if it is null."""
    command, given = event.extras.get("command"), columns.fields(event.extras.get("metadata"))
    known = OBSERVATIONS["run"].fields["metadata"].members
    metadata = {
        name: given[name]
        for name, field in known.items()
        if given.get(name) is not None and field.is_met_by(given[name])
    }
    exit_code = {"exit_code": metadata["exit_code"]} if "exit_code" in metadata else {}
    return {
        "command": command if isinstance(command, str) else None,
        **exit_code,
        "timeout": metadata.get("exit_code") == _TIMED_OUT,
        "metadata": metadata,
    }


def _state_update(event: _V0Event) -> V1Event:
    if event.columns["hidden"]:
        return v1_payload.state_update(NOTE_KEY, {"type": event.type, "hidden": True})
    status = _STATUSES.get(columns.first_text(event.extras.get("agent_state")))
    if event.type == "agent_state_changed" and status:
        return state.execution_status(status)
    return v1_payload.state_update(NOTE_KEY, {"type": event.type, "text": event.text})


def _uuid_5(event_id_shown: str) -> UUID | None:
    try:
        read = UUID(event_id_shown)
    except ValueError:
        return None
    return read if read.version == 5 else None
