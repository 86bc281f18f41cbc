"""How the server's own agents write V1 events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from conversations.dialects.author import COMMAND_TOOL, AgentState, command_of, to_json
from conversations.dialects.v1_reading import COMMAND_TOOL_NAME, DEFAULT_REJECTION, INTERRUPTED_NOTE, read
from conversations.events import Authored

STAMP_PLACEHOLDER = "2000-01-01T00:00:00.000000"
"""The timestamp of an authored payload until its append."""

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
        tool_call_id: str,
        event_id: str,
        call_event_id: str,
    ) -> Authored:
        answer = {"observation": _observation(name, arguments, content), "action_id": call_event_id}
        call = {"tool_name": _tool_name(name), "tool_call_id": tool_call_id}
        return _authored("ObservationEvent", event_id, "environment", {**call, **answer})

    def tool_rejected(
        self, *, name: str, reason: str, tool_call_id: str, event_id: str, call_event_id: str
    ) -> Authored:
        answer = {"rejection_reason": reason or DEFAULT_REJECTION, "action_id": call_event_id}
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
    return COMMAND_TOOL_NAME if name == COMMAND_TOOL else name


def _action(name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    if name != COMMAND_TOOL:
        return {"kind": "MCPToolAction", "data": arguments}
    return {"kind": "TerminalAction", "command": command_of(arguments), "is_input": False, "reset": False}


def _observation(name: str, arguments: Mapping[str, object], content: str) -> dict[str, object]:
    shared: dict[str, object] = {"content": _texts(content), "is_error": False}
    if name != COMMAND_TOOL:
        return {"kind": "MCPToolObservation", **shared, "tool_name": name}
    return {
        "kind": "TerminalObservation",
        **shared,
        "command": command_of(arguments),
        "exit_code": 0,
        "timeout": False,
        "metadata": {"exit_code": 0, "pid": -1, "prefix": "", "suffix": ""},
    }
