"""What the server writes over the V1 wire: every client of every release can read it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conversations import dialects
from conversations.dialects import AgentState, v1
from conversations.dialects.v1.payload import Call, V1Event
from conversations.events import Kind, Metrics
from tests.support.wires.v1_wire import EXAMPLES, require_strict

EVENT_ID = "0f0e0d0c-0b0a-4908-8706-050403020100"
ACTION_ID = "b2443f28-21d3-45d3-91b7-d2ac7c0e5238"
CALL = Call("paint", "call_1")
METRICS = Metrics(accumulated_cost=0.5, prompt_tokens=100, completion_tokens=10)

EVENTS: dict[str, tuple[V1Event, Kind, str]] = {
    "system_prompt": (v1.system_prompt("Be kind."), Kind.SYSTEM, "Be kind."),
    "user_message": (
        v1.user_message([v1.text_part("Hi"), v1.image_part(["data:,x"])], sender="bob"),
        Kind.MESSAGE,
        "Hi",
    ),
    "agent_message": (v1.agent_message([v1.text_part("Hello")]), Kind.MESSAGE, "Hello"),
    "action": (
        v1.action(
            CALL,
            arguments={"colour": "green"},
            action={"kind": "MCPToolAction", "data": {"colour": "green"}},
            response_id="r1",
            thought="It needs paint.",
            security_risk="HIGH",
        ),
        Kind.TOOL_CALL,
        "It needs paint.",
    ),
    "action that cannot be carried out": (
        v1.action(CALL, arguments="{", action=None, response_id="r1"),
        Kind.TOOL_CALL,
        "paint {",
    ),
    "observation": (
        v1.observation(
            CALL,
            observation={"kind": "ThinkObservation", "content": [v1.text_part("Green.")], "is_error": False},
            action_id=ACTION_ID,
        ),
        Kind.TOOL_RESULT,
        "Green.",
    ),
    "finish": (v1.finish(CALL, message="Done.", response_id="r1"), Kind.MESSAGE, "Done."),
    "finished": (v1.finished(CALL, message="Done.", action_id=ACTION_ID), Kind.TOOL_RESULT, "Done."),
    "rejection": (v1.rejection(CALL, reason="No.", action_id=ACTION_ID), Kind.TOOL_RESULT, "No."),
    "agent_error": (v1.agent_error(CALL, error="No paint."), Kind.ERROR, "No paint."),
    "conversation_error": (v1.conversation_error(code="Boom", detail="It broke"), Kind.ERROR, "It broke"),
    "pause": (v1.pause(), Kind.STATE, ""),
    "condensation_request": (v1.condensation_request(), Kind.OTHER, ""),
    "condensation": (
        v1.condensation(
            forgotten_event_ids=[ACTION_ID], response_id="r1", summary="Painted.", summary_offset=0
        ),
        Kind.SUMMARY,
        "Painted.",
    ),
    "bare condensation": (
        v1.condensation(forgotten_event_ids=[], response_id="r1"),
        Kind.SUMMARY,
        "",
    ),
    "execution_status": (v1.execution_status("stuck"), Kind.STATE, "stuck"),
    "stats": (v1.stats({"agent": v1.snapshot(METRICS, model="m")}), Kind.STATE, "stats"),
    "full_state": (v1.full_state({"execution_status": "idle"}), Kind.STATE, "full_state"),
    "state_update": (v1.state_update("title", "Paint"), Kind.STATE, "title: Paint"),
}


def test_each_kind_that_the_server_writes_is_one_that_a_strict_client_takes(
    subtests: pytest.Subtests,
) -> None:
    for name, (event, kind, text) in EVENTS.items():
        with subtests.test(name):
            authored = v1.authored(event, event_id=EVENT_ID)
            require_strict(json.loads(authored.payload))
            assert (authored.reading.kind, authored.reading.text) == (kind, text)
            assert authored.reading.event_id == EVENT_ID


@pytest.mark.parametrize(
    ("event", "kind"), [(v1.interrupt(), "InterruptEvent"), (v1.server_error(code="c", detail="d"), None)]
)
def test_kinds_of_later_releases_are_written_as_their_examples_are(event: V1Event, kind: str | None) -> None:
    (example,) = (line for line in map(json.loads, EXAMPLES) if line["kind"] == (kind or "ServerErrorEvent"))
    written = json.loads(v1.written(event, event_id=EVENT_ID, timestamp=example["timestamp"]))
    assert written.keys() == example.keys()
    assert (written["kind"], written["source"]) == (example["kind"], example["source"])


@pytest.mark.parametrize("state", AgentState)
def test_every_state_of_an_agent_has_a_status_that_clients_know(state: AgentState) -> None:
    require_strict(json.loads(v1.AUTHOR.state(state=state, event_id=EVENT_ID).payload))


def test_the_whole_state_leaves_out_nulls_and_what_is_no_state() -> None:
    information: dict[str, object] = {
        "id": "i",
        "execution_status": "idle",
        "security_analyzer": None,
        "title": "T",
        "metrics": {},
        "created_at": "c",
        "updated_at": "u",
    }
    assert v1.full_state(information).fields == {
        "key": "full_state",
        "value": {"id": "i", "execution_status": "idle"},
    }


def test_stats_are_a_snapshot_as_in_the_wires_example() -> None:
    (example,) = (line for line in map(json.loads, EXAMPLES) if line.get("key") == "stats")
    (snapshot,) = example["value"]["usage_to_metrics"].values()
    written = v1.snapshot(METRICS, model="m")
    assert written.keys() == snapshot.keys()
    usage: Any = written["accumulated_token_usage"]
    assert usage.keys() == snapshot["accumulated_token_usage"].keys()
    assert (written["accumulated_cost"], usage["prompt_tokens"], usage["completion_tokens"]) == (0.5, 100, 10)


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        (datetime(2025, 11, 20, 8, 49, 31, tzinfo=UTC), "2025-11-20T08:49:31.000000"),
        (datetime(2025, 11, 20, 8, 49, 31, 5, timezone(timedelta(hours=2))), "2025-11-20T06:49:31.000005"),
    ],
)
def test_times_are_written_without_a_zone_and_with_six_digits(moment: datetime, written: str) -> None:
    assert v1.stamp(moment) == written


@given(st.text(max_size=20))
@example("a\ud800b")
@example("\udfff")
def test_half_of_a_surrogate_pair_is_never_sent(text: str) -> None:
    authored = v1.AUTHOR.tool_call(
        name="paint",
        arguments={text: [text]},
        thought=text,
        tool_call_id="call_1",
        event_id=EVENT_ID,
    )
    require_strict(json.loads(authored.payload))
    assert authored.reading == dialects.read(json.loads(authored.payload))
