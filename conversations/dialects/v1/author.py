"""Writing V1 events of the server's own agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conversations.dialects import attached, command_tool, file_tool
from conversations.dialects.attached import AttachedFile
from conversations.dialects.author import COMMAND_TOOL, AgentState, command_of
from conversations.dialects.command_tool import CommandEnd
from conversations.dialects.file_tool import FileEdit, edit_by
from conversations.dialects.v1 import client_actions, file_calls, payload
from conversations.dialects.v1.payload import Call, authored, image_part, text_part
from conversations.dialects.v1.reading import COMMAND_TOOL_NAME, INTERRUPTED_NOTE
from conversations.dialects.v1.state import EXECUTION_STATUSES, execution_status
from conversations.events import Authored, EventEnvelope, Metrics

FINISH_TOOL_NAME = "finish"
THINK_TOOL_NAME = "think"


class V1Author:
    """Writes V1 events of release 1.3.0: only its base fields, and no null that may be left out."""

    def user_message(
        self,
        *,
        text: str,
        image_urls: Sequence[str] | None = (),
        files: Sequence[AttachedFile] = (),
        event_id: str,
    ) -> Authored:
        images = [image_part(image_urls)] if image_urls else []
        content = [*([text_part(text)] if text or not images else ()), *images]
        return authored(payload.user_message(content, beside=attached.parts_of(files)), event_id=event_id)

    def agent_message(
        self, *, text: str, event_id: str, interrupted: bool = False, reasoning: str = ""
    ) -> Authored:
        note = INTERRUPTED_NOTE if interrupted else ""
        event = payload.agent_message([text_part(text)], note=note, reasoning=reasoning)
        return authored(event, event_id=event_id)

    def notice(self, *, text: str, event_id: str) -> Authored:
        return authored(payload.notice(text), event_id=event_id)

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
        # On this wire a call awaits confirmation until an event answers it.
        clients_own = _client_action(name, client_schema, arguments)
        event = payload.action(
            Call(tool_name(name), tool_call_id),
            arguments=arguments,
            action=clients_own or _action(name, arguments),
            response_id=event_id,
            thought=thought,
            reasoning=reasoning,
            thinking_blocks=signed,
            summary=client_actions.summary_of(arguments) if clients_own else "",
        )
        return authored(event, event_id=event_id)

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
        is_clients = _client_action(name, client_schema, arguments) is not None
        event = payload.observation(
            Call(tool_name(name), tool_call_id),
            observation=_observation(
                name,
                arguments,
                content,
                exit_code,
                end or CommandEnd(),
                files,
                edit=edit,
                is_clients=is_clients,
            ),
            action_id=call_event_id,
        )
        return authored(event, event_id=event_id)

    def finish(self, *, message: str, thought: str = "", tool_call_id: str, event_id: str) -> Authored:
        call = Call(FINISH_TOOL_NAME, tool_call_id)
        event = payload.finish(call, message=message, response_id=event_id, thought=thought)
        return authored(event, event_id=event_id)

    def finished(
        self, *, message: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored | None:
        call = Call(FINISH_TOOL_NAME, tool_call_id)
        event = payload.finished(call, message=message, action_id=call_event_id)
        return authored(event, event_id=event_id)

    def tool_rejected(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        call = Call(tool_name(name), tool_call_id)
        event = payload.rejection(call, reason=reason, action_id=call_event_id)
        return authored(event, event_id=event_id)

    def tool_failed(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        # This kind names its call only by `tool_call_id`.
        event = payload.agent_error(Call(tool_name(name), tool_call_id), error=reason)
        return authored(event, event_id=event_id)

    def state(self, *, state: AgentState, event_id: str, reason: str = "") -> Authored:
        # This kind has no field for a reason.
        return authored(execution_status(EXECUTION_STATUSES[state]), event_id=event_id)

    def steering(self, *, state: AgentState, event_id: str) -> Authored | None:
        match state:
            case AgentState.PAUSED:
                return authored(payload.pause(), event_id=event_id)
            case AgentState.STOPPED:
                return authored(payload.interrupt(), event_id=event_id)
            case _:
                return None

    def error(self, *, code: str, detail: str, event_id: str) -> Authored:
        return authored(payload.conversation_error(code=code, detail=detail), event_id=event_id)

    def condensation(
        self, *, forgotten: Sequence[EventEnvelope], summary: str, offset: int, event_id: str
    ) -> Authored:
        event = payload.condensation(
            forgotten_event_ids=[event["id"] for event in forgotten],
            response_id=event_id,
            summary=summary,
            summary_offset=offset,
        )
        return authored(event, event_id=event_id)

    def with_totals(self, payload: str, totals: Metrics, *, model: str, newest_tokens: int) -> str:
        # This wire has a separate event for totals.
        return payload

    def decision(self, *, accepted: bool, event_id: str) -> Authored:
        # This wire has no event for a decision, only for the state after it.
        return authored(execution_status("running" if accepted else "idle"), event_id=event_id)


AUTHOR = V1Author()


def tool_name(name: str) -> str:
    """Return this wire's name of a tool."""
    return COMMAND_TOOL_NAME if name == COMMAND_TOOL else name


def _action(name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    if name == THINK_TOOL_NAME and isinstance(arguments.get("thought"), str):
        return {"kind": "ThinkAction", "thought": arguments["thought"]}
    if (given := file_tool.arguments_in(name, arguments)) is not None:
        return file_calls.action(given)
    if name != COMMAND_TOOL:
        return {"kind": "MCPToolAction", "data": arguments}
    seconds = command_tool.timeout_of(arguments)
    return {
        "kind": "TerminalAction",
        "command": command_of(arguments),
        "is_input": command_tool.is_input(arguments),
        **({} if seconds is None else {"timeout": seconds}),
        "reset": command_tool.resets(arguments),
    }


def _client_action(
    name: str, schema: Mapping[str, object] | None, arguments: Mapping[str, object]
) -> dict[str, object] | None:
    return None if schema is None else client_actions.action_of(name, schema, arguments)


def _observation(
    name: str,
    arguments: Mapping[str, object],
    content: str,
    exit_code: int,
    end: CommandEnd,
    files: Sequence[str],
    *,
    edit: FileEdit | None,
    is_clients: bool,
) -> dict[str, object]:
    images = [image_part(files)] if files else []
    is_error = exit_code != 0 and not end.has_timed_out
    shared: dict[str, object] = {"content": [text_part(content), *images], "is_error": is_error}
    if is_clients:
        return {"kind": client_actions.OBSERVATION_KIND, **shared}
    if name == THINK_TOOL_NAME and isinstance(arguments.get("thought"), str):
        return {"kind": "ThinkObservation", **shared}
    if (given := file_tool.arguments_in(name, arguments)) is not None:
        return file_calls.observation(*edit_by(given, edit), shared)
    if name != COMMAND_TOOL:
        return {"kind": "MCPToolObservation", **shared, "tool_name": name}
    return {
        "kind": "TerminalObservation",
        **shared,
        "command": command_of(arguments),
        "exit_code": exit_code,
        "timeout": end.has_timed_out,
        "metadata": {**command_tool.metadata_of(exit_code, end), "prefix": "", "suffix": ""},
    }
