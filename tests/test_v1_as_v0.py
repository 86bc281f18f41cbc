"""Events of the V1 wire for readers of the V0 wire: each one is shown as exactly one, with its text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conversations import dialects
from conversations.dialects import AgentState, v0, v1
from conversations.events import Kind
from tests.v0_wire import DATA, TIME, shown, stored


def v1_recorded() -> list[str]:
    """Return the text of every recorded event of V1, and of every example."""
    recordings = sorted(DATA.glob("openhands-v1/conversation/*/events/*.json"))
    examples = (DATA / "openhands-v1-examples.jsonl").read_text(encoding="utf-8").splitlines()
    return [*(path.read_text(encoding="utf-8") for path in recordings), *examples]


V1_KINDS = {
    Kind.MESSAGE: ("action", "message", "args"),
    Kind.ERROR: ("observation", "error", "extras"),
}


@pytest.mark.parametrize("text", v1_recorded())
def test_every_recorded_v1_event_is_shown_as_one_v0_event_with_its_text(text: str) -> None:
    event = stored(text, cause=1)
    read = json.loads(v0.shown(event))
    key, name, members = V1_KINDS.get(Kind(event["kind"]), ("observation", "success", "extras"))
    if read.get("observation") == "agent_state_changed":
        assert (event["kind"], read["message"]) == ("state", "")
        return
    assert (read["id"], read["timestamp"], read["cause"], read[key]) == (5, TIME, 1, name)
    assert read["message"] == (event["text"] or event["type"])
    assert read["message"] == (read["args"]["content"] if key == "action" else read["content"])
    assert isinstance(read[members], dict)
    assert not v0.received(read).reading.brings_envelope


@pytest.mark.parametrize(
    ("event", "state"),
    [
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
    ],
)
def test_a_v1_status_is_shown_as_a_state_of_the_v0_agent(event: dict[str, Any], state: str | None) -> None:
    read = shown(json.dumps({"kind": "ConversationStateUpdateEvent", "source": "environment", **event}))
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
