"""Writing V0 events of the server's own agents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from conversations.dialects import attached, command_tool, file_tool
from conversations.dialects.attached import AttachedFile
from conversations.dialects.author import COMMAND_TOOL, AgentState, command_of
from conversations.dialects.command_tool import CommandEnd
from conversations.dialects.file_tool import FileEdit, edit_by
from conversations.dialects.v0 import file_calls
from conversations.dialects.v0 import payload as v0_payload
from conversations.dialects.v0.reading import number_of, read
from conversations.events import Authored, EventEnvelope, Metrics

_STATES = {
    AgentState.IDLE: "awaiting_user_input",
    AgentState.RUNNING: "running",
    AgentState.WAITING_FOR_CONFIRMATION: "awaiting_user_confirmation",
    AgentState.PAUSED: "paused",
    # A turn that ended normally waits for the user; `finished` would be the task's end.
    AgentState.FINISHED: "awaiting_user_input",
    AgentState.STOPPED: "stopped",
    AgentState.INTERRUPTED: "error",
    AgentState.STUCK: "error",
    AgentState.ERROR: "error",
}
_INTERRUPTED_REASON = "The agent was interrupted."
# This wire's words for errors, by the names of the other wire; other errors have none here.
_ERROR_IDS = {
    "LLMAuthenticationError": "STATUS$ERROR_LLM_AUTHENTICATION",
    "LLMRateLimitError": "CHAT_INTERFACE$AGENT_RATE_LIMITED_STOPPED_MESSAGE",
    "LLMServiceUnavailableError": "STATUS$ERROR_LLM_SERVICE_UNAVAILABLE",
    "LLMContentPolicyViolationError": "STATUS$ERROR_LLM_CONTENT_POLICY_VIOLATION",
}
_NOTHING: Mapping[str, object] = {}


class V0Author:
    """Writes V0 events without `id`, `timestamp` and `cause`, which the server adds for readers."""

    def user_message(
        self,
        *,
        text: str,
        image_urls: Sequence[str] | None = (),
        files: Sequence[AttachedFile] = (),
        event_id: str,
    ) -> Authored:
        urls = None if image_urls is None else list(image_urls)
        # As the thoughts of an answer: readers ignore unknown keys of the event.
        beside = {"extended_content": attached.parts_of(files)} if files else {}
        return _action("message", {"content": text, "image_urls": urls}, source="user", beside=beside)

    def agent_message(
        self, *, text: str, event_id: str, interrupted: bool = False, reasoning: str = ""
    ) -> Authored:
        args = {"content": text, "wait_for_response": True}
        beside: dict[str, object] = {"interrupted": True} if interrupted else {}
        if reasoning:  # readers ignore unknown keys of the event, and some refuse them in `args`
            beside["reasoning_content"] = reasoning
        return _action("message", args, beside=beside)

    def notice(self, *, text: str, event_id: str) -> Authored:
        return _read_back(v0_payload.notice(text))

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
        # Only `run` has such a field, and strict readers refuse it: set only when it matters.
        state = {"confirmation_state": "awaiting_confirmation"} if awaiting_confirmation else {}
        beside = v0_payload.call_metadata(name, tool_call_id)
        if reasoning:
            beside["reasoning_content"] = reasoning
        if signed:
            beside["thinking_blocks"] = list(signed)
        if name == COMMAND_TOOL:
            options = command_tool.without_defaults(arguments)
            types = {"is_input": True} if options.pop("is_input", False) else {}
            run = {"command": command_of(arguments), **types, "thought": thought, **state}
            # Strict readers refuse the others in `args`.
            return _action("run", run, beside={**beside, **options})
        if (given := file_tool.arguments_in(name, arguments)) is not None:
            type_, args = file_calls.action(given)
            return _action(type_, {**args, "thought": thought, **state}, beside=beside)
        args = {"name": name, "arguments": arguments, "thought": thought, **state}
        return _action("call_tool_mcp", args, beside=beside)

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
        beside = v0_payload.call_metadata(name, tool_call_id)
        if files:  # readers ignore unknown keys of the event, and some refuse them in `extras`
            beside[v0_payload.FILES] = list(files)
        if exit_code and name != COMMAND_TOOL:
            beside[v0_payload.FAILED] = True
        if (given := file_tool.arguments_in(name, arguments)) is not None:
            written = file_calls.result(*edit_by(given, edit), content, is_error=bool(exit_code))
            return _observation(
                written.type, written.content, extras=written.extras, beside={**beside, **written.beside}
            )
        if name != COMMAND_TOOL:
            extras: dict[str, object] = {"name": name, "arguments": arguments}
            return _observation("mcp", content, extras=extras, beside=beside)
        metadata = command_tool.metadata_of(exit_code, end or CommandEnd())
        extras = {"command": command_of(arguments), "metadata": metadata}
        return _observation("run", content, extras=extras, beside=beside)

    def finish(self, *, message: str, thought: str = "", tool_call_id: str, event_id: str) -> Authored:
        args = {"final_thought": message, "outputs": {}, "thought": thought}
        return _action("finish", args, beside=v0_payload.call_metadata("finish", tool_call_id))

    def finished(
        self, *, message: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored | None:
        return None

    def tool_rejected(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        return _observation("user_rejected", reason, beside=v0_payload.call_metadata(name, tool_call_id))

    def tool_failed(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        return _observation("error", reason, beside=v0_payload.call_metadata(name, tool_call_id))

    def state(self, *, state: AgentState, event_id: str, reason: str = "") -> Authored:
        if state is AgentState.INTERRUPTED:
            reason = reason or _INTERRUPTED_REASON
        extras = {"agent_state": _STATES[state], "reason": reason}
        return _observation("agent_state_changed", extras=extras, source="environment")

    def steering(self, *, state: AgentState, event_id: str) -> Authored | None:
        return None

    def error(self, *, code: str, detail: str, event_id: str) -> Authored:
        return _observation(
            "error", detail, extras={"error_id": _ERROR_IDS.get(code, code)}, source="environment"
        )

    def condensation(
        self, *, forgotten: Sequence[EventEnvelope], summary: str, offset: int, event_id: str
    ) -> Authored:
        args = {
            "forgotten_event_ids": [number_of(event) for event in forgotten],
            "summary": summary,
            "summary_offset": offset,
        }
        return _action("condensation", args)

    def with_totals(self, payload: str, totals: Metrics, *, model: str, newest_tokens: int) -> str:
        return v0_payload.with_metrics(payload, totals, model=model, newest_tokens=newest_tokens)

    def decision(self, *, accepted: bool, event_id: str) -> Authored:
        state = "user_confirmed" if accepted else "user_rejected"
        return _action("change_agent_state", {"agent_state": state}, source="user")


AUTHOR = V0Author()


def _action(
    name: str,
    args: Mapping[str, object],
    *,
    source: str = "agent",
    beside: Mapping[str, object] = _NOTHING,
) -> Authored:
    return _read_back(v0_payload.action(name, args, source=source, beside=beside))


def _observation(
    name: str,
    content: str = "",
    *,
    extras: Mapping[str, object] = _NOTHING,
    source: str = "agent",
    beside: Mapping[str, object] = _NOTHING,
) -> Authored:
    return _read_back(v0_payload.observation(name, content, extras=extras, source=source, beside=beside))


def _read_back(payload: str) -> Authored:
    return Authored(payload=payload, reading=read(json.loads(payload)))
