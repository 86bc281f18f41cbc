"""How the server's own agents write events: one interface, one author per wire."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from conversations.dialects.attached import AttachedFile
from conversations.dialects.command_tool import CommandEnd
from conversations.dialects.file_tool import FileEdit
from conversations.events import Authored, EventEnvelope, Metrics

# The tool that both wires have events of their own for, as for `file_tool.FILE_TOOL`; every other one is
# written as an MCP tool.
COMMAND_TOOL = "run"

# Why a call has no result: the user stopped the agent. Readers know the words; no wire has a field.
CALL_STOPPED = "The call was stopped."
CALL_INTERRUPTED = "The call was interrupted."  # why a call has no result: its loop ended under it

_SURROGATE = re.compile(r"[\ud800-\udfff]")


class AgentState(StrEnum):
    """The states of an agent loop, in words of neither wire."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING_FOR_CONFIRMATION = "waiting_for_confirmation"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    STUCK = "stuck"
    ERROR = "error"


class EventAuthor(Protocol):
    """Writes events of one wire; V0 payloads leave `event_id` and `call_event_id` to the server's columns."""

    def user_message(
        self,
        *,
        text: str,
        image_urls: Sequence[str] | None = (),
        files: Sequence[AttachedFile] = (),
        event_id: str,
    ) -> Authored:
        """Write a message of the user."""

    def agent_message(
        self, *, text: str, event_id: str, interrupted: bool = False, reasoning: str = ""
    ) -> Authored:
        """Write an answer; `interrupted` marks one that was stopped before its end.

        `reasoning` is the model's thought before it.
        """

    def notice(self, *, text: str, event_id: str) -> Authored:
        """Write a notice of the server to the user; no model reads it as its own words."""

    def tool_call(
        self,
        *,
        name: str,
        arguments: Mapping[str, object],
        thought: str = "",
        reasoning: str = "",
        signed: Sequence[Mapping[str, object]] = (),
        tool_call_id: str,
        event_id: str,
        awaiting_confirmation: bool = False,
        client_schema: Mapping[str, object] | None = None,
    ) -> Authored:
        """Write a call of the tool `name`.

        COMMAND_TOOL takes `command`, `is_input`, `timeout` and `reset` from the arguments, as far as the wire
        has them.

        A call of FILE_TOOL with other arguments than its own is written as one of an MCP tool.

        `signed` are blocks of thoughts that the model's server requires back. `client_schema` is the schema
        of the arguments, for a tool that the client runs.
        """

    def tool_result(
        self,
        *,
        name: str,
        arguments: Mapping[str, object],
        content: str,
        exit_code: int = 0,
        end: CommandEnd | None = None,
        files: Sequence[str] = (),
        edit: FileEdit | None = None,
        tool_call_id: str,
        event_id: str,
        call_event_id: str,
        client_schema: Mapping[str, object] | None = None,
    ) -> Authored:
        """Write the result of a call; `name` and `arguments` are those of the call.

        `exit_code` and `end` are those of a COMMAND_TOOL's command; for any other tool the exit code tells
        whether the call failed. `files` are images and other files, as data URLs; `edit` is what a FILE_TOOL
        did to a file; `client_schema` as in `tool_call`.
        """

    def finish(self, *, message: str, thought: str = "", tool_call_id: str, event_id: str) -> Authored:
        """Write the call that ends a task, with the agent's last words."""

    def finished(
        self, *, message: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored | None:
        """Write the answer to `finish`; None for a wire without one."""

    def tool_rejected(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        """Write the user's refusal of the call."""

    def tool_failed(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        """Write that the call has no result: it failed, or a stop or a crash left it unanswered.

        With CALL_STOPPED as its `reason`, readers learn that the user stopped it.
        """

    def state(self, *, state: AgentState, event_id: str, reason: str = "") -> Authored:
        """Write a new state of the loop."""

    def steering(self, *, state: AgentState, event_id: str) -> Authored | None:
        """Write the event that follows a state caused by the user; None if the state says it all."""

    def error(self, *, code: str, detail: str, event_id: str) -> Authored:
        """Write an error of the conversation, not of one call."""

    def condensation(
        self, *, forgotten: Sequence[EventEnvelope], summary: str, offset: int, event_id: str
    ) -> Authored:
        """Write that the model no longer gets these events, and the summary in their place.

        `offset` is the summary's place in the model's input.
        """

    def with_totals(self, payload: str, totals: Metrics, *, model: str, newest_tokens: int) -> str:
        """Return an event of the agent with the totals of its conversation, if the wire shows them in it.

        `newest_tokens` are those of the model's newest call.
        """

    def decision(self, *, accepted: bool, event_id: str) -> Authored:
        """Write the user's decision about the pending call."""


def command_of(arguments: Mapping[str, object]) -> str:
    """Return the command line of a COMMAND_TOOL call; all arguments as JSON if it has none."""
    command = arguments.get("command")
    return command if isinstance(command, str) else to_json(arguments)


def to_json(value: object) -> str:
    """Write compact JSON that encodes as UTF-8 and that any parser takes.

    Escape lone surrogates; write NaN and infinities, which JSON does not have, as null.
    """
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", _finite(value))


def to_strict_json(value: object) -> str:
    """Write compact JSON for readers that refuse half of a surrogate pair: replace it by U+FFFD."""
    return _SURROGATE.sub("\ufffd", _finite(value))


def _finite(value: object) -> str:
    try:
        return _dump(value)
    except ValueError:
        return _dump(json.loads(json.dumps(value, default=_plain), parse_constant=lambda _: None))


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)
