"""Every place of an event where a sender may put text, on both wires."""

from __future__ import annotations

import json
from typing import Any

from conversations.events import EventEnvelope
from tests.support.wires.v0_wire import stored


def _v0_action(name: str, /, *, beside: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
    return {"source": "agent", "action": name, "args": args, **(beside or {})}


def _v0_observation(name: str, content: str = "", /, **extras: Any) -> dict[str, Any]:
    return {"source": "agent", "observation": name, "content": content, "extras": extras}


def _v1(kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "id": "an-id",
        "timestamp": "2025-11-20T08:49:31.898815",
        "source": "agent",
        **fields,
    }


def _v1_call(tool: str, action: dict[str, Any], **fields: Any) -> dict[str, Any]:
    call = {"id": "c", "name": tool, "arguments": json.dumps(action), "origin": "completion"}
    return _v1("ActionEvent", thought=[], action=action, tool_name=tool, tool_call=call, **fields)


def _v1_result(tool: str, observation: dict[str, Any]) -> dict[str, Any]:
    return _v1("ObservationEvent", tool_name=tool, observation=observation)


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def blocks(text: str) -> dict[str, EventEnvelope]:
    """Return events that show all of a text, by the name of the place where it stands."""
    called = {"tool_call_metadata": {"function_name": "think"}}
    payloads = {
        "v0 user message": _v0_action("message", content=text) | {"source": "user"},
        "v0 agent message": _v0_action("message", content=text),
        "v0 finish": _v0_action("finish", final_thought=text),
        "v0 system": _v0_action("system", content=text),
        "v0 summary": _v0_action("condensation", summary=text),
        "v0 thought": _v0_action("run", command="ls", thought=text),
        "v0 command": _v0_action("run", command=text),
        "v0 code": _v0_action("run_ipython", code=text),
        "v0 think": _v0_action("think", thought=text, beside=called),
        "v0 argument": _v0_action("call_tool_mcp", name="fetch", arguments={"a": {"b": text}, "c": 1}),
        "v0 argument's name": _v0_action("call_tool_mcp", name="fetch", arguments={text: {"b": 1}, "c": 1}),
        "v0 old text": _v0_action("edit", path="a", old_str=text, new_str="x"),
        "v0 new text": _v0_action("edit", path="a", old_str="x", new_str=text),
        "v0 file": _v0_action("write", path="a", content=text),
        "v0 output": _v0_observation("run", text, metadata={"exit_code": 1}),
        "v0 page": _v0_observation("browse", text, url="u"),
        "v0 new content": _v0_observation("edit", "", path="a", old_content="", new_content=text),
        "v0 diff": _v0_observation("edit", "", path="a", diff="@@ -1 +1 @@\n" + _prefixed(text)),
        "v0 error": _v0_observation("error", text),
        "v0 rejection": _v0_observation("user_rejected", text),
        "v0 reason": _v0_observation("agent_state_changed", agent_state="error", reason=text),
        "v0 unknown": _v0_observation("of_tomorrow", text),
        "v1 message": _v1("MessageEvent", llm_message={"role": "assistant", "content": [_part(text)]}),
        "v1 reasoning": _v1("MessageEvent", llm_message={"content": [], "reasoning_content": text}),
        "v1 thinking": _v1_call("t", {"kind": "A"}, thinking_blocks=[{"type": "thinking", "thinking": text}]),
        "v1 thought": _v1_call("t", {"kind": "A"}) | {"thought": [_part(text)]},
        "v1 command": _v1_call("terminal", {"kind": "TerminalAction", "command": text}),
        "v1 argument": _v1_call("t", {"kind": "MCPToolAction", "data": {"a": {"b": text}, "c": 1}}),
        "v1 new text": _v1_call("file_editor", {"kind": "FileEditorAction", "old_str": "", "new_str": text}),
        "v1 output": _v1_result("t", {"kind": "O", "content": [_part(text)]}),
        "v1 rejection": _v1("UserRejectObservation", tool_name="t", rejection_reason=text),
        "v1 agent error": _v1("AgentErrorEvent", tool_name="t", tool_call_id="c", error=text),
        "v1 error": _v1("ConversationErrorEvent", code="c", detail=text),
        "v1 system": _v1("SystemPromptEvent", system_prompt=_part(text), tools=[]),
        "v1 summary": _v1("Condensation", summary=text),
        "v1 state": _v1("ConversationStateUpdateEvent", key="k", value={"a": text}),
        "v1 hook": _v1("HookExecutionEvent", hook_command="c", stdout=text),
        "v1 acp input": _v1("ACPToolCallEvent", tool_call_id="c", title="t", raw_input={"a": text}),
        "v1 acp output": _v1("ACPToolCallEvent", tool_call_id="c", title="t", raw_output=text),
        "v1 unknown": _v1("EventOfTomorrow", text=text),
    }
    return {place: _stored(payload) for place, payload in payloads.items()}


def lines(text: str) -> dict[str, EventEnvelope]:
    """Return events that show a text on one line, by the name of the place where it stands."""
    named = {"tool_call_metadata": {"function_name": text}}
    task = {"title": "t", "status": "todo", "notes": ""}
    payloads = {
        "v0 path": _v0_action("read", path=text),
        "v0 edited path": _v0_action("edit", path=text, old_str="a", new_str="b"),
        "v0 address": _v0_action("browse", url=text),
        "v0 tool": _v0_action("call_tool_mcp", name=text, arguments={}),
        "v0 function": _v0_action("of_tomorrow", beside=named) | {"action": "delegate", "args": {}},
        "v0 task": _v0_action("task_tracking", command="plan", task_list=[task | {"title": text}]),
        "v0 task's status": _v0_action("task_tracking", command="plan", task_list=[task | {"status": text}]),
        "v0 task's notes": _v0_observation("task_tracking", task_list=[task | {"notes": text}]),
        "v0 state": _v0_observation("agent_state_changed", agent_state=text),
        "v0 error's code": _v0_observation("error", "x", error_id=text),
        "v0 image": _v0_action("message", content="x", image_urls=[text]),
        "v0 screenshot": _v0_observation("browse", "x", screenshot=text),
        "v0 type": _v0_observation(text, "x"),
        "v1 sender": _v1("MessageEvent", llm_message={"content": [_part("x")]}, sender=text),
        "v1 image": _v1("MessageEvent", llm_message={"content": [{"type": "image", "image_urls": [text]}]}),
        "v1 tool": _v1_call(text, {"kind": "OfTomorrowAction", "a": 1}),
        "v1 result's tool": _v1_result(text, {"kind": "O", "content": [_part("x")]}),
        "v1 summary of a call": _v1_call("t", {"kind": "A"}, summary=text),
        "v1 path": _v1_call("file_editor", {"kind": "FileEditorAction", "command": "view", "path": text}),
        "v1 screenshot": _v1_result("t", {"kind": "BrowserObservation", "screenshot_data": f"data:{text}"}),
        "v1 code": _v1("ConversationErrorEvent", code=text, detail="x"),
        "v1 key": _v1("ConversationStateUpdateEvent", key=text, value=1),
        "v1 value": _v1("ConversationStateUpdateEvent", key="k", value=text),
        "v1 status": _v1("ConversationStateUpdateEvent", key="execution_status", value=text),
        "v1 model": _v1("ConversationStateUpdateEvent", key="llm", value={"model": text}),
        "v1 hook": _v1("HookExecutionEvent", hook_command=text),
        "v1 title": _v1("ACPToolCallEvent", tool_call_id="c", title=text),
        "v1 kind": _v1(text.replace(".", "-"), text="x"),
    }
    return {place: _stored(payload) for place, payload in payloads.items()}


def hidden_places(text: str) -> dict[str, EventEnvelope]:
    """Return events that keep a text where only programs read it."""
    payload = _v0_action("message", content="x")
    return {
        "the event's id": _stored(payload, id=text),
        "the call's id": _stored(payload, tool_call_id=text),
        "the source": _stored(payload, source=text),
    }


def _stored(payload: dict[str, Any], **columns: Any) -> EventEnvelope:
    return stored(json.dumps(payload), **columns)


def _prefixed(text: str) -> str:
    return "\n".join(f"+{line}" for line in text.split("\n"))
