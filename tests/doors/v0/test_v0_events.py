"""V0 events: what a client sends takes the wire's shape, and a reader is shown what was stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import dialects
from conversations.dialects import AgentState, v0
from conversations.dialects.v0.actions import ACTIONS
from conversations.dialects.v0.observations import OBSERVATIONS
from conversations.events import ConversationRef, NewEvent
from conversations.exceptions import InvalidEvent
from conversations.log import reads, writes
from conversations.log.append import AppendOutcome, AppendRequest
from conversations.payloads import jsontext
from tests.pure.test_payload import PAYLOADS
from tests.support.data.events import event as new_event
from tests.support.wires.v0_wire import (
    EXAMPLES,
    FIRST_ACTIONS,
    FIRST_OBSERVATIONS,
    LAID_OVER,
    RUN_METADATA,
    SUCCESSES,
    TEXTS,
    TIME,
    recorded,
    shown,
    stored,
)


def received(event: Mapping[str, object]) -> dict[str, Any]:
    """Return what a reader is shown of what a client sent, without the server's columns."""
    authored = v0.received(event)
    assert authored.reading == dialects.read(json.loads(authored.payload))
    assert not authored.reading.brings_envelope
    event = shown(authored.payload)
    assert (event.pop("id"), event.pop("timestamp"), event.pop("source")) == (5, TIME, "user")
    return event


# What a client sends


def test_an_action_gets_every_default_in_the_wires_order(subtests: pytest.Subtests) -> None:
    for name in ACTIONS:
        with subtests.test(name):
            given_args, args, message = FIRST_ACTIONS[name]
            event = received({"action": name, "args": given_args})
            assert list(event.items()) == [("message", message), ("action", name), ("args", args)]
            assert list(event["args"]) == list(args)


def test_an_observation_gets_every_default_in_the_wires_order(subtests: pytest.Subtests) -> None:
    for name in OBSERVATIONS:
        with subtests.test(name):
            given_extras, extras, message = FIRST_OBSERVATIONS[name]
            event = received({"observation": name, "content": "It is.", "extras": given_extras})
            success = event.pop("success", None)
            assert list(event.items()) == [
                ("message", message),
                ("observation", name),
                ("content", "It is."),
                ("extras", extras),
            ]
            assert list(event["extras"]) == list(extras)
            assert success is SUCCESSES.get(name)


def test_an_example_of_the_wire_is_received_as_it_stands(subtests: pytest.Subtests) -> None:
    for line in EXAMPLES:
        with subtests.test(line=line):
            example = json.loads(line)
            if example.get("action") == "reject":  # the example is shorter than the wire's own words
                example["message"] += " Reason: …"
            for column in (*LAID_OVER, "source", "llm_metrics", "timeout"):
                example.pop(column, None)
            event = received(json.loads(line))
            assert list(event.items()) == list(example.items())
            assert json.dumps(event) == json.dumps(example)


MADE_MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"action": "finish", "args": {"thought": "Done."}}, "Done."),
    ({"action": "recall", "args": {"recall_type": "knowledge", "query": "é" * 51}}, "é" * 50),
    ({"action": "task_tracking", "args": {"task_list": [{}]}}, "Managing 1 task item."),
    ({"action": "task_tracking", "args": {"task_list": [{}, {}]}}, "Managing 2 task items."),
    ({"action": "reject", "args": {"outputs": {"reason": "No."}}}, "rejected by the agent. Reason: No."),
    ({"action": "reject", "args": {"outputs": {"reason": 7}}}, "rejected by the agent."),
    (
        {"action": "call_tool_mcp", "args": {"name": "n", "arguments": {"a": [None, True]}}},
        "{'a': [None, True]}\n```",
    ),
    (
        {
            "action": "condensation",
            "args": {"forgotten_event_ids": [], "summary": "S", "summary_offset": 0},
        },
        "Summary: S",
    ),
    (
        {
            "action": "condensation",
            "args": {"forgotten_events_start_id": 3, "forgotten_events_end_id": 5},
        },
        "events: [3, 4, 5].",
    ),
    (
        {
            "action": "condensation",
            "args": {"forgotten_events_start_id": 0, "forgotten_events_end_id": 10**15},
        },
        "events: [0, …, 1000000000000000].",
    ),
    ({"observation": "recall", "extras": {"recall_type": "knowledge"}}, "Added microagent knowledge"),
    (
        {"observation": "run", "extras": {"command": "ls", "metadata": {"exit_code": 0, "more": 1}}},
        "Command `ls` executed with exit code 0.",
    ),
]


def test_a_message_is_made_of_the_fields(subtests: pytest.Subtests) -> None:
    for event, message in MADE_MESSAGES:
        with subtests.test(event=event, message=message):
            assert received(event)["message"].endswith(message)


def test_a_command_succeeded_when_its_exit_code_is_zero() -> None:
    event = received({"observation": "run", "extras": {"command": "ls", "metadata": {"exit_code": 0}}})
    assert (event["success"], event["extras"]["metadata"]) == (True, RUN_METADATA | {"exit_code": 0})


OLDER_SPELLINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"action": "message", "args": {"content": "", "images_urls": ["u"]}}, {"image_urls": ["u"]}),
    ({"action": "message", "args": {"content": "", "timestamp": "now"}}, {}),
    (
        {"action": "run", "args": {"command": "ls", "is_confirmed": "rejected", "keep_prompt": True}},
        {"confirmation_state": "rejected"},
    ),
    ({"action": "finish", "args": {"task_completed": "true"}}, {}),
    ({"action": "run", "args": {"command": "ls", "security_risk": "high"}}, {"security_risk": -1}),
    ({"action": "run", "args": {"command": "ls", "security_risk": 2}}, {"security_risk": 2}),
    (
        {
            "action": "edit",
            "args": {
                "path": "a",
                "translated_ipython_code": "print(file_editor(**{'command': 'undo', 'insert_line': 3}))",
            },
        },
        {"command": "undo", "insert_line": 3},
    ),
    (
        {
            "action": "read",
            "args": {
                "path": "a",
                "translated_ipython_code": "print(file_editor(**{'command': 'view', 'path': 'b'}))",
            },
        },
        {"path": "b"},
    ),
    ({"action": "read", "args": {"path": "a", "translated_ipython_code": None}}, {"path": "a"}),
    ({"action": "read", "args": {"path": "a", "translated_ipython_code": "print(1)"}}, {"path": "a"}),
    (
        {
            "action": "read",
            "args": {"path": "a", "translated_ipython_code": f"print(file_editor(**{'[' * 9999}))"},
        },
        {"path": "a"},
    ),
    (
        {"observation": "run", "extras": {"command": "ls", "exit_code": 3, "command_id": 9}},
        {"metadata": RUN_METADATA | {"exit_code": 3, "pid": 9}},
    ),
    ({"observation": "edit", "extras": {"formatted_output_and_error": "x"}}, {}),
]


def test_an_older_spelling_is_stored_as_todays(subtests: pytest.Subtests) -> None:
    for event, fields in OLDER_SPELLINGS:
        with subtests.test(event=event, fields=fields):
            today = received(event)
            _, first, _ = (
                FIRST_ACTIONS[event["action"]]
                if "action" in event
                else FIRST_OBSERVATIONS[event["observation"]]
            )
            members = today["args"] if "action" in event else today["extras"]
            assert members.keys() == first.keys()
            assert {name: members[name] for name in fields} == fields


def test_every_recorded_event_can_be_sent_again(subtests: pytest.Subtests) -> None:
    for line in recorded():
        with subtests.test(line=line):
            event = json.loads(line)
            again = received(event)
            assert again["message"].startswith(event["message"])
            assert again.get("content") == event.get("content")


def test_nothing_is_taken_from_a_client_but_its_type_and_its_fields() -> None:
    ours = {"action": "message", "args": {"content": "Hi"}}
    theirs: dict[str, object] = {
        "id": 3,
        "timestamp": "2001-01-01T00:00:00",
        "source": "agent",
        "cause": 1,
        "message": "Bye",
        "timeout": 5,
        "llm_metrics": {"accumulated_cost": 1e9},
        "tool_call_metadata": {"tool_call_id": "c1"},
        "interrupted": True,
        "content": "x",
        "extras": {"hidden": True},
        "success": False,
    }
    assert v0.received(theirs | ours) == v0.received(ours)


def test_text_that_no_database_takes_is_escaped() -> None:
    payload = v0.received({"action": "message", "args": {"content": "a\x00\ud800é"}}).payload
    assert r"a\u0000\ud800é" in payload
    NewEvent(event_id="e", payload=payload, reading=dialects.read(json.loads(payload)))


NO_EVENTS: list[tuple[dict[str, Any], str]] = [
    ({}, "this one has neither."),
    ({"action": None}, "this one has neither."),
    ({"action": "run", "observation": "run"}, "this one has both."),
    ({"action": 3}, "`action` must be a string."),
    ({"observation": ["run"]}, "`observation` must be a string."),
    ({"action": "dance"}, "There is no action 'dance'; known are browse, browse_interactive, "),
    ({"action": ""}, "There is no action ''; known are"),
    ({"observation": "dance"}, "There is no observation 'dance'; known are agent_state_changed, browse"),
    *(
        ({"action": name, "args": {}}, f"There is no action '{name}'")
        for name in ("start", "pause", "resume", "stop", "push", "send_pr")
    ),
    *(
        ({"observation": name}, f"There is no observation '{name}'")
        for name in ("chat", "message", "browse_interactive")
    ),
    ({"action": "message"}, "`content` of the action `message` is missing; it must be a string."),
    ({"action": "message", "args": []}, "`args` of the action `message` must be an object."),
    ({"observation": "error", "extras": "x"}, "`extras` of the observation `error` must be an object."),
    ({"observation": "error", "content": {}}, "`content` of the observation `error` must be a string."),
    (
        {"action": "message", "args": {"content": None}},
        "`content` of the action `message` must be a string.",
    ),
    (
        {"action": "message", "args": {"content": "", "image_urls": ["u", 3]}},
        "`image_urls` of the action `message` must be a list of strings or null.",
    ),
    (
        {"action": "message", "args": {"content": "", "wait_for_response": 1}},
        "`wait_for_response` of the action `message` must be true or false.",
    ),
    (
        {"action": "read", "args": {"path": "a", "start": True}},
        "`start` of the action `read` must be a whole number.",
    ),
    (
        {"observation": "run", "extras": {"command": "", "metadata": {"exit_code": "0"}}},
        "`exit_code` of `metadata` of the observation `run` must be a whole number.",
    ),
    (
        {"observation": "run", "extras": {"command": "", "metadata": [], "exit_code": 0}},
        "`metadata` of the observation `run` must be an object.",
    ),
    (
        {"action": "run", "args": {"command": "", "steps": 3, "tempo": 1}},
        "The action `run` has no 'steps', 'tempo'.",
    ),
    ({"observation": "error", "extras": {"content": "x"}}, "The observation `error` has no 'content'."),
    ({"action": "condensation"}, "A condensation names the forgotten events either by"),
    (
        {
            "action": "condensation",
            "args": {
                "forgotten_event_ids": [],
                "forgotten_events_start_id": 1,
                "forgotten_events_end_id": 2,
            },
        },
        "A condensation names the forgotten events either by",
    ),
    (
        {"action": "condensation", "args": {"forgotten_event_ids": [], "summary": "S"}},
        "A condensation has both `summary` and `summary_offset`, or neither.",
    ),
]


def test_what_is_no_event_of_the_wire_is_refused_in_a_sentence(subtests: pytest.Subtests) -> None:
    for event, words in NO_EVENTS:
        with subtests.test(event=event, words=words):
            with pytest.raises(InvalidEvent) as refusal:
                v0.received(event)
            assert words in str(refusal.value)
            assert str(refusal.value).endswith(".")


def test_a_refusal_is_short_and_can_be_sent_whatever_was_refused() -> None:
    long = "\ud800" * 10_000
    for event in ({"action": long}, {"action": "null", "args": {f"{n}{long}": n for n in range(99)}}):
        with pytest.raises(InvalidEvent) as refusal:
            v0.received(event)
        assert len(str(refusal.value).encode()) < 5_000


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidEvent, match="nested too deeply"):
        v0.received({"action": "finish", "args": {"outputs": {"deep": deep}}})
    with pytest.raises(InvalidEvent, match="nested too deeply"):
        v0.received({"action": "call_tool_mcp", "args": {"name": "n", "arguments": {"deep": deep}}})


VALUES: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
OF_A_KIND: dict[str, st.SearchStrategy[Any]] = {
    "a string": TEXTS,
    "true or false": st.booleans(),
    "a whole number": st.integers(-3, 2**70),
    "an object": OBJECTS,
    "a list": st.lists(VALUES, max_size=3),
    "a list of strings": st.lists(TEXTS, max_size=3),
    "a list of whole numbers": st.lists(st.integers(), max_size=3),
    "a list of objects": st.lists(OBJECTS, max_size=3),
}


def values_for(description: str) -> st.SearchStrategy[Any]:
    nullable = OF_A_KIND[description.removesuffix(" or null")]
    return nullable | st.none() if description.endswith(" or null") else nullable


@st.composite
def sent(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw an event of any type with any of its fields, and the fields that are to be stored."""
    key, types, first, members = draw(
        st.sampled_from(
            [
                ("action", ACTIONS, FIRST_ACTIONS, "args"),
                ("observation", OBSERVATIONS, FIRST_OBSERVATIONS, "extras"),
            ]
        )
    )
    name = draw(st.sampled_from(sorted(types.keys() - {"condensation"})))
    required, whole, _ = first[name]
    optional = [each for each in whole if each not in required and each not in ("metadata", "security_risk")]
    chosen = draw(st.sets(st.sampled_from(optional))) if optional else set()
    given_members = {
        each: draw(values_for(types[name].fields[each].description)) for each in (*required, *chosen)
    }
    if "security_risk" in whole:
        given_members["security_risk"] = draw(st.sampled_from([-1, 0, 1, 2]))
    return {key: name, members: given_members}, whole | given_members


@given(sent(), TEXTS, st.none() | st.integers(0, 4))
def test_any_event_of_any_type_is_shown_in_the_wires_shape(
    drawn: tuple[dict[str, Any], dict[str, Any]], content: str, cause: int | None
) -> None:
    event, fields = drawn
    authored = v0.received(event | {"content": content})
    text = v0.shown(stored(authored.payload, cause=cause))
    text.encode()
    read = json.loads(text, parse_constant=pytest.fail)
    expected: dict[str, Any] = {"id": 5, "timestamp": TIME, **({} if cause is None else {"cause": cause})}
    expected |= {"source": "user", "message": read["message"]}
    if "action" in event:
        expected |= {"action": event["action"], "args": fields}
    else:
        expected |= {"observation": event["observation"], "content": content, "extras": fields}
    if event.get("observation") in SUCCESSES:
        expected["success"] = SUCCESSES[event["observation"]]
    assert read == expected
    assert list(read) == list(expected)
    assert isinstance(read["message"], str)


# What a reader is shown


def test_every_recorded_event_is_shown_as_it_was_but_for_the_columns(subtests: pytest.Subtests) -> None:
    for line in recorded():
        with subtests.test(line=line):
            original, event = jsontext.members(line), stored(line, cause=2)
            members = jsontext.members(v0.shown(event))
            assert [members[name].value for name in ("id", "timestamp", "cause")] == [5, TIME, 2]
            assert {name: members[name].text for name in members.keys() - LAID_OVER} == {
                name: original[name].text for name in original.keys() - LAID_OVER
            }
            assert [name for name in members if name not in LAID_OVER] == [
                name for name in original if name not in LAID_OVER
            ]


V0_PAYLOADS = {name: text for name, text in PAYLOADS.items() if not name.endswith(("kind", "v1", "own-id"))}


def test_an_odd_payload_is_shown_with_every_byte_of_its_members(subtests: pytest.Subtests) -> None:
    for name, text in V0_PAYLOADS.items():
        with subtests.test(name):
            event = stored(text)
            original, members = jsontext.members(text), jsontext.members(v0.shown(event))
            assert (members["id"].value, members["timestamp"].value, "cause" in members) == (5, TIME, False)
            assert isinstance(members["source"].value, str)
            assert isinstance(members["message"].value, str)
            for name in original.keys() - LAID_OVER - {"source", "message"}:
                assert members[name].text == original[name].text


UNDER_COLUMNS: dict[str, tuple[str, str]] = {
    "complete": (
        '{"source":"agent","message":"","action":"null","args":{ "n" : 1.10 }}',
        '{"id":5,"timestamp":"2025-11-20T08:49:31.898815","cause":3,'
        '"source":"agent","message":"","action":"null","args":{ "n" : 1.10 }}',
    ),
    "spaces": (
        ' { "source" : "agent" , "message" : "" , "action":"null" }\n',
        '{"id":5,"timestamp":"2025-11-20T08:49:31.898815","cause":3,'
        ' "source" : "agent" , "message" : "" , "action":"null" }\n',
    ),
    "without-source-and-message": (
        '{ "action" : "run" , "args":{"command":"ls","source":1} }',
        '{"id":5,"timestamp":"2025-11-20T08:49:31.898815","cause":3,'
        '"source":"user","message":"Running command: ls", "action" : "run" , '
        '"args":{"command":"ls","source":1} }',
    ),
    "own-columns": (
        '{"id":9,"timestamp":"2001-01-01T00:00:00","source":"agent","message":"m","cause":8,'
        '"observation":"null","content":"","extras":{"n":[1E5, 1.10]}}',
        '{"id":5,"timestamp":"2025-11-20T08:49:31.898815","cause":3,"source":"agent","message":"m",'
        '"observation":"null","content":"","extras":{"n":[1E5, 1.10]}}',
    ),
    "source-and-message-of-no-use": (
        '{"action":"dance","source":null,"message":7,"args":{"n":1.10}}',
        '{"id":5,"timestamp":"2025-11-20T08:49:31.898815","cause":3,"source":"user","message":"",'
        '"action":"dance","args":{"n":1.10}}',
    ),
}


def test_a_payload_is_shown_under_the_servers_columns(subtests: pytest.Subtests) -> None:
    for name, (payload, expected) in UNDER_COLUMNS.items():
        with subtests.test(name):
            assert v0.shown(stored(payload, cause=3)) == expected


@pytest.mark.parametrize("payload", ["{}", " { \n } ", '{"id":1}'])
def test_an_empty_object_is_shown_whole(payload: str) -> None:
    reading = dialects.read({"action": "null", "source": "agent"})
    text = v0.shown(stored(payload, reading=reading, brings_envelope=True))
    assert json.loads(text) == {"id": 5, "timestamp": TIME, "source": "agent", "message": ""}


WITHOUT_MESSAGE: list[tuple[dict[str, Any], str]] = [
    ({"action": "message", "args": {"content": "Hi"}}, "Hi"),
    ({"action": "message", "args": {"content": "\ud800"}}, "\ud800"),
    ({"action": "run", "args": {"command": "ls", "of_tomorrow": 1}}, "Running command: ls"),
    ({"action": "message", "args": {"images_urls": []}}, ""),
    ({"action": "finish", "args": [1]}, "All done! What's next on the agenda?"),
    ({"action": "dance", "args": {"content": "Hi"}}, ""),
    ({"observation": "error", "content": "boom"}, "boom"),
    (
        {"observation": "run", "extras": {"command": "ls", "exit_code": 2}},
        "Command `ls` executed with exit code 2.",
    ),
    ({"observation": "run", "content": ["x"], "extras": {"command": "ls"}}, ""),
    ({"observation": "dance"}, ""),
    ({"action": "", "observation": "null"}, "No observation"),
]


def test_a_payload_without_a_message_is_shown_with_that_of_its_type(subtests: pytest.Subtests) -> None:
    for event, message in WITHOUT_MESSAGE:
        with subtests.test(event=event, message=message):
            assert shown(json.dumps(event))["message"] == message


def test_the_source_that_a_payload_brings_is_shown_as_it_stands() -> None:
    assert shown('{"action":"null","source":"environment"}')["source"] == "environment"
    assert shown('{"action":"null"}')["source"] == "user"
    assert shown('{"observation":"null","args":{"source":"agent"}}')["source"] == "environment"


COLUMNS_AND_FIELDS = st.sampled_from(
    ["id", "timestamp", "cause", "source", "message", "content", "args", "extras", "tool_call_metadata"]
)
FIELDS = st.dictionaries(
    st.sampled_from(["content", "command", "metadata", "hidden"]) | TEXTS, VALUES, max_size=4
)


@given(
    st.dictionaries(COLUMNS_AND_FIELDS | TEXTS, VALUES | FIELDS, max_size=8),
    st.sampled_from(
        [
            *({"action": name} for name in (*ACTIONS, "start", "dance")),
            *({"observation": name} for name in (*OBSERVATIONS, "dance")),
            *({"kind": kind} for kind in ("MessageEvent", "ConversationStateUpdateEvent", "DanceEvent")),
        ]
    ),
    st.booleans(),
)
def test_any_stored_event_has_what_a_reader_needs(
    fields: dict[str, Any], type_name: dict[str, str], is_last: bool
) -> None:
    others = {name: value for name, value in fields.items() if name not in ("action", "observation", "kind")}
    event = others | type_name if is_last else type_name | others
    read = json.loads(v0.shown(stored(json.dumps(event), cause=4)))
    assert (read["id"], read["timestamp"], read["cause"]) == (5, TIME, 4)
    assert (type(read["source"]), type(read["message"])) == (str, str)
    assert ("action" in read) is not ("observation" in read)
    if "kind" not in event:
        kept = event.keys() - LAID_OVER - {"source", "message"}
        assert {name: read[name] for name in kept} == {name: event[name] for name in kept}


def test_a_long_payload_is_shown_without_being_decoded() -> None:
    reading = v0.received({"observation": "error", "content": "boom"}).reading
    rest = (
        '"source":"agent","message":"boom","observation":"error","content":"' + "x" * 2**20 + "' no JSON [}"
    )
    text = v0.shown(stored("{" + rest, reading=reading, cause=0))
    assert text == f'{{"id":5,"timestamp":"{TIME}","cause":0,{rest}'


def test_what_the_servers_agents_write_is_shown_without_being_decoded() -> None:
    for authored in (
        v0.AUTHOR.user_message(text="Hi", event_id="e"),
        v0.AUTHOR.agent_message(text='"}{', event_id="e", interrupted=True),
        v0.AUTHOR.tool_call(name="run", arguments={"command": "ls"}, tool_call_id="c", event_id="e"),
        v0.AUTHOR.state(state=AgentState.RUNNING, event_id="e"),
    ):
        assert v0.shown(stored(authored.payload[:-1] + "?", reading=authored.reading)).endswith("?")


def test_a_payload_too_deep_to_be_taken_apart_is_shown_as_its_text() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    reading = dialects.read({"action": "message", "args": {"content": "Hi"}})
    event = shown(f'{{"action":"message","args":{{"content":"Hi","deep":{deep}}}}}', reading=reading)
    assert (event["source"], event["message"], event["content"]) == ("user", "Hi", "Hi")


def test_an_event_of_the_log_is_shown_under_its_seq_and_its_cause(conversation: ConversationRef) -> None:
    call = '{"action":"run","id":40,"source":"agent","message":"","args":{"command":"ls","hidden":true}}'
    answer = (
        '{"observation":"run","cause":40,"timestamp":"2025-01-01T02:00:00+02:00","extras":{"command":"ls"}}'
    )
    writes.append(conversation, [new_event("Hi"), new_event(raw=call), new_event(raw=answer)])
    events = reads.read_after(conversation, -1)
    read = [json.loads(v0.shown(event)) for event in events]
    assert [(event["id"], event.get("cause")) for event in read] == [(0, None), (1, None), (2, 1)]
    assert read[2]["timestamp"] == "2025-01-01T00:00:00.000000"
    assert read[2]["message"] == "Command `ls` executed with exit code -1."
    assert [(event["hidden"], event["brings_envelope"]) for event in events] == [
        (False, False),
        (True, True),
        (False, True),
    ]


def test_an_event_is_announced_as_it_is_read(conversation: ConversationRef) -> None:
    texts = (
        '{"action":"run","args":{"hidden":true}}',
        '{"observation":"null","id":1}',
        '{"kind":"PauseEvent"}',
    )
    events = [new_event(raw=text) for text in texts]
    (outcome,) = writes.append_many([AppendRequest(conversation=conversation, events=events)])
    assert isinstance(outcome, AppendOutcome)
    assert outcome.envelopes == reads.read_after(conversation, -1)
    assert [(event["hidden"], event["brings_envelope"]) for event in outcome.envelopes] == [
        (True, False),
        (False, True),
        (False, False),
    ]
