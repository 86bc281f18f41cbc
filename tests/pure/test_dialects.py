"""Reading events of both wires into columns, and what the server's own authors write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import dialects
from conversations.dialects import AgentState, EventAuthor, v0, v1
from conversations.dialects.v0.actions import ACTIONS
from conversations.dialects.v0.observations import OBSERVATIONS
from conversations.dialects.v1.kinds import KINDS
from conversations.events import TEXT_MAX_BYTES, Authored, Dialect, Kind, Reading
from conversations.exceptions import InvalidEvent
from tests.support.wires.event_views import is_interrupted

DATA = Path(__file__).parents[1] / "data"
CONVERSATION = DATA / "openhands-v1/conversation/3c294d959ff64d2d9c530a5849f2c4a0"
PLACEHOLDER = "2000-01-01T00:00:00.000000"
EVENT_ID = "0f0e0d0c-0b0a-4908-8706-050403020100"
CALL_EVENT_ID = "b2443f28-21d3-45d3-91b7-d2ac7c0e5238"


def json_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def recorded(dialect: Dialect) -> list[dict[str, Any]]:
    """Return every event of a wire that there is a recording or an example of."""
    recordings = v0_recordings() if dialect is Dialect.V0 else v1_recordings()
    return [*recordings, *json_lines(f"openhands-{dialect}-examples.jsonl")]


def v0_recordings() -> Iterator[dict[str, Any]]:
    for name in ("agent-run", "gui-trajectory", "interactions"):
        yield from json.loads((DATA / f"openhands-v0-{name}.json").read_text(encoding="utf-8"))


def v1_recordings() -> Iterator[dict[str, Any]]:
    for path in sorted((CONVERSATION / "events").glob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))
    for line in (*json_lines("openhands-v1/frames.jsonl"), *json_lines("openhands-v1/rest.jsonl")):
        yield from events_inside(line)


def events_inside(value: object) -> Iterator[dict[str, Any]]:
    """Find the events of a recorded frame or exchange: objects with a kind, an id and a time."""
    if isinstance(value, dict) and {"kind", "id", "timestamp"} <= value.keys():
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from events_inside(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from events_inside(inner)


# Which wire it is


@pytest.mark.parametrize("payload", [{}, {"id": 1, "args": {}}, {"kind": 3}, {"action": ""}, {"action": {}}])
def test_an_object_that_names_no_type_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(InvalidEvent, match=r"names no type.*`kind` for V1, `action` or `observation` for V0"):
        dialects.read(payload)


def test_an_empty_object_is_refused_as_such() -> None:
    with pytest.raises(InvalidEvent, match="names no type; it is empty"):
        dialects.read({})


def test_an_object_that_names_two_types_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=r"names its type 2 times \(action, observation\)"):
        dialects.read({"action": "run", "observation": "run"})


def test_a_refusal_lists_a_bounded_part_of_the_keys() -> None:
    with pytest.raises(InvalidEvent) as refusal:
        dialects.read({f"{n}\ud800{'x' * 1000}": n for n in range(1000)})
    assert len(str(refusal.value).encode()) < 1000
    assert "and 988 more" in str(refusal.value)


def test_a_v1_event_may_hold_an_action_and_an_observation_as_objects() -> None:
    assert dialects.read({"kind": "ActionEvent", "action": {"kind": "X"}}).dialect is Dialect.V1
    assert dialects.read({"kind": "ObservationEvent", "observation": {}}).dialect is Dialect.V1


# Reading what was recorded


@pytest.mark.parametrize("dialect", Dialect)
def test_every_recorded_event_is_read_on_its_wire(dialect: Dialect) -> None:
    readings = [dialects.read(event) for event in recorded(dialect)]
    assert len(readings) > 60
    assert {reading.dialect for reading in readings} == {dialect}
    assert all(reading.timestamp for reading in readings)


def test_every_recorded_v0_event_keeps_its_number_and_cause() -> None:
    for event in recorded(Dialect.V0):
        reading = dialects.read(event)
        assert (reading.wire_id, reading.cause_wire_id) == (event["id"], event.get("cause"))
        assert reading.source == event["source"]
        assert reading.brings_envelope


def test_every_recorded_v1_event_keeps_its_ids() -> None:
    for event in recorded(Dialect.V1):
        reading = dialects.read(event)
        assert (reading.event_id, reading.cause_event_id) == (event["id"], event.get("action_id"))
        assert (reading.tool_call_id, reading.source) == (event.get("tool_call_id"), event["source"])
        assert not reading.brings_envelope


V0_EXAMPLES = {
    2: ("message", "message", "Say hello"),
    7: ("message", "message", "Hello"),
    1: ("system", "system", "<system prompt>"),
    9: ("run", "tool_call", "echo hi"),
    10: ("run", "tool_result", "hi\n"),
    11: ("run_ipython", "tool_call", "print(1)"),
    12: ("run_ipython", "tool_result", "1"),
    13: ("read", "tool_call", "Reading file: /workspace/a.py"),
    14: ("read", "tool_result", "print(1)"),
    15: ("write", "tool_call", "Writing file: /workspace/b.py"),
    16: ("write", "tool_result", "I wrote to the file /workspace/b.py."),
    17: ("edit", "tool_call", "/workspace/a.py"),
    18: ("edit", "tool_result", "The file was edited"),
    19: ("browse", "tool_call", "I am browsing the URL: http://example.com"),
    20: ("browse_interactive", "tool_call", "I am interacting with the browser:\n```\nclick('1')\n```"),
    21: ("browse", "tool_result", "text"),
    23: ("mcp", "tool_result", '{"isError": false}'),
    24: ("think", "tool_call", "hm"),
    25: ("think", "tool_result", "Your thought has been logged."),
    26: ("task_tracking", "tool_call", "Managing 1 task item."),
    27: ("task_tracking", "tool_result", "ok"),
    28: ("delegate", "tool_call", "I'm asking BrowsingAgent for help with this task."),
    29: ("delegate", "tool_result", "done"),
    30: ("finish", "message", "Finished."),
    31: ("reject", "message", "…"),
    32: ("change_agent_state", "state", "running"),
    33: ("agent_state_changed", "state", "awaiting_user_input"),
    34: ("error", "error", "boom"),
    35: ("recall", "tool_call", "Retrieving content for: Say hello"),
    36: ("recall", "tool_result", "Added workspace context"),
    37: ("user_rejected", "tool_result", "rejected"),
}


def test_each_v0_example_has_its_kind_and_text() -> None:
    events = {event["id"]: shown(dialects.read(event)) for event in json_lines("openhands-v0-examples.jsonl")}
    call = events.pop(22)
    assert events == V0_EXAMPLES
    assert call[:2] == ("call_tool_mcp", "tool_call")
    assert "{'url': 'x'}" in call[2]


V1_EXAMPLES = [
    ("SystemPromptEvent", "system", "You are a helpful agent."),
    ("MessageEvent", "message", "list files"),
    ("MessageEvent", "message", "Done."),
    ("ActionEvent", "tool_call", "I will look."),
    ("ObservationEvent", "tool_result", "a.txt"),
    ("ActionEvent", "message", "All done."),
    ("ObservationEvent", "tool_result", "All done."),
    ("ActionEvent", "tool_call", "nope {}"),
    ("AgentErrorEvent", "error", "Tool 'nope' not found."),
    ("UserRejectObservation", "tool_result", "no thanks"),
    ("PauseEvent", "state", ""),
    ("ConversationStateUpdateEvent", "state", "running"),
    ("ConversationStateUpdateEvent", "state", "stats"),
    ("ConversationStateUpdateEvent", "state", "full_state"),
    ("ConversationErrorEvent", "error", "bad request"),
    ("Condensation", "summary", "User asked for a listing."),
    ("CondensationRequest", "other", ""),
    ("CondensationSummaryEvent", "summary", "User asked for a listing."),
    ("LLMCompletionLogEvent", "other", "gpt-x-1764324008.json"),
    ("TokenEvent", "other", ""),
    ("InterruptEvent", "state", ""),
    ("HookExecutionEvent", "other", "check.sh"),
    ("ACPToolCallEvent", "tool_call", "Read file"),
    ("StreamingDeltaEvent", "other", "Hel"),
    ("ServerErrorEvent", "error", "bad message"),
    ("SecurityAnalysisEvent", "other", ""),
]


def test_each_v1_example_has_its_kind_and_text() -> None:
    examples = json_lines("openhands-v1-examples.jsonl")
    assert [shown(dialects.read(event)) for event in examples] == V1_EXAMPLES


def test_the_other_v0_types_have_a_kind_and_a_text(subtests: pytest.Subtests) -> None:
    rows: list[tuple[dict[str, object], tuple[str, str, str]]] = [
        ({"action": "null"}, ("null", "other", "")),
        ({"observation": "null", "message": "No observation"}, ("null", "other", "No observation")),
        ({"action": "condensation", "args": {"summary": "S"}}, ("condensation", "summary", "S")),
        ({"action": "condensation_request", "message": "R"}, ("condensation_request", "other", "R")),
        ({"action": "loop_recovery", "args": {"option": 1}}, ("loop_recovery", "other", "")),
        ({"observation": "condense", "content": "S"}, ("condense", "summary", "S")),
        ({"observation": "success", "content": "S"}, ("success", "tool_result", "S")),
        ({"observation": "download", "message": "D"}, ("download", "tool_result", "D")),
        ({"observation": "loop_detection", "content": "L"}, ("loop_detection", "other", "L")),
        ({"observation": "dance", "content": "D"}, ("dance", "other", "D")),
        ({"action": "finish", "args": {"outputs": {"content": "C"}}}, ("finish", "message", "C")),
        ({"action": "finish", "message": "All done!", "args": {}}, ("finish", "message", "All done!")),
        (
            {"action": "call_tool_mcp", "args": {"name": "fetch", "arguments": {"url": "x"}}},
            ("call_tool_mcp", "tool_call", 'fetch {"url": "x"}'),
        ),
        (
            {"observation": "agent_state_changed", "extras": {"agent_state": "error", "reason": "boom"}},
            ("agent_state_changed", "state", "error: boom"),
        ),
        (
            {"observation": "error", "content": "E", "cause": 1, "tool_call_metadata": {"tool_call_id": "c"}},
            ("error", "error", "E"),
        ),
    ]
    for payload, expected in rows:
        with subtests.test(payload=payload, expected=expected):
            assert shown(dialects.read(payload)) == expected


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"kind": "DanceEvent", "content": "D"}, ("DanceEvent", "other", "D")),
        ({"kind": "MessageEvent", "llm_message": {"content": "plain"}}, ("MessageEvent", "message", "plain")),
        (
            {
                "kind": "MessageEvent",
                "llm_message": {"content": [{"text": "a"}, {"image_urls": ["u"]}, {"text": "b"}]},
            },
            ("MessageEvent", "message", "a\nb"),
        ),
        (
            {"kind": "ActionEvent", "tool_name": "glob", "action": {"kind": "GlobAction", "pattern": "*"}},
            ("ActionEvent", "tool_call", 'glob {"pattern": "*"}'),
        ),
        (
            {"kind": "UserRejectObservation"},
            ("UserRejectObservation", "tool_result", "User rejected the action"),
        ),
        (
            {"kind": "ConversationStateUpdateEvent", "key": "title", "value": "T"},
            ("ConversationStateUpdateEvent", "state", "title: T"),
        ),
    ],
)
def test_other_shapes_of_v1_events_have_a_kind_and_a_text(
    payload: dict[str, object], expected: tuple[str, str, str]
) -> None:
    assert shown(dialects.read(payload)) == expected


def test_a_v1_kind_may_be_written_with_the_path_of_its_class(subtests: pytest.Subtests) -> None:
    for line in json_lines("openhands-v1-examples.jsonl"):
        with subtests.test(line["kind"]):
            path = "openhands.sdk.event.some_module."
            spelled = {
                name: value | {"kind": f"openhands.tools.{value['kind']}"}
                if isinstance(value, dict) and "kind" in value
                else value
                for name, value in line.items()
            }
            assert dialects.read(spelled | {"kind": path + line["kind"]}) == dialects.read(line)


# Columns of odd payloads


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2025-11-20T08:49:31.899301", datetime(2025, 11, 20, 8, 49, 31, 899301, tzinfo=UTC)),
        ("2025-11-20T08:49:31+02:00", datetime(2025, 11, 20, 6, 49, 31, tzinfo=UTC)),
        ("2025-11-20T08:49:31Z", datetime(2025, 11, 20, 8, 49, 31, tzinfo=UTC)),
        ("0001-01-01T00:00:00+14:00", None),
        ("soon", None),
        ("\ud800", None),
        (1732092571, None),
        (None, None),
    ],
)
def test_times_are_read_as_utc(written: object, read: datetime | None) -> None:
    assert dialects.read({"action": "null", "timestamp": written}).timestamp == read
    assert dialects.read({"kind": "PauseEvent", "timestamp": written}).timestamp == read


@pytest.mark.parametrize(
    ("number", "read"),
    [(0, 0), (2**63 - 1, 2**63 - 1), (2**63, None), (-1, None), (True, None), ("7", None), (7.0, None)],
)
def test_only_whole_numbers_that_fit_are_v0_ids(number: object, read: int | None) -> None:
    reading = dialects.read({"observation": "run", "id": number, "cause": number})
    assert (reading.wire_id, reading.cause_wire_id) == (read, read)


@pytest.mark.parametrize("key", ["id", "timestamp", "cause"])
def test_a_v0_payload_brings_its_envelope_with_any_of_its_keys(key: str) -> None:
    assert dialects.read({"action": "null", key: None}).brings_envelope
    assert not dialects.read({"action": "null", "source": "agent"}).brings_envelope


def test_hidden_is_read_from_args_and_extras_of_v0_events() -> None:
    assert dialects.read({"action": "run", "args": {"hidden": True}}).hidden
    assert dialects.read({"observation": "run", "extras": {"hidden": True}}).hidden
    assert not dialects.read({"action": "run", "args": {"hidden": 1}}).hidden


@pytest.mark.parametrize(
    ("payload", "source"),
    [
        ({"action": "message"}, "user"),
        ({"observation": "run", "source": 3}, "environment"),
        ({"action": "run", "source": "cron"}, "cron"),
        ({"kind": "MessageEvent", "llm_message": {"role": "assistant"}}, "agent"),
        ({"kind": "PauseEvent"}, "user"),
        ({"kind": "ActionEvent", "source": ""}, "agent"),
        ({"kind": "DanceEvent"}, "environment"),
    ],
)
def test_a_missing_source_is_what_the_wire_would_say(payload: dict[str, object], source: str) -> None:
    assert dialects.read(payload).source == source


def test_long_strings_are_cut_to_their_columns() -> None:
    long = "é" * TEXT_MAX_BYTES
    reading = dialects.read(
        {
            "action": long,
            "source": long,
            "message": "x" + long,
            "tool_call_metadata": {"tool_call_id": long},
        }
    )
    assert (len(reading.type), len(reading.source), len(reading.tool_call_id or "")) == (200, 50, 200)
    assert len(reading.text.encode()) == TEXT_MAX_BYTES - 1
    assert reading.text.endswith("é")


def test_a_v1_id_too_long_for_its_column_is_left_out() -> None:
    reading = dialects.read({"kind": "ObservationEvent", "id": "x" * 201, "action_id": "y" * 201})
    assert (reading.event_id, reading.cause_event_id) == (None, None)


def test_what_no_database_takes_is_replaced() -> None:
    reading = dialects.read({"kind": "MessageEvent", "llm_message": {"content": "a\x00b\ud800c"}})
    assert reading.text == "a\ufffdb\ufffdc"


def test_arguments_too_deep_to_show_do_not_stop_the_reading() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    reading = dialects.read({"kind": "ActionEvent", "tool_name": "t", "action": {"deep": deep}})
    assert reading.text == "t"


FIELD_NAMES = (
    *("id", "timestamp", "source", "cause", "message", "content", "args", "extras", "outputs", "hidden"),
    *("tool_call_metadata", "tool_call_id", "tool_call", "arguments", "command", "agent_state", "reason"),
    *("llm_message", "role", "text", "thought", "observation", "action", "action_id", "key", "value"),
    *("system_prompt", "extended_content", "kind", "name", "summary"),
)
TEXTS = st.text(st.characters(codec=None, categories=None), max_size=20)
KEYS = st.sampled_from(FIELD_NAMES) | TEXTS
VALUES: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from([PLACEHOLDER, "user"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)
V0_TYPES = sorted({*ACTIONS, *OBSERVATIONS, "start", "chat", "dance"})
V1_TYPES = sorted({*KINDS, "DanceEvent"})


def named(key: str, types: list[str]) -> st.SearchStrategy[dict[str, object]]:
    return st.builds(lambda name: {key: name}, st.sampled_from(types))


TYPED = named("action", V0_TYPES) | named("observation", V0_TYPES) | named("kind", V1_TYPES)


@given(TYPED | st.just({}), st.dictionaries(KEYS, VALUES, max_size=10))
def test_any_object_is_read_or_refused_and_every_column_can_be_stored(
    type_name: dict[str, object], fields: dict[str, object]
) -> None:
    try:
        reading = dialects.read(fields | type_name)
    except InvalidEvent as refusal:
        assert_storable(str(refusal))
        return
    for column in (reading.type, reading.source, reading.text, reading.event_id or "-"):
        assert_storable(column)
    assert_storable((reading.cause_event_id or "") + (reading.tool_call_id or ""))
    assert reading.type
    assert reading.source
    assert len(reading.text.encode()) <= TEXT_MAX_BYTES


@given(TYPED, st.dictionaries(KEYS, VALUES, max_size=10))
def test_optional_fields_never_refuse_an_event_of_one_wire(
    type_name: dict[str, object], fields: dict[str, object]
) -> None:
    others = {key: value for key, value in fields.items() if key not in ("kind", "action", "observation")}
    assert dialects.read(others | type_name).type in type_name.values()


# Authoring

Writing = Callable[[EventAuthor], Authored]

WRITINGS: dict[str, tuple[Writing, Kind, str]] = {
    "user_message": (
        lambda author: author.user_message(text="Hi", image_urls=["data:,x"], event_id=EVENT_ID),
        Kind.MESSAGE,
        "Hi",
    ),
    "agent_message": (
        lambda author: author.agent_message(text="Hello \ud800", event_id=EVENT_ID),
        Kind.MESSAGE,
        "Hello \ufffd",
    ),
    "interrupted agent_message": (
        lambda author: author.agent_message(text="Hel", event_id=EVENT_ID, interrupted=True),
        Kind.MESSAGE,
        "Hel",
    ),
    "tool_call run": (
        lambda author: author.tool_call(
            name="run",
            arguments={"command": "ls"},
            tool_call_id="c1",
            event_id=EVENT_ID,
            awaiting_confirmation=True,
        ),
        Kind.TOOL_CALL,
        "ls",
    ),
    "tool_call fetch": (
        lambda author: author.tool_call(
            name="fetch", arguments={"url": "x", "n": float("nan")}, tool_call_id="c1", event_id=EVENT_ID
        ),
        Kind.TOOL_CALL,
        "fetch",
    ),
    "tool_result run": (
        lambda author: author.tool_result(
            name="run",
            arguments={"command": "ls"},
            content="a.txt",
            tool_call_id="c1",
            event_id=EVENT_ID,
            call_event_id=CALL_EVENT_ID,
        ),
        Kind.TOOL_RESULT,
        "a.txt",
    ),
    "tool_result fetch": (
        lambda author: author.tool_result(
            name="fetch",
            arguments={"url": "x"},
            content="page",
            tool_call_id="c1",
            event_id=EVENT_ID,
            call_event_id=CALL_EVENT_ID,
        ),
        Kind.TOOL_RESULT,
        "page",
    ),
    "tool_rejected": (
        lambda author: author.tool_rejected(
            name="run", reason="no", tool_call_id="c1", event_id=EVENT_ID, call_event_id=CALL_EVENT_ID
        ),
        Kind.TOOL_RESULT,
        "no",
    ),
    "tool_failed": (
        lambda author: author.tool_failed(
            name="run", reason="lost", tool_call_id="c1", event_id=EVENT_ID, call_event_id=CALL_EVENT_ID
        ),
        Kind.ERROR,
        "lost",
    ),
    "state": (
        lambda author: author.state(state=AgentState.RUNNING, event_id=EVENT_ID),
        Kind.STATE,
        "running",
    ),
    "error": (
        lambda author: author.error(code="Boom", detail="It broke", event_id=EVENT_ID),
        Kind.ERROR,
        "It broke",
    ),
    "accepted decision": (
        lambda author: author.decision(accepted=True, event_id=EVENT_ID),
        Kind.STATE,
        "",
    ),
    "rejected decision": (
        lambda author: author.decision(accepted=False, event_id=EVENT_ID),
        Kind.STATE,
        "",
    ),
}


def test_an_authored_event_reads_back_as_what_was_written(subtests: pytest.Subtests) -> None:
    for case, (write, kind, text) in WRITINGS.items():
        for dialect in Dialect:
            with subtests.test(case, dialect=dialect):
                authored = write(dialects.author(dialect))
                assert authored.reading == dialects.read(json.loads(authored.payload))
                assert (authored.reading.dialect, authored.reading.kind) == (dialect, kind)
                assert text in authored.reading.text


def test_an_authored_payload_is_compact_json_in_utf8(subtests: pytest.Subtests) -> None:
    for case, (write, _, _) in WRITINGS.items():
        for dialect in Dialect:
            with subtests.test(case, dialect=dialect):
                payload = write(dialects.author(dialect)).payload
                json.loads(payload.encode(), parse_constant=pytest.fail)
                assert "\n" not in payload


def test_an_authored_v0_event_leaves_its_envelope_to_the_server(subtests: pytest.Subtests) -> None:
    for case, (write, _, _) in WRITINGS.items():
        with subtests.test(case):
            authored = write(v0.AUTHOR)
            payload = json.loads(authored.payload)
            assert list(payload)[:2] == ["source", "message"]
            assert isinstance(payload.get("args", payload.get("extras")), dict)
            assert not authored.reading.brings_envelope
            assert authored.stamp_offset is None


def test_an_authored_v1_event_has_the_stamp_where_it_says(subtests: pytest.Subtests) -> None:
    for case, (write, _, _) in WRITINGS.items():
        with subtests.test(case):
            authored = write(v1.AUTHOR)
            assert authored.stamp_offset is not None
            stamped = splice(authored.payload, authored.stamp_offset, "2025-11-20T08:49:31.899301")
            assert authored.payload[authored.stamp_offset :].startswith(PLACEHOLDER)
            assert dialects.read(json.loads(stamped)).timestamp == datetime(
                2025, 11, 20, 8, 49, 31, 899301, tzinfo=UTC
            )
            assert authored.reading.event_id == EVENT_ID


@given(TEXTS)
def test_the_stamp_is_found_whatever_the_id_and_the_text_say(text: str) -> None:
    said = f'{text}"timestamp":"{PLACEHOLDER}"\ud800'
    authored = v1.AUTHOR.agent_message(text=said, event_id=said)
    assert authored.stamp_offset is not None
    stamped = json.loads(splice(authored.payload, authored.stamp_offset, "s" * 26))
    assert stamped["timestamp"] == "s" * 26


V1_FIELDS = {
    "MessageEvent": {"llm_message", "llm_response_id", "activated_skills", "extended_content", "sender"},
    "ActionEvent": {
        *("thought", "action", "tool_name", "tool_call_id", "tool_call", "llm_response_id", "security_risk"),
    },
    "ObservationEvent": {"tool_name", "tool_call_id", "observation", "action_id"},
    "UserRejectObservation": {"tool_name", "tool_call_id", "rejection_reason", "action_id"},
    "AgentErrorEvent": {"tool_name", "tool_call_id", "error"},
    "ConversationStateUpdateEvent": {"key", "value"},
    "ConversationErrorEvent": {"code", "detail"},
}


def test_an_authored_v1_event_has_only_fields_of_the_first_release(subtests: pytest.Subtests) -> None:
    for case, (write, _, _) in WRITINGS.items():
        with subtests.test(case):
            payload = json.loads(write(v1.AUTHOR).payload)
            assert payload.keys() - {"kind", "id", "timestamp", "source"} <= V1_FIELDS[payload["kind"]]
            assert None not in payload.values()


@pytest.mark.parametrize("dialect", Dialect)
def test_only_an_interrupted_answer_is_marked_and_its_text_stays_as_said(dialect: Dialect) -> None:
    author = dialects.author(dialect)
    whole = author.agent_message(text="Hel", event_id=EVENT_ID)
    broken = author.agent_message(text="Hel", event_id=EVENT_ID, interrupted=True)
    assert broken.reading.text == whole.reading.text == "Hel"
    assert is_interrupted(json.loads(broken.payload))
    assert not is_interrupted(json.loads(whole.payload))


@pytest.mark.parametrize("dialect", Dialect)
def test_a_call_and_its_answers_carry_the_same_tool_call_id(dialect: Dialect) -> None:
    names = [name for name in WRITINGS if name.startswith("tool_")]
    readings = [WRITINGS[name][0](dialects.author(dialect)).reading for name in names]
    assert {reading.tool_call_id for reading in readings} == {"c1"}


@pytest.mark.parametrize("name", ["tool_result run", "tool_result fetch", "tool_rejected"])
def test_a_v1_answer_names_the_call_it_answers(name: str) -> None:
    assert WRITINGS[name][0](v1.AUTHOR).reading.cause_event_id == CALL_EVENT_ID


def test_a_v0_run_is_written_as_the_wire_has_it() -> None:
    payload = WRITINGS["tool_call run"][0](v0.AUTHOR).payload
    assert payload == (
        '{"source":"agent","message":"Running command: ls","action":"run","tool_call_metadata":'
        '{"function_name":"run","tool_call_id":"c1","model_response":{},"total_calls_in_response":1},'
        '"args":{"command":"ls","is_input":false,"thought":"","blocking":false,"is_static":false,"cwd":null,'
        '"hidden":false,"confirmation_state":"awaiting_confirmation","security_risk":-1}}'
    )


def test_a_v1_command_result_is_written_as_the_wire_has_it() -> None:
    payload = WRITINGS["tool_result run"][0](v1.AUTHOR).payload
    assert payload == (
        f'{{"kind":"ObservationEvent","id":"{EVENT_ID}","timestamp":"{PLACEHOLDER}","source":"environment",'
        '"tool_name":"terminal","tool_call_id":"c1","observation":{"kind":"TerminalObservation",'
        '"content":[{"type":"text","text":"a.txt"}],"is_error":false,"command":"ls","exit_code":0,'
        '"timeout":false,"metadata":{"exit_code":0,"pid":-1,"prefix":"","suffix":""}},'
        f'"action_id":"{CALL_EVENT_ID}"}}'
    )


@pytest.mark.parametrize(
    ("state", "v0_text", "v1_text"),
    [
        (AgentState.IDLE, "awaiting_user_input", "idle"),
        (AgentState.RUNNING, "running", "running"),
        (AgentState.WAITING_FOR_CONFIRMATION, "awaiting_user_confirmation", "waiting_for_confirmation"),
        (AgentState.PAUSED, "paused", "paused"),
        (AgentState.FINISHED, "awaiting_user_input", "finished"),
        (AgentState.STOPPED, "stopped", "paused"),
        (AgentState.INTERRUPTED, "error: The agent was interrupted.", "error"),
        (AgentState.ERROR, "error", "error"),
    ],
)
def test_each_agent_state_has_a_word_on_both_wires(state: AgentState, v0_text: str, v1_text: str) -> None:
    assert v0.AUTHOR.state(state=state, event_id=EVENT_ID).reading.text == v0_text
    assert v1.AUTHOR.state(state=state, event_id=EVENT_ID).reading.text == v1_text


@pytest.mark.parametrize(
    ("accepted", "v0_text", "v1_text"),
    [(True, "user_confirmed", "running"), (False, "user_rejected", "idle")],
)
def test_a_decision_is_the_users_on_v0_and_a_state_on_v1(accepted: bool, v0_text: str, v1_text: str) -> None:
    asked, followed = (
        dialects.author(dialect).decision(accepted=accepted, event_id=EVENT_ID).reading for dialect in Dialect
    )
    assert (asked.source, asked.text) == ("user", v0_text)
    assert (followed.source, followed.text) == ("environment", v1_text)


def test_a_command_call_without_a_command_keeps_its_arguments() -> None:
    call = v0.AUTHOR.tool_call(name="run", arguments={"script": 1}, tool_call_id="c1", event_id=EVENT_ID)
    assert call.reading.text == '{"script":1}'


def shown(reading: Reading) -> tuple[str, str, str]:
    return (reading.type, reading.kind.value, reading.text)


def splice(payload: str, offset: int, stamp: str) -> str:
    return payload[:offset] + stamp + payload[offset + len(stamp) :]


def assert_storable(column: str) -> None:
    column.encode()
    assert "\x00" not in column


def test_the_state_that_an_author_writes_is_the_one_that_is_read(subtests: pytest.Subtests) -> None:
    for dialect in Dialect:
        for state in AgentState:
            with subtests.test(dialect=dialect, state=state):
                authored = dialects.author(dialect).state(
                    state=state, event_id="e", reason="running: out of time"
                )
                column = dialects.read(json.loads(authored.payload)).text
                same = {
                    Dialect.V0: {
                        AgentState.FINISHED: AgentState.IDLE,
                        AgentState.INTERRUPTED: AgentState.ERROR,
                        AgentState.STUCK: AgentState.ERROR,
                    },
                    Dialect.V1: {
                        AgentState.STOPPED: AgentState.PAUSED,
                        AgentState.INTERRUPTED: AgentState.ERROR,
                    },
                }
                assert dialects.state_in(column) is same[dialect].get(state, state)


def test_a_word_that_no_wire_has_is_no_state() -> None:
    assert dialects.state_in("runningly: fast") is None
