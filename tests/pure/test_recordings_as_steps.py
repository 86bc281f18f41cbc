"""Recorded conversations of either wire, read as the steps of their agents."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conversations.exceptions import InvalidEvent
from sessions_app.agents.replay.recording import (
    RecordedCall,
    RecordedEnd,
    RecordedMessage,
    RecordedResult,
    steps_of,
)

DATA = Path(__file__).parents[1] / "data"
CONVERSATION = DATA / "openhands-v1" / "conversation" / "3c294d959ff64d2d9c530a5849f2c4a0" / "events"


def recorded(name: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text())
    return events


def test_a_run_of_a_v0_agent_is_read_with_its_results_and_pauses() -> None:
    steps = steps_of(recorded("openhands-v0-agent-run"))
    assert Counter(type(step).__name__ for step in steps) == {
        "RecordedMessage": 1,
        "RecordedCall": 21,
        "RecordedEnd": 1,
    }
    assert all(isinstance(step, RecordedEnd | RecordedMessage) or step.result for step in steps)
    first = steps[1]
    assert isinstance(first, RecordedCall)
    assert (first.name, first.arguments) == ("run", {"command": "ls -l /workspace/ponylang__ponyc__0.1"})
    assert first.result is not None
    assert (first.result.exit_code, round(first.result.after_s, 3)) == (0, 0.62)
    assert first.thought


def test_a_thought_goes_with_the_step_that_follows() -> None:
    events: list[dict[str, Any]] = [
        {"action": "think", "source": "agent", "args": {"thought": "Hm."}},
        {"observation": "think", "source": "agent", "content": "Your thought has been logged."},
        {"action": "message", "source": "agent", "args": {"content": "Yes."}},
    ]
    assert steps_of(events) == [RecordedMessage(text="Yes.", reasoning="Hm.")]


def test_the_reasoning_of_a_v1_message_goes_with_it() -> None:
    message = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
    said = {"kind": "MessageEvent", "source": "agent", "llm_message": message}
    assert steps_of([said]) == [RecordedMessage(text="Yes.", reasoning="Hm.")]


def test_a_result_that_its_tool_marks_as_failed_is_one_on_both_wires() -> None:
    call = {"action": "call_tool_mcp", "source": "agent", "args": {"name": "paint", "arguments": {}}}
    failed = {"observation": "mcp", "content": "No paint.", "is_error": True, "extras": {"name": "paint"}}
    seen = {
        "kind": "MCPToolObservation",
        "content": [{"type": "text", "text": "No paint."}],
        "is_error": True,
    }
    v1_call = {
        "kind": "ActionEvent",
        "source": "agent",
        "tool_name": "paint",
        "action": {"kind": "MCPToolAction"},
    }
    logs: list[list[dict[str, Any]]] = [
        [call, failed],
        [v1_call, {"kind": "ObservationEvent", "observation": seen}],
    ]
    for events in logs:
        (step,) = steps_of(events)
        assert isinstance(step, RecordedCall)
        assert step.result == RecordedResult(text="No paint.", exit_code=1)


def test_what_the_user_said_meanwhile_is_not_waited_for() -> None:
    steps = steps_of(recorded("openhands-v0-interactions"))
    assert [(type(step).__name__, isinstance(step, RecordedMessage) and step.is_users) for step in steps] == [
        ("RecordedMessage", True),
        ("RecordedMessage", False),
        ("RecordedMessage", True),
        ("RecordedMessage", False),
        ("RecordedMessage", True),
        ("RecordedEnd", False),
    ]
    assert [round(step.after_s, 1) for step in steps] == [0.0, 1.9, 0.0, 2.4, 0.0, 1.3]


def test_a_v1_conversation_is_read_as_well() -> None:
    events = [json.loads(path.read_text()) for path in sorted(CONVERSATION.glob("event-*.json"))]
    steps = steps_of(events)
    assert [type(step).__name__ for step in steps] == [
        *["RecordedMessage"] * 3,
        "RecordedEnd",
        "RecordedMessage",
        "RecordedEnd",
    ]
    finished = steps[3]
    assert isinstance(finished, RecordedEnd)
    assert finished.text
    assert len(finished.thought.split("\n\n")) >= 3  # it had thought three times


def test_calls_of_v1_tools_have_their_results() -> None:
    events = [json.loads(line) for line in (DATA / "openhands-v1-examples.jsonl").read_text().splitlines()]
    call = next(step for step in steps_of(events) if isinstance(step, RecordedCall))
    assert (call.name, call.arguments, call.thought) == ("run", {"command": "ls"}, "I will look.")
    assert call.result is not None
    assert (call.result.text, call.result.exit_code, round(call.result.after_s, 2)) == ("a.txt", 0, 0.62)


def test_results_find_their_calls_by_id_in_any_order() -> None:
    def call(number: int) -> dict[str, Any]:
        beside = {"tool_call_metadata": {"function_name": "look", "tool_call_id": f"c{number}"}}
        args = {"name": "look", "arguments": {"at": number}}
        return {"action": "call_tool_mcp", "source": "agent", "args": args, **beside}

    def result(number: int) -> dict[str, Any]:
        beside = {"tool_call_metadata": {"function_name": "look", "tool_call_id": f"c{number}"}}
        return {"observation": "mcp", "source": "agent", "content": f"seen {number}", **beside}

    steps = steps_of([call(1), call(2), result(2), result(1), result(3)])
    assert [step.result for step in steps if isinstance(step, RecordedCall)] == [
        RecordedResult(text="seen 1"),
        RecordedResult(text="seen 2"),
    ]


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(InvalidEvent):
        steps_of([{"type": "nothing"}])
