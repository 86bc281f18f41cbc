"""A conversation's record as messages to a model."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import BinaryContent, ImageUrl, ModelMessage, ModelRequest, ModelResponse

from conversations import dialects
from conversations.events import Dialect, EventEnvelope
from sessions_app.agents.llm import condensing, images, prompts
from sessions_app.agents.llm.history import messages_of
from sessions_app.agents.llm.record import File, Record, ordered

MAX_CHARS = 100_000
PIXEL = b"\x89PNG\r\n\x1a\n"


def event(seq: int, payload: dict[str, Any], **columns: Any) -> EventEnvelope:
    reading = dialects.read(payload)
    found: dict[str, Any] = {
        "seq": seq,
        "fingerprint": "",
        "id": f"id-{seq}",
        "dialect": reading.dialect.value,
        "type": reading.type,
        "kind": reading.kind.value,
        "source": reading.source,
        "timestamp": "",
        "cause": None,
        "turn": None,
        "tool_call_id": reading.tool_call_id,
        "hidden": reading.hidden,
        "brings_envelope": reading.brings_envelope,
        "text": reading.text,
        "payload": json.dumps(payload),
    }
    return cast(EventEnvelope, {**found, **columns})


def user(text: str, dialect: Dialect = Dialect.V0, **more: Any) -> dict[str, Any]:
    if dialect is Dialect.V0:
        return {"action": "message", "source": "user", "args": {"content": text, **more}}
    return {"kind": "MessageEvent", "source": "user", "llm_message": _message("user", text)}


def agent(text: str, dialect: Dialect = Dialect.V0) -> dict[str, Any]:
    if dialect is Dialect.V0:
        return {"action": "message", "source": "agent", "args": {"content": text}}
    return {"kind": "MessageEvent", "source": "agent", "llm_message": _message("assistant", text)}


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def call(command: str) -> dict[str, Any]:
    metadata = {"function_name": "run", "tool_call_id": f"call {command}"}
    return {"action": "run", "source": "agent", "args": {"command": command}, "tool_call_metadata": metadata}


def result(command: str, content: str) -> dict[str, Any]:
    metadata = {"function_name": "run", "tool_call_id": f"call {command}"}
    return {"observation": "run", "source": "agent", "content": content, "tool_call_metadata": metadata}


def shown(
    record: Record, *, max_chars: int = MAX_CHARS, takes_urls: bool = True, tools: Sequence[str] = ()
) -> list[ModelMessage]:
    return messages_of(record, max_chars=max_chars, takes_urls=takes_urls, tools=tools).messages


def told(messages: list[ModelMessage]) -> list[tuple[str, str]]:
    """Return the messages by their sides, images as `<image>`."""
    return [
        ("user", "\n".join(_text(part) for each in message.parts for part in _content(each)))
        if isinstance(message, ModelRequest)
        else ("agent", str(message.text))
        for message in messages
    ]


def _content(part: Any) -> list[Any]:
    return [part.content] if isinstance(part.content, str) else list(part.content)


def _text(part: Any) -> str:
    return part if isinstance(part, str) else "<image>"


def record(*payloads: dict[str, Any], **more: Any) -> Record:
    return Record(events=[event(seq, payload) for seq, payload in enumerate(payloads)], **more)


SECRET = "the hidden word"
TEXTS = st.text(max_size=30).filter(lambda text: SECRET not in text)
DIALECTS = st.sampled_from(list(Dialect))
PAYLOADS = st.one_of(
    st.builds(user, TEXTS, DIALECTS),
    st.builds(agent, TEXTS, DIALECTS),
    st.builds(call, st.sampled_from(["ls", "pwd"])),
    st.builds(result, st.sampled_from(["ls", "pwd"]), TEXTS),
    st.just(user(SECRET, hidden=True)),
    st.just({"action": "recall", "source": "agent", "args": {"query": SECRET}}),
    st.just({"observation": "agent_state_changed", "content": "", "extras": {"agent_state": "running"}}),
    st.just(
        {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"type": "text", "text": SECRET}}
    ),
    st.just(agent(SECRET) | {"id": 4711}),
)


@given(
    payloads=st.lists(PAYLOADS, max_size=12),
    max_chars=st.integers(1, 200),
    forgotten=st.frozensets(st.one_of(st.integers(0, 12), st.builds("id-{}".format, st.integers(0, 12)))),
    summary=TEXTS,
)
def test_the_sides_take_turns_the_user_is_first_and_last_and_nothing_hidden_is_told(
    payloads: list[dict[str, Any]], max_chars: int, forgotten: frozenset[str | int], summary: str
) -> None:
    found = record(*payloads, forgotten=forgotten | {4711}, summary=summary)
    messages = shown(found, max_chars=max_chars)
    sides = [type(message) for message in messages]
    assert sides == [ModelRequest if number % 2 == 0 else ModelResponse for number in range(len(sides))]
    assert sides[-1] is ModelRequest
    assert all(text for _, text in told(messages))
    assert SECRET not in str(messages)
    assert all(isinstance(m, ModelResponse) or m.instructions for m in messages)


def test_messages_of_one_side_become_one() -> None:
    messages = shown(record(user("a"), user("b"), agent("c"), agent("d"), user("e")))
    assert told(messages) == [("user", "a\n\nb"), ("agent", "c\n\nd"), ("user", "e")]


def test_a_call_is_told_with_its_result_and_without_one_as_such() -> None:
    [(_, text)] = told(shown(record(user("look"), call("ls"), result("ls", "a.txt"), call("pwd"))))
    assert 'called the tool `run` with {"command": "ls"}. The result:\n\na.txt' in text
    assert 'called the tool `run` with {"command": "pwd"}. It has no result.' in text


def test_a_summary_stands_in_the_place_of_what_it_replaces() -> None:
    found = record(user("old"), agent("older"), user("new"), forgotten=frozenset({0, 1}), summary="They met.")
    [(_, text)] = told(shown(found))
    assert text == "A summary of the earlier conversation:\n\nThey met.\n\nnew"


def test_the_newest_that_fit_are_kept() -> None:
    found = messages_of(
        record(user("a" * 50), agent("b" * 50), user("c" * 50)), max_chars=99, takes_urls=True
    )
    assert (told(found.messages), found.is_cut) == ([("user", "c" * 50)], True)


def test_of_one_message_that_is_too_long_the_beginning_and_the_end_are_kept() -> None:
    [(_, text)] = told(shown(record(user("a" * 50 + "b" * 50)), max_chars=20))
    assert text == "a" * 10 + "\n[…]\n" + "b" * 10


def test_images_are_decoded_and_addresses_are_passed_on_only_where_the_server_loads_them() -> None:
    data = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    urls = [data, "https://example.org/a.png", "data:image/png;base64,???", "data:text/html,hello"]
    found = record(user("look", image_urls=urls))
    [message] = shown(found)
    [part] = message.parts
    kinds = [type(each) for each in _content(part)]
    assert kinds == [str, BinaryContent, ImageUrl, str, str]
    assert "(An image at https://example.org/a.png)" in told(shown(found, takes_urls=False))[0][1]


def test_only_the_newest_images_are_sent() -> None:
    data = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    found = record(*(user(f"{number}", image_urls=[data]) for number in range(images.IMAGES_MAX + 2)))
    [(_, text)] = told(shown(found))
    assert (text.count("<image>"), text.count(images.LEFT_OUT)) == (images.IMAGES_MAX, 2)
    assert text.index(images.LEFT_OUT) < text.index("<image>")


def test_files_are_shown_as_what_they_are() -> None:
    files = [
        File(name="a.txt", size=5, content=b"hello"),
        File(name="a.bin", size=1, content=b"\xff"),
        File(name="b.txt", size=9, content=None),
        File(name="a.png", size=8, content=PIXEL),
    ]
    [(_, text)] = told(shown(record(user("look"), files=files)))
    assert "`a.txt` (5 bytes):\n\nhello" in text
    assert "`a.bin` (1 bytes) is not shown: it is no text." in text
    assert "`b.txt` (9 bytes) is not shown: the files are too long." in text
    assert "`a.png` (8 bytes):\n<image>" in text


def test_a_turn_sees_its_inputs_last_and_no_later_ones() -> None:
    log = [
        event(0, user("first")),
        event(1, user("second")),
        event(2, agent("answer to the first"), turn="t1"),
        event(3, user("third")),
        event(4, agent("begun"), turn="t2"),
    ]
    found = ordered(log, turn_id="t2", inputs=[1], seen={})
    assert [each["seq"] for each in found] == [0, 2, 1, 4]
    found = ordered(log, turn_id="t3", inputs=[3], seen={})
    assert [each["seq"] for each in found] == [0, 1, 2, 4, 3]


def test_the_prompt_names_the_repository_and_repeats_the_instructions() -> None:
    found = Record(repository="me/it", branch="main", instructions="Be brief.", suffix="Be kind.")
    text = prompts.instructions(found)
    assert all(each in text for each in ("me/it", "main", "Be brief.", "Be kind."))


def parts(messages: list[ModelMessage]) -> list[tuple[str, str]]:
    """Return the kinds of all parts, each with the call that it is about."""
    return [(part.part_kind, getattr(part, "tool_call_id", "")) for each in messages for part in each.parts]


def test_calls_of_tools_that_are_offered_are_shown_as_calls_with_their_results() -> None:
    log = [event(0, user("Go.")), event(1, call("ls")), event(2, result("ls", "a b"), cause=1)]
    found = shown(Record(events=log), tools=["run"])
    assert parts(found) == [
        ("user-prompt", ""),
        ("tool-call", "call00001"),
        ("tool-return", "call00001"),
    ]


def test_a_call_without_a_result_gets_a_sentence_in_its_place() -> None:
    log = [event(0, user("Go.")), event(1, call("ls")), event(2, user("And?"))]
    found = shown(Record(events=log), tools=["run"])
    assert parts(found)[2:] == [("tool-return", "call00001"), ("user-prompt", "")]
    assert "it was interrupted" in str(found[-1])


def test_a_result_is_never_shown_without_its_call() -> None:
    log = [event(0, user("Go.")), event(1, call("x" * 900)), event(2, result("x" * 900, "y" * 900), cause=1)]
    log += [event(3, agent("z" * 2_500)), event(4, user("And?"))]
    found = shown(Record(events=log), max_chars=4_000, tools=["run"])
    assert [kind for kind, _ in parts(found)] == ["user-prompt", "text", "user-prompt"]


@given(
    payloads=st.lists(PAYLOADS, min_size=1, max_size=16),
    kept_chars=st.integers(0, 2_000),
    asks=st.sets(st.integers(0, 15)),
    summary=TEXTS.filter(str.strip),
)
def test_a_condensation_parts_no_call_from_its_result_and_keeps_what_is_answered(
    payloads: list[dict[str, Any]], kept_chars: int, asks: set[int], summary: str
) -> None:
    found = record(*payloads)
    inputs = [seq for seq in sorted(asks) if seq < len(payloads) and payloads[seq].get("source") == "user"]
    older, newer = condensing.parted(found, inputs=inputs, kept_chars=kept_chars)
    assert sorted(each["seq"] for each in (*older, *newer)) == [each["seq"] for each in found.events]
    assert not {each["seq"] for each in older} & set(inputs)
    sides = {each["seq"]: each in older for each in found.events}
    calls = {}
    for each in found.events:
        if each["tool_call_id"] is None:
            continue
        if each["kind"] == "tool_call":
            calls[each["tool_call_id"]] = each["seq"]
        elif each["tool_call_id"] in calls:
            assert sides[each["seq"]] == sides[calls[each["tool_call_id"]]]
    if older:
        forgotten = frozenset(each["id"] for each in older)
        messages = shown(record(*payloads, forgotten=forgotten, summary=summary))
        assert told(messages)[0][1].startswith(f"A summary of the earlier conversation:\n\n{summary}")
