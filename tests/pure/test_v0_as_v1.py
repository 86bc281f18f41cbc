"""Events of the V0 wire for readers of the V1 wire: each one is shown as exactly one, its counterpart."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import dialects
from conversations.dialects import AgentState, v0, v1
from conversations.dialects.v0.actions import ACTIONS
from conversations.dialects.v0.observations import OBSERVATIONS
from conversations.dialects.v1.filter import SHOWN_AS, is_met
from conversations.dialects.v1.kinds import KINDS
from conversations.events import EventEnvelope, Kind
from conversations.exceptions import UnknownKind
from tests.support.wires.event_views import called_tool, is_interrupted
from tests.support.wires.v0_wire import EXAMPLES as V0_EXAMPLES
from tests.support.wires.v0_wire import (
    FIRST_ACTIONS,
    FIRST_OBSERVATIONS,
    RECORDINGS,
    RUN_METADATA,
    TEXTS,
    TIME,
    recorded,
    stored,
    values_of,
)
from tests.support.wires.v1_wire import EXAMPLES, require_strict, texts_in
from tests.support.wires.v1_wire import RECORDINGS as V1_RECORDINGS

CONVERSATION = "3c294d959ff64d2d9c530a5849f2c4a0"


def shown(payload: str | dict[str, Any], **columns: Any) -> dict[str, Any]:
    """Return what a strict client of V1 is shown of a V0 event."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return shown_event(stored(text, **columns))


def shown_event(event: EventEnvelope) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(v1.shown(event, CONVERSATION))
    require_strict(read)
    assert read["kind"] == v1.shown_kind(event)
    assert read["id"] == v1.shown_id(event, CONVERSATION)
    return read


def shown_text(read: dict[str, Any]) -> str:
    return dialects.read(read).text


def logs() -> list[list[EventEnvelope]]:
    """Return each recording as the log would have it, with its causes as seqs."""
    texts = [
        *([json.dumps(event) for event in json.loads(path.read_text())] for path in RECORDINGS),
        V0_EXAMPLES,
    ]
    return [list(map(numbered, log)) for log in texts]


def numbered(text: str) -> EventEnvelope:
    reading = dialects.read(json.loads(text))
    assert reading.wire_id is not None
    return stored(text, seq=reading.wire_id, cause=reading.cause_wire_id)


# Events of the V1 wire


def test_every_v1_event_is_shown_as_it_was_stored(subtests: pytest.Subtests) -> None:
    for text in [*EXAMPLES, *V1_RECORDINGS]:
        with subtests.test(text=text):
            assert v1.shown(stored(text), CONVERSATION) == text


def test_a_v1_payload_is_never_decoded() -> None:
    event = stored(EXAMPLES[0], type="PauseEvent", id="its-own") | {"payload": "{no JSON"}
    assert v1.shown(event, CONVERSATION) == "{no JSON"
    assert v1.shown_id(event, CONVERSATION) == "its-own"


# Recordings of the V0 wire


@pytest.mark.parametrize("log", logs())
def test_a_recording_is_shown_one_to_one_and_every_answer_names_an_event_that_is_shown(
    log: list[EventEnvelope],
) -> None:
    read = [shown_event(event) for event in log]
    kinds = {each["id"]: each["kind"] for each in read}
    assert len(kinds) == len(log)
    causes = {event["seq"] for event in log}
    for event, each in zip(log, read, strict=True):
        if "action_id" in each and event["cause"] in causes:
            assert kinds[each["action_id"]] == "ActionEvent"


@pytest.mark.parametrize("log", logs())
def test_calls_and_answers_of_a_recording_carry_the_same_tool_call_id(log: list[EventEnvelope]) -> None:
    read = [shown_event(event) for event in log]
    calls = {each["id"]: each["tool_call_id"] for each in read if each["kind"] == "ActionEvent"}
    answers = [each for each in read if each.get("action_id") in calls]
    assert all(each["tool_call_id"] == calls[each["action_id"]] for each in answers)
    assert answers or not any(event["kind"] == "tool_result" for event in log)


STATES = ("agent_state_changed", "condensation_request", "null")


def test_the_text_of_every_recorded_v0_event_is_shown(subtests: pytest.Subtests) -> None:
    for text in recorded():
        with subtests.test(text=text):
            event = numbered(text)
            read = shown_event(event)
            if event["type"] in STATES or event["kind"] == "tool_call":
                continue  # a state has a word of V1; what a call was called with is below
            assert event["text"] in list(texts_in(read))


def test_a_recorded_v0_tool_call_is_shown_with_all_that_it_was_called_with(subtests: pytest.Subtests) -> None:
    for text in recorded():
        with subtests.test(text=text):
            event = numbered(text)
            read, args = shown_event(event), values_of(text).get("args", {})
            if read["kind"] != "ActionEvent":
                continue
            texts = set(texts_in(read)) | {"confirmed", "oh_aci", "default"}
            # Older spellings and empty fields aside, each argument is there, and so is what was thought.
            wanted = {value for name, value in args.items() if isinstance(value, str) and value}
            assert wanted - texts <= {args.get("translated_ipython_code"), args.get("task_completed")}
            assert json.loads(read["tool_call"]["arguments"]) == read["action"].get(
                "data", json.loads(read["tool_call"]["arguments"])
            )


def test_an_id_is_a_uuid_5_of_the_conversation_and_the_place_and_stays_so() -> None:
    event = stored(V0_EXAMPLES[0])
    assert v1.shown_id(event, CONVERSATION) == v1.shown_id(stored("{}", reading=READING), CONVERSATION)
    assert v1.shown_id(event, CONVERSATION) == "6a867f2f-1d53-5611-838f-5f053bfa31fe"
    assert UUID(v1.shown_id(event, CONVERSATION)).version == 5
    assert v1.shown_id(event, "another") != v1.shown_id(event, CONVERSATION)


READING = dialects.read({"action": "null"})


@pytest.mark.parametrize("seq", [0, 5, 9])
def test_an_event_is_found_by_the_id_that_it_is_shown_with(seq: int) -> None:
    event_id = v1.shown_id(stored(V0_EXAMPLES[0], seq=seq), CONVERSATION)
    assert v1.seqs_of(CONVERSATION, [event_id], last_seq=9) == {event_id: seq}
    assert v1.seqs_of(CONVERSATION, [event_id], last_seq=seq - 1) == {}


def test_events_are_found_together_by_the_ids_that_they_are_shown_with() -> None:
    seqs = {v1.shown_id(stored(V0_EXAMPLES[0], seq=seq), CONVERSATION): seq for seq in (0, 5, 9)}
    unknown = v1.shown_id(stored(V0_EXAMPLES[0], seq=10), CONVERSATION)
    assert v1.seqs_of(CONVERSATION, [*seqs, unknown, *seqs], last_seq=9) == seqs


@pytest.mark.parametrize("event_id", ["", "no id", "b2443f28-21d3-45d3-91b7-d2ac7c0e5238"])
def test_no_event_is_looked_for_by_what_can_be_no_such_id(event_id: str) -> None:
    assert v1.seqs_of(CONVERSATION, [event_id], last_seq=10**12) == {}


# Each type of the V0 wire

ACTION_KINDS = {
    "message": "MessageEvent",
    "reject": "MessageEvent",
    "system": "SystemPromptEvent",
    "condensation": "Condensation",
    "condensation_request": "CondensationRequest",
} | dict.fromkeys(("recall", "change_agent_state", "loop_recovery", "null"), "ConversationStateUpdateEvent")
OBSERVATION_KINDS = {
    "user_rejected": ("UserRejectObservation", "MessageEvent"),
    "error": ("AgentErrorEvent", "ConversationErrorEvent"),
    "condense": ("Condensation", "Condensation"),
} | dict.fromkeys(
    ("recall", "agent_state_changed", "loop_detection", "null"),
    ("ConversationStateUpdateEvent", "ConversationStateUpdateEvent"),
)


def test_each_v0_action_is_shown_as_its_counterpart(subtests: pytest.Subtests) -> None:
    for name in ACTIONS:
        with subtests.test(name=name):
            args, _, _ = FIRST_ACTIONS[name]
            read = shown({"action": name, "source": "agent", "args": args})
            assert read["kind"] == ACTION_KINDS.get(name, "ActionEvent")
            assert read["timestamp"] == TIME


def test_each_v0_observation_is_shown_as_its_counterpart(subtests: pytest.Subtests) -> None:
    for name in OBSERVATIONS:
        with subtests.test(name=name):
            extras, _, _ = FIRST_OBSERVATIONS[name]
            event = {"observation": name, "source": "agent", "content": "It is.", "extras": extras}
            answer, statement = shown(event, cause=3), shown(event)
            assert (answer["kind"], statement["kind"]) == OBSERVATION_KINDS.get(
                name, ("ObservationEvent", "MessageEvent")
            )
            if name not in STATES:
                assert "It is." in list(texts_in(answer))
                assert "It is." in list(texts_in(statement))


def test_a_hidden_event_is_counted_and_nothing_of_it_is_shown(subtests: pytest.Subtests) -> None:
    for name in sorted(ACTIONS.keys() | OBSERVATIONS.keys() | {"dance"}):
        for key in ["action", "observation"]:
            with subtests.test(name=name, key=key):
                fields = {"hidden": True, "command": "export TOKEN=abc"}
                event = {
                    key: name,
                    "source": "agent",
                    "message": "abc",
                    "content": "abc",
                    "args": fields,
                    "extras": fields,
                }
                read = shown(event, cause=3)
                assert (read["key"], read["value"]) == ("v0_event", {"type": name, "hidden": True})


def test_a_users_message_keeps_its_images() -> None:
    args = {"content": "Look", "image_urls": ["data:image/png;base64,AA", 3], "file_urls": None}
    read = shown({"action": "message", "source": "user", "args": args})
    assert read["source"] == "user"
    assert read["llm_message"] == {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look"},
            {"type": "image", "image_urls": ["data:image/png;base64,AA"]},
        ],
    }


@pytest.mark.parametrize("interrupted", [True, False])
def test_an_interrupted_v0_answer_is_shown_with_the_mark_of_v1(interrupted: bool) -> None:
    written = v0.AUTHOR.agent_message(text="Hel", event_id="e", interrupted=interrupted)
    read = shown(written.payload)
    assert (read["source"], read["llm_message"]["role"]) == ("agent", "assistant")
    assert is_interrupted(read) is interrupted


def test_the_reasoning_of_a_v0_answer_is_shown_where_v1_has_it() -> None:
    written = v0.AUTHOR.agent_message(text="Paris.", event_id="e", reasoning="The capital of France.")
    message = shown(written.payload)["llm_message"]
    assert (message["content"], message["reasoning_content"]) == (
        [{"type": "text", "text": "Paris."}],
        "The capital of France.",
    )


def test_a_v0_command_and_its_end_are_shown_as_those_of_a_terminal() -> None:
    metadata = {"tool_call_id": "c1", "function_name": "execute_bash", "model_response": {"id": "r1"}}
    args = {"command": "ls", "thought": "Look.", "security_risk": 2}
    call = shown({"action": "run", "tool_call_metadata": metadata, "args": args}, seq=3)
    extras = {"command": "ls", "metadata": RUN_METADATA | {"exit_code": 1, "pid": "odd", "working_dir": "/w"}}
    answer = shown(
        {"observation": "run", "tool_call_metadata": metadata, "content": "no", "extras": extras}, cause=3
    )
    assert call["action"] == {"kind": "TerminalAction", "command": "ls", "is_input": False, "reset": False}
    assert call["tool_call"] == {
        "id": "c1",
        "name": "execute_bash",
        "arguments": '{"command":"ls","is_input":false}',
        "origin": "completion",
    }
    assert (call["thought"][0]["text"], call["llm_response_id"], call["security_risk"]) == (
        "Look.",
        "r1",
        "HIGH",
    )
    assert answer["action_id"] == call["id"]
    assert (answer["tool_name"], answer["tool_call_id"]) == (call["tool_name"], call["tool_call_id"])
    assert answer["observation"] == {
        "kind": "TerminalObservation",
        "content": [{"type": "text", "text": "no"}],
        "is_error": False,
        "command": "ls",
        "exit_code": 1,
        "timeout": False,
        "metadata": {"exit_code": 1, "working_dir": "/w", "prefix": "", "suffix": ""},
    }


def test_a_command_that_a_v0_observation_does_not_name_is_null_and_not_left_out() -> None:
    read = shown({"observation": "run", "content": "", "extras": {"metadata": {"exit_code": -1}}}, cause=3)
    assert read["observation"]["command"] is None
    assert read["observation"]["timeout"] is True


def test_a_call_without_an_id_is_named_by_its_place_and_so_is_its_answer() -> None:
    call = shown({"action": "read", "args": {"path": "a"}}, seq=3, cause=1)
    failed = shown({"observation": "error", "content": "No."}, cause=3)
    assert call["tool_call_id"] == failed["tool_call_id"] == "call_3"


@pytest.mark.parametrize(
    ("args", "tool_name", "data"),
    [
        ({"name": "fetch", "arguments": {"url": "x"}}, "fetch", {"url": "x"}),
        ({"arguments": {"url": "x"}}, "call_tool_mcp", {"url": "x"}),
        ({"name": "fetch"}, "fetch", {"text": "fetch {}"}),
    ],
)
def test_any_other_v0_call_is_shown_with_name_and_arguments(
    args: dict[str, Any], tool_name: str, data: dict[str, Any]
) -> None:
    read = shown({"action": "call_tool_mcp", "args": args})
    assert (read["tool_name"], read["action"]) == (tool_name, {"kind": "MCPToolAction", "data": data})


def test_a_call_that_the_server_asks_about_shows_a_v1_client_what_it_approves() -> None:
    authored = v0.AUTHOR.tool_call(
        name="run",
        arguments={"command": "rm -r /"},
        tool_call_id="call_1",
        event_id="e",
        awaiting_confirmation=True,
    )
    read = shown(authored.payload)
    assert called_tool(read) == ("run", {"command": "rm -r /", "is_input": False})
    assert read["tool_name"] == "terminal"


def test_a_v0_state_is_shown_as_a_status_of_v1(subtests: pytest.Subtests) -> None:
    for state, status in [
        ("init", "idle"),
        ("loading", "idle"),
        ("running", "running"),
        ("awaiting_user_input", "idle"),
        ("paused", "paused"),
        ("rate_limited", "paused"),
        ("stopped", "paused"),
        ("finished", "finished"),
        ("rejected", "finished"),
        ("error", "error"),
        ("awaiting_user_confirmation", "waiting_for_confirmation"),
        ("user_confirmed", "running"),
        ("user_rejected", "idle"),
    ]:
        for kind in ["state", "turn"]:
            with subtests.test(state=state, status=status, kind=kind):
                event = {
                    "observation": "agent_state_changed",
                    "extras": {"agent_state": state, "reason": "R"},
                }
                read = shown(event, kind=kind)
                assert (read["key"], read["value"]) == ("execution_status", status)


@pytest.mark.parametrize("state", AgentState)
def test_the_status_of_the_servers_own_v0_states_is_known(state: AgentState) -> None:
    assert shown(v0.AUTHOR.state(state=state, event_id="e").payload)["key"] == "execution_status"


@pytest.mark.parametrize(
    ("event", "value"),
    [
        (
            {"observation": "agent_state_changed", "extras": {"agent_state": "dancing", "reason": "R"}},
            {"type": "agent_state_changed", "text": "dancing: R"},
        ),
        ({"action": "dance", "args": {"content": "D"}}, {"type": "dance", "text": "D"}),
        ({"observation": "dance", "content": "D"}, {"type": "dance", "text": "D"}),
        ({"observation": "stats", "content": "D"}, {"type": "stats", "text": "D"}),
    ],
)
def test_what_v1_has_no_event_for_is_noted_with_its_text(
    event: dict[str, Any], value: dict[str, str]
) -> None:
    read = shown(event, cause=3)
    assert (read["key"], read["value"]) == ("v0_event", value)


def test_a_long_v0_message_is_shown_to_its_end() -> None:
    authored = v0.AUTHOR.agent_message(text="é" * 100_000 + "!", event_id="e")
    assert len(authored.reading.text) == 50_000
    assert shown(authored.payload)["llm_message"]["content"][0]["text"].endswith("é!")


@pytest.mark.parametrize(
    "payload",
    ['{"action":"message","args":' + "[" * 100_000 + "]" * 100_000 + "}", '{"action":' + "9" * 5000 + "}"],
)
def test_a_v0_payload_that_cannot_be_read_again_is_shown_as_its_text(payload: str) -> None:
    reading = dialects.read({"action": "message", "source": "agent", "args": {"content": "Hi"}})
    assert shown_text(shown(payload, reading=reading)) == "Hi"


def test_arguments_too_deep_to_be_written_again_leave_the_text() -> None:
    reading = dialects.read({"action": "browse", "source": "agent", "message": "Browsing"})
    texts = []
    for depth in range(800, 1001):  # at some of these they can still be read, and no longer be written
        deep = "[" * depth + "]" * depth
        event = stored(f'{{"action":"browse","args":{{"url":{deep}}}}}', reading=reading)
        texts.append(v1.shown(event, CONVERSATION))
    assert all(text.startswith('{"kind":"ActionEvent"') for text in texts)
    assert '"data":{"text":"Browsing"}' in texts[-1]


HALF = st.just("half \ud800 of a pair")
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | HALF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
CAUSES = st.none() | st.integers(0, 4)


@given(st.sampled_from(recorded()), CAUSES, st.data())
def test_a_v0_event_with_any_odd_member_is_shown_as_one_event_that_a_strict_client_takes(
    text: str, cause: int | None, data: st.DataObject
) -> None:
    event = values_of(text)
    owners = [event, *(each for each in event.values() if isinstance(each, dict) and each)]
    owner = data.draw(st.sampled_from(owners))
    name = data.draw(st.sampled_from(sorted(owner)))
    if owner is not event or name not in ("action", "observation"):
        owner[name] = data.draw(ODD)
    shown(event, cause=cause)


# Kinds and sources to filter by


@given(
    st.sampled_from(Kind),
    st.sampled_from(sorted(ACTIONS.keys() | OBSERVATIONS.keys() | {"dance"})) | TEXTS,
    st.sampled_from(["user", "agent", "environment", "cron"]),
    CAUSES,
    st.booleans(),
)
def test_any_v0_event_is_shown_under_exactly_one_kind(
    kind: Kind, name: str, source: str, cause: int | None, hidden: bool
) -> None:
    facts: dict[str, Any] = {"type": name, "source": source, "cause": cause, "hidden": hidden}
    event = stored("{}", reading=READING, kind=kind.value, **facts)
    read = shown_event(event)
    met = [shown for shown in SHOWN_AS if is_met(shown.match, event)]
    assert [(shown.kind, shown.source) for shown in met] == [(read["kind"], read["source"])]


def test_a_filter_meets_what_is_shown_under_kind_and_source_and_nothing_else(
    subtests: pytest.Subtests,
) -> None:
    of_both_wires = [*map(numbered, recorded()), *map(stored, [*EXAMPLES, *V1_RECORDINGS])]
    events = [(event, json.loads(v1.shown(event, CONVERSATION))) for event in of_both_wires]
    for kind in [None, *KINDS]:
        for source in [None, "agent", "user", "environment", "hook"]:
            with subtests.test(kind=kind, source=source):
                wanted = v1.shown_as(kind=kind, source=source)
                for event, read in events:
                    is_wanted = kind in (None, read["kind"]) and source in (None, read["source"])
                    assert any(is_met(match, event) for match in wanted) is is_wanted


def test_a_kind_may_be_asked_for_with_the_path_of_its_class(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            assert v1.shown_as(kind=f"openhands.sdk.event.some_module.{kind}") == v1.shown_as(kind=kind)


@pytest.mark.parametrize("kind", ["", ".", "run", "DanceEvent", "openhands.", "MessageEvent.", "\ud800" * 50])
def test_a_kind_that_no_release_has_is_refused_by_a_sentence(kind: str) -> None:
    with pytest.raises(UnknownKind, match=r"There is no kind of event .* MessageEvent") as refusal:
        v1.shown_as(kind=kind)
    str(refusal.value).encode()
