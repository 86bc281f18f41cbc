"""Events of the V1 wire for readers of the V0 wire: each one is shown as exactly one, its counterpart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import dialects
from conversations.dialects import AgentState, v0, v1
from conversations.dialects.views import ResultView
from tests.support.wires.event_views import called_tool
from tests.support.wires.v0_wire import DATA, RUN_METADATA, TEXTS, TIME, shown, stored


def v1_recorded() -> list[str]:
    """Return the text of every recorded event of V1, and of every example."""
    recordings = sorted(DATA.glob("openhands-v1/conversation/*/events/*.json"))
    examples = (DATA / "openhands-v1-examples.jsonl").read_text(encoding="utf-8").splitlines()
    return [*(path.read_text(encoding="utf-8") for path in recordings), *examples]


COUNTERPARTS = {
    "MessageEvent": "message",
    "SystemPromptEvent": "system",
    "ACPToolCallEvent": "call_tool_mcp",
    "UserRejectObservation": "user_rejected",
    "AgentErrorEvent": "error",
    "ConversationErrorEvent": "error",
    "ServerErrorEvent": "error",
    "Condensation": "condense",
    "CondensationSummaryEvent": "condense",
    "CondensationRequest": "condensation_request",
}


def counterpart(event: dict[str, Any]) -> str:
    """Return the type of V0 event that a recorded one of V1 is shown as."""
    match event:
        case {"kind": "ActionEvent", "action": {"kind": "FinishAction"}}:
            return "finish"
        case {"kind": "ActionEvent", "tool_name": "terminal" | "execute_bash"}:
            return "run"
        case {"kind": "ActionEvent"}:
            return "call_tool_mcp"
        case {"kind": "ObservationEvent", "tool_name": "terminal" | "execute_bash"}:
            return "run"
        case {"kind": "ObservationEvent"}:
            return "mcp"
        case {"key": "execution_status"} | {"key": "full_state", "value": {"execution_status": _}}:
            return "agent_state_changed"
    return COUNTERPARTS.get(event["kind"], "success")


def test_every_recorded_v1_event_is_shown_as_its_counterpart_of_v0(subtests: pytest.Subtests) -> None:
    for text in v1_recorded():
        with subtests.test(text=text):
            event = stored(text, cause=1)
            read = json.loads(v0.shown(event))
            assert (read["id"], read["timestamp"], read["cause"]) == (5, TIME, 1)
            assert (read.get("action") or read.get("observation")) == counterpart(json.loads(text))
            require_valid(read)


def test_the_text_of_every_recorded_v1_event_is_shown(subtests: pytest.Subtests) -> None:
    for text in [text for text in v1_recorded() if '"ConversationState' not in text]:
        with subtests.test(text=text):
            event = stored(text)
            shown_text = v0.read(json.loads(v0.shown(event))).text
            if event["kind"] == "tool_call":
                continue  # its text is what was thought; see below
            assert shown_text == (event["text"] or event["type"]) or event["type"] == "CondensationRequest"


@pytest.mark.parametrize("text", [text for text in v1_recorded() if '"ActionEvent"' in text])
def test_a_recorded_v1_tool_call_is_shown_with_all_that_it_was_called_with(text: str) -> None:
    recorded, read = json.loads(text), shown(text)
    if read["action"] == "finish":
        return
    arguments = json.loads(recorded["tool_call"]["arguments"])
    given = read["args"]["command"] if read["action"] == "run" else read["args"]["arguments"]
    assert given == (arguments["command"] if read["action"] == "run" else arguments)
    assert read["args"]["thought"] == "\n".join(each["text"] for each in recorded["thought"])
    assert read["tool_call_metadata"] == {
        "function_name": "run" if read["action"] == "run" else recorded["tool_name"],
        "tool_call_id": recorded["tool_call_id"],
        "model_response": {},
        "total_calls_in_response": 1,
    }


def require_valid(read: dict[str, Any]) -> None:
    """Fail unless it is a whole event of the V0 wire: with all fields of its type, and no others."""
    received = v0.received(read)  # refuses unknown fields, and JSON of other types
    again = json.loads(received.payload)
    assert {**read, "source": "user"} == {**read, **again}
    assert isinstance(read["message"], str)
    assert read["source"] in ("agent", "user", "environment")
    assert not received.reading.brings_envelope


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(v1_recorded()), st.data())
def test_a_v1_event_with_any_odd_member_is_shown_as_one_valid_v0_event(
    text: str, data: st.DataObject
) -> None:
    event = json.loads(text)
    owners = [event, *(each for each in event.values() if isinstance(each, dict) and each)]
    owner = data.draw(st.sampled_from(owners))
    name = data.draw(st.sampled_from(sorted(owner)))
    owner[name] = data.draw(ODD)
    if owner is not event or name != "kind":
        require_valid(shown(json.dumps(event)))


def called(**members: Any) -> dict[str, Any]:
    event = {
        "kind": "ActionEvent",
        "source": "agent",
        "thought": [{"type": "text", "text": "Hm."}],
        **members,
    }
    return shown(json.dumps(event))


def test_a_call_that_the_server_asks_about_shows_a_v0_client_what_it_approves() -> None:
    authored = v1.AUTHOR.tool_call(
        name="paint",
        arguments={"colour": "green"},
        thought="It needs paint.",
        tool_call_id="call_1",
        event_id="e",
        awaiting_confirmation=True,
    )
    read = shown(authored.payload)
    assert (read["action"], read["source"]) == ("call_tool_mcp", "agent")
    assert read["args"] == {
        "name": "paint",
        "arguments": {"colour": "green"},
        "thought": "It needs paint.",
        "security_risk": -1,
    }
    assert called_tool(read) == ("paint", {"colour": "green"})


@pytest.mark.parametrize(
    "members",
    [
        {"tool_name": "terminal", "tool_call": {"arguments": '{"command": "rm -r /"}'}},
        {"tool_name": "execute_bash", "action": {"kind": "ExecuteBashAction", "command": "rm -r /"}},
        {"tool_name": "mine", "action": {"kind": "TerminalAction", "command": "rm -r /"}},
    ],
)
def test_a_v1_command_is_shown_as_one_whatever_its_tool_is_called(members: dict[str, Any]) -> None:
    read = called(**members, security_risk="HIGH")
    assert (read["action"], read["message"]) == ("run", "Running command: rm -r /")
    assert (read["args"]["thought"], read["args"]["security_risk"]) == ("Hm.", 2)


@pytest.mark.parametrize(
    ("members", "name", "arguments"),
    [
        ({"tool_name": "f", "action": {"kind": "MCPToolAction", "data": {"a": 1}}}, "f", {"a": 1}),
        ({"tool_name": "f", "action": {"kind": "GlobAction", "pattern": "*"}}, "f", {"pattern": "*"}),
        ({"tool_call": {"name": "f", "arguments": "no JSON"}}, "f", {"arguments": "no JSON"}),
        ({"tool_name": "f", "tool_call": {"arguments": "[" * 100_000}}, "f", {"arguments": "[" * 100_000}),
        ({"tool_name": "f", "tool_call": {"arguments": "{}"}}, "f", {}),
        ({"action": {"kind": "GlobAction"}}, "GlobAction", {}),
        ({"kind": "ACPToolCallEvent", "title": "Read", "raw_input": {"path": "x"}}, "Read", {"path": "x"}),
    ],
)
def test_any_other_v1_call_is_shown_with_name_and_arguments(
    members: dict[str, Any], name: str, arguments: dict[str, Any]
) -> None:
    read = called(**members)
    assert (read["action"], read["args"]["name"]) == ("call_tool_mcp", name)
    assert read["args"]["arguments"] == arguments


def test_the_end_of_a_v1_command_is_shown_with_its_exit_code() -> None:
    seen = {
        "kind": "TerminalObservation",
        "content": [{"type": "text", "text": "a.txt"}],
        "command": None,
        "exit_code": 3,
        "metadata": {"pid": 7, "working_dir": "/w", "username": 5, "unknown": 1},
    }
    read = shown(json.dumps({"kind": "ObservationEvent", "tool_call_id": "c", "observation": seen}))
    assert (read["observation"], read["content"], read["success"]) == ("run", "a.txt", False)
    assert read["extras"]["metadata"] == RUN_METADATA | {"exit_code": 3, "pid": 7, "working_dir": "/w"}
    assert read["tool_call_metadata"]["tool_call_id"] == "c"


@pytest.mark.parametrize(("own", "beside", "shown_code"), [(3, 0, 3), (None, 2, 2), (0, 1, 0)])
def test_the_exit_code_of_a_v1_observation_goes_before_that_of_its_metadata(
    own: int | None, beside: int, shown_code: int
) -> None:
    seen = {"kind": "TerminalObservation", "exit_code": own, "metadata": {"exit_code": beside}}
    payload = json.dumps({"kind": "ObservationEvent", "tool_call_id": "c", "observation": seen})
    assert shown(payload)["extras"]["metadata"]["exit_code"] == shown_code
    view = dialects.view_of(stored(payload))
    assert isinstance(view, ResultView)
    assert view.exit_code == shown_code


def test_a_v1_status_is_shown_as_a_state_of_the_v0_agent(subtests: pytest.Subtests) -> None:
    rows: list[tuple[dict[str, object], str | None]] = [
        ({"key": "execution_status", "value": "idle"}, "awaiting_user_input"),
        ({"key": "execution_status", "value": "running"}, "running"),
        ({"key": "execution_status", "value": "paused"}, "paused"),
        ({"key": "execution_status", "value": "waiting_for_confirmation"}, "awaiting_user_confirmation"),
        ({"key": "execution_status", "value": "finished"}, "finished"),
        ({"key": "execution_status", "value": "error"}, "error"),
        ({"key": "execution_status", "value": "stuck"}, "error"),
        ({"key": "execution_status", "value": "deleting"}, "stopped"),
        ({"key": "full_state", "value": {"execution_status": "running", "stats": {}}}, "running"),
        ({"key": "full_state", "value": {"stats": {}}}, None),
        ({"key": "execution_status", "value": "dancing"}, None),
        ({"key": "execution_status", "value": ["idle"]}, None),
        ({"key": "title", "value": "running"}, None),
    ]
    for event, state in rows:
        with subtests.test(event=event, state=state):
            read = shown(
                json.dumps({"kind": "ConversationStateUpdateEvent", "source": "environment", **event})
            )
            assert read["extras"] == ({} if state is None else {"agent_state": state, "reason": ""})
            assert read["observation"] == ("success" if state is None else "agent_state_changed")


def test_the_end_of_a_v1_turn_is_shown_as_the_state_that_it_brings() -> None:
    authored = v1.AUTHOR.state(state=AgentState.FINISHED, event_id="e")
    read = shown(authored.payload, reading=authored.reading, kind="turn")
    assert read["extras"] == {"agent_state": "finished", "reason": ""}


@pytest.mark.parametrize(
    ("source", "as_message", "as_error"),
    [("user", "user", "user"), ("agent", "agent", "agent"), ("hook", "agent", "environment")],
)
def test_a_v1_source_is_shown_as_one_that_v0_knows(source: str, as_message: str, as_error: str) -> None:
    message = {"kind": "MessageEvent", "source": source, "llm_message": {"content": "Hi"}}
    error = {"kind": "AgentErrorEvent", "source": source, "error": "boom"}
    assert [shown(json.dumps(event))["source"] for event in (message, error)] == [as_message, as_error]


def test_a_long_v1_message_is_shown_to_its_end() -> None:
    authored = v1.AUTHOR.agent_message(text="é" * 100_000 + "!", event_id="e")
    assert len(authored.reading.text) == 50_000
    assert shown(authored.payload)["args"]["content"].endswith("é!")


def test_a_v1_payload_too_deep_to_be_read_again_is_shown_as_its_text() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    reading = dialects.read({"kind": "ConversationStateUpdateEvent", "key": "a", "value": "b"})
    read = shown(f'{{"kind":"ConversationStateUpdateEvent","value":{deep}}}', reading=reading)
    assert (read["observation"], read["content"]) == ("success", "a: b")
