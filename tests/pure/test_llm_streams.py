"""Answers of models as bytes: cut and split anywhere, numbered in any way, with empty events between."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions_app.agents.llm.models import Wire
from sessions_app.agents.llm.streams import events as stream_events
from sessions_app.agents.llm.streams.answer import AnswerStream, End, TooManyCalls
from sessions_app.agents.llm.streams.anthropic import AnthropicAnswer
from sessions_app.agents.llm.streams.events import EventParser, UnreadableAnswer
from sessions_app.agents.llm.streams.google import GoogleAnswer
from sessions_app.agents.llm.streams.openai import OpenAIAnswer

STREAMS: Mapping[Wire, type[AnswerStream]] = {
    Wire.OPENAI: OpenAIAnswer,
    Wire.ANTHROPIC: AnthropicAnswer,
    Wire.GOOGLE: GoogleAnswer,
}
WANTED = [("look", {"at": 'a } \\ " ü'}), ("look", {"at": ["b", {}]}), ("ping", {})]
TEXT, THOUGHT = "Let me look … both.", "Two places: ä."


class Read(NamedTuple):
    """What was read of an answer."""

    end: End
    text: str
    thought: str
    complete: list[tuple[str, object]]
    """The calls that are complete, with what their arguments say."""


def read(stream: AnswerStream, parts: Sequence[bytes]) -> Read:
    written = b"".join([*map(stream.feed, parts), stream.close()])
    said = [each for data in _parsed(written) for each in _said(json.loads(data))]
    return Read(
        stream.end,
        "".join(text for text, is_thought in said if not is_thought),
        "".join(text for text, is_thought in said if is_thought),
        [(call.name, json.loads(call.arguments)) for call in stream.calls if call.is_complete],
    )


def _parsed(written: bytes) -> list[str]:
    parser = EventParser()
    return [*parser.feed(written), *parser.close()]


def _said(event: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the pieces that a library gets of an event, each with whether it is reasoning."""
    delta = event["choices"][0]["delta"] if event.get("choices") else event.get("delta", {})
    delta = event.get("content_block", delta)
    for name, is_thought in (
        ("content", False),
        ("reasoning_content", True),
        ("text", False),
        ("thinking", True),
    ):
        if name in delta:
            yield delta[name], is_thought
    for candidate in event.get("candidates", ()):
        for part in candidate["content"].get("parts", ()):
            yield part["text"], part.get("thought", False)


def event_of(fields: Mapping[str, Any]) -> str:
    name = f"event: {fields['type']}\n" if "type" in fields else ""
    return f"{name}data: {json.dumps(fields, ensure_ascii=False)}\n\n"


def chunk(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"id": "a", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def openai_events() -> list[str]:
    text = [f"<think>{THOUGHT[:4]}", f"{THOUGHT[4:]}</th", f"ink>\n\n{TEXT[:7]}", TEXT[7:]]
    pieces = [
        {"index": index, "id": f"c{index}", "function": {"name": name, "arguments": piece}}
        if not number
        else {"index": index, "function": {"arguments": piece}}
        for index, (name, arguments) in enumerate(WANTED)
        for number, piece in enumerate(_halves(json.dumps(arguments)))
    ]
    return [
        *(event_of(chunk({"content": piece})) for piece in text),
        *(event_of(chunk({"tool_calls": [piece]})) for piece in pieces),
        event_of(chunk({}, "tool_calls")),
        event_of({"id": "a", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
        "data: [DONE]\n\n",
    ]


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def block_events(index: int, block: Mapping[str, Any], deltas: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        event_of({"type": "content_block_start", "index": index, "content_block": block}),
        *(event_of({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas),
        event_of({"type": "content_block_stop", "index": index}),
    ]


def anthropic_events(indexes: Sequence[int] = range(5), reason: str = "tool_use") -> list[str]:
    thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in _halves(THOUGHT)]
    texts = [{"type": "text_delta", "text": piece} for piece in _halves(TEXT)]
    signed = {"type": "signature_delta", "signature": "c2ln"}
    blocks: list[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]] = [
        ({"type": "thinking", "thinking": ""}, [*thoughts, signed]),
        ({"type": "text", "text": ""}, texts),
    ]
    for number, (name, arguments) in enumerate(WANTED):
        pieces: Sequence[str] = _halves(json.dumps(arguments)) if arguments else [""]
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        block: dict[str, Any] = {"type": "tool_use", "id": f"t{number}", "name": name, "input": {}}
        blocks.append((block, deltas))
    return [
        event_of({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}}),
        *(
            event
            for index, (block, deltas) in zip(indexes, blocks, strict=True)
            for event in block_events(index, block, deltas)
        ),
        event_of({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}}),
        event_of({"type": "message_stop"}),
    ]


def google_events(reason: str = "STOP") -> list[str]:
    parts: list[dict[str, Any]] = [{"text": THOUGHT, "thought": True}]
    parts += [{"text": piece} for piece in _halves(TEXT)]
    parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in WANTED]
    candidates = [{"content": {"role": "model", "parts": [part]}} for part in parts]
    return [
        *(event_of({"candidates": [candidate]}) for candidate in candidates),
        event_of({"candidates": [{"finishReason": reason}], "usageMetadata": {"promptTokenCount": 1}}),
    ]


EVENTS: Mapping[Wire, Callable[[], list[str]]] = {
    Wire.OPENAI: openai_events,
    Wire.ANTHROPIC: anthropic_events,
    Wire.GOOGLE: google_events,
}
ENDING: Mapping[Wire, str] = {
    Wire.OPENAI: '"tool_calls"}]}',
    Wire.ANTHROPIC: '"usage": {"output_tokens": 2}}',
    Wire.GOOGLE: '"usageMetadata": {"promptTokenCount": 1}}',
}
"""The end of the event that says that an answer is over."""
WHOLE = Read(End.WHOLE, TEXT, THOUGHT, [(name, arguments) for name, arguments in WANTED])


@pytest.mark.parametrize("wire", list(Wire))
def test_of_an_answer_that_is_cut_at_any_byte_no_call_is_complete_before_its_end_was_told(wire: Wire) -> None:
    body = "".join(EVENTS[wire]()).encode()
    over = body.index(ENDING[wire].encode()) + len(ENDING[wire])
    for size in range(len(body) + 1):
        found = read(STREAMS[wire](), [body[:size]])
        if size >= over:
            assert found == WHOLE, size
        else:
            assert (found.end, found.complete) == (End.NONE, []), size
            assert TEXT.startswith(found.text), size
            assert THOUGHT.startswith(found.thought), size


@pytest.mark.parametrize("wire", list(Wire))
def test_an_answer_that_is_split_at_any_byte_is_read_as_if_it_were_not(wire: Wire) -> None:
    body = "".join(EVENTS[wire]()).encode()
    for size in range(len(body) + 1):
        assert read(STREAMS[wire](), [body[:size], body[size:]]) == WHOLE, size
    assert read(STREAMS[wire](), [bytes([byte]) for byte in body]) == WHOLE


QUIET = [
    ": ping\n\n",
    ":\n\n",
    "retry: 3000\n\n",
    "id: 7\n\n",
    "event: ping\n\n",
    "data:\n\n",
    "\n\n",
    "data\n\n",
]


@pytest.mark.parametrize("wire", list(Wire))
@given(data=st.data())
@settings(max_examples=60, derandomize=True, deadline=None)
def test_events_without_data_and_any_line_ends_change_nothing(wire: Wire, data: st.DataObject) -> None:
    quiet = st.lists(st.sampled_from(QUIET), max_size=2).map("".join)
    text = "".join(data.draw(quiet) + event for event in EVENTS[wire]()) + data.draw(quiet)
    body = text.replace("\n", data.draw(st.sampled_from(["\n", "\r\n", "\r"]))).encode()
    mark = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    size = data.draw(st.integers(1, 40))
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    assert read(STREAMS[wire](), [mark, *parts]) == WHOLE


@given(indexes=st.permutations(range(5)) | st.just([0] * 5) | st.just([7, 7, 3, 3, 9]))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_blocks_may_have_any_numbers(indexes: list[int]) -> None:
    assert read(AnthropicAnswer(), ["".join(anthropic_events(indexes)).encode()]) == WHOLE


def numbered(
    calls: Sequence[tuple[str, dict[str, Any]]], how: str, ids: str, random_: random.Random
) -> list[dict[str, Any]]:
    """Return the pieces of calls in one of the ways in which servers number them."""
    queues = []
    order = random_.sample(range(10), len(calls))
    for number, (name, arguments) in enumerate(calls):
        text = json.dumps(arguments)
        cuts = sorted(random_.choices(range(1, len(text) + 1), k=2))
        pieces = [text[: cuts[0]], text[cuts[0] : cuts[1]], text[cuts[1] :]]
        queues.append(list[dict[str, Any]]())
        for place, piece in enumerate(pieces):
            fields: dict[str, Any] = {"function": {"arguments": piece}}
            index = {"own": order[number], "zero": 0, "anew": place, "none": None}[how]
            if index is not None:
                fields["index"] = index
            if ids == "every" or (ids == "first" and not place):
                fields["id"] = f"c{number}"
            if not place or (ids == "none" and how != "anew"):  # else each piece looks like a new call
                fields["function"]["name"] = name
            queues[-1].append(fields)
    if how != "own":
        return [piece for queue in queues for piece in queue]
    found = []
    while left := [queue for queue in queues if queue]:
        found.append(random_.choice(left).pop(0))
    return found


@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(["look", "find"]), st.dictionaries(st.text(max_size=3), st.text(), max_size=2)
        ),
        min_size=1,
        max_size=4,
    ),
    how=st.sampled_from(["own", "zero", "none", "anew"]),
    ids=st.sampled_from(["first", "every", "none"]),
    random_=st.randoms(use_true_random=False),
)
@settings(max_examples=300, derandomize=True, deadline=None)
def test_each_call_has_its_own_arguments_however_its_pieces_are_numbered(
    calls: list[tuple[str, dict[str, Any]]], how: str, ids: str, random_: random.Random
) -> None:
    pieces = numbered(calls, how, ids, random_)
    events = [event_of(chunk({"tool_calls": [piece]})) for piece in pieces]
    found = read(OpenAIAnswer(), ["".join([*events, event_of(chunk({}, "tool_calls"))]).encode()])
    assert sorted(map(repr, found.complete)) == sorted(map(repr, calls))


def piece(index: object, arguments: object, name: str = "", call_id: str | None = "") -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def of_openai(pieces: Sequence[Mapping[str, Any]], reason: str | None = "tool_calls") -> AnswerStream:
    stream = OpenAIAnswer()
    for each in [*(chunk({"tool_calls": [each]}) for each in pieces), chunk({}, reason)]:
        stream.feed(event_of(each).encode())
    stream.close()
    return stream


ONE = [("look", '{"at": 1}')]
CALLS: Mapping[str, tuple[Sequence[Mapping[str, Any]], list[tuple[str, str]]]] = {
    "numbers that no call has": (
        [piece(0, "", "look", "a"), piece(1, '{"at"'), piece(2, ": 1}")],
        ONE,
    ),
    "a name that is repeated": (
        [piece(0, '{"at"', "look", "a"), piece(0, ": 1", "look", None), piece(0, "}", "", "")],
        ONE,
    ),
    "an id for each piece": (
        [piece(0, '{"at"', "look", "a"), piece(0, ": 1", "", "b"), piece(0, "}", "", "c")],
        ONE,
    ),
    "a name after the id": ([piece(0, "", "", "a"), piece(0, '{"at": 1}', "look", "")], ONE),
    "arguments before the name": ([piece(0, '{"at": 1}'), piece(0, "", "look", "a")], ONE),
    "an object": ([piece(0, {"at": 1}, "look", "a")], ONE),
    "one that comes twice": (
        [piece(0, '{"at": 1}', "look", "a"), piece(0, '{"at": 1}', "look", "a")],
        ONE,
    ),
    "one that is repeated on purpose": (
        [piece(0, '{"at": 1}', "look", "a"), piece(0, '{"at": 1}', "look", "b")],
        ONE * 2,
    ),
    "the same id twice": (
        [piece(0, '{"at": 1}', "look", "a"), piece(1, '{"at": 2}', "look", "a")],
        [*ONE, ("look", '{"at": 2}')],
    ),
    "nothing, and null": (
        [piece(0, "", "ping", "a"), piece(1, None, "ping", "b"), piece(2, "null", "ping", "c")],
        [("ping", "{}")] * 3,
    ),
    "arguments that fit two calls": (
        [piece(0, "", "look", "a"), piece(1, "", "find", "b"), piece(5, '{"at": 1}')],
        [],
    ),
    "arguments after the last call was whole": ([piece(0, "{}", "look", "a"), piece(4, '{"at": 1}')], []),
}


def test_a_call_that_is_written_in_an_odd_way_is_read_or_not_complete(subtests: pytest.Subtests) -> None:
    for what, (pieces, expected) in CALLS.items():
        with subtests.test(what):
            found = of_openai(pieces).calls
            assert [(call.name, call.arguments) for call in found if call.is_complete] == expected


def test_a_call_without_arguments_is_none_that_takes_nothing_unless_the_server_says_that_it_is_over(
    subtests: pytest.Subtests,
) -> None:
    for reason, arguments in (("tool_calls", "{}"), ("stop", ""), ("eos", "")):
        with subtests.test(reason):
            assert of_openai([piece(0, "", "look", "a")], reason).calls[0].arguments == arguments


REASONS = {
    End.WHOLE: ["stop", "STOP", "eos_token", "end_turn", "stop_sequence", "a new one", "tool_calls"],
    End.LENGTH: ["length", "MAX_TOKENS", "model_length", "model_context_window_exceeded"],
    End.FILTERED: ["content_filter", "SAFETY", "refusal", "RECITATION", "PROHIBITED_CONTENT"],
    End.PAUSED: ["pause_turn"],
    End.MALFORMED: ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"],
    End.FAILED: ["error"],
    End.NONE: ["", "FINISH_REASON_UNSPECIFIED"],
}


def test_the_reason_that_a_server_names_is_what_ended_the_answer(subtests: pytest.Subtests) -> None:
    for end, reasons in REASONS.items():
        for reason in reasons:
            answers = {
                Wire.OPENAI: event_of(chunk({"content": "a"}, reason)),
                Wire.ANTHROPIC: event_of({"type": "message_delta", "delta": {"stop_reason": reason}}),
                Wire.GOOGLE: "".join(google_events(reason)),
            }
            for wire, answer in answers.items():
                with subtests.test(reason, wire=wire):
                    assert read(STREAMS[wire](), [answer.encode()]).end is end


def test_a_mark_of_the_end_is_one_without_a_reason_too(subtests: pytest.Subtests) -> None:
    marks = {Wire.OPENAI: "data: [DONE]\n\n", Wire.ANTHROPIC: event_of({"type": "message_stop"})}
    for wire, mark in marks.items():
        with subtests.test(wire):
            later = event_of(chunk({"content": "more"}))
            assert read(STREAMS[wire](), [f"{mark}{later}".encode()]) == Read(End.WHOLE, "", "", [])


def test_at_the_limit_of_length_only_those_calls_are_complete_of_which_the_wire_says_so(
    subtests: pytest.Subtests,
) -> None:
    last = {"type": "tool_use", "name": "look", "input": {}}
    events = anthropic_events(reason="max_tokens")
    cut = {
        "openai": ([*openai_events()[:-3], event_of(chunk({}, "length"))], OpenAIAnswer, 0),
        "a call that was stopped": (events, AnthropicAnswer, 2),
        "none that has nothing, and a call after it": (
            [*events[:-2], *block_events(9, last, []), *events[-2:]],
            AnthropicAnswer,
            3,
        ),
        "google": (google_events("MAX_TOKENS"), GoogleAnswer, 3),
        "refused": (anthropic_events(reason="refusal"), AnthropicAnswer, 0),
        "filtered": (google_events("SAFETY"), GoogleAnswer, 0),
    }
    for what, (parts, stream, count) in cut.items():
        with subtests.test(what):
            assert read(stream(), ["".join(parts).encode()]).complete == WANTED[:count]


TAGS = {
    "<think>hm</think>\n\nAnswer": ("Answer", "hm"),
    "I look.<think>hm</think> Answer": ("I look. Answer", "hm"),
    "<think>a</think>b<think>c</think>d": ("bd", "ac"),
    "The tag `<think>` is a name.": ("The tag `<think>` is a name.", ""),
    "```\n<think>\n```": ("```\n<think>\n```", ""),
    "a < b <thin> c": ("a < b <thin> c", ""),
    "2 <": ("2 <", ""),
    "<think>a</thin</think>b": ("b", "a</thin"),
}


def test_text_between_tags_is_reasoning_however_it_is_split(subtests: pytest.Subtests) -> None:
    for text, expected in TAGS.items():
        for size in (1, 2, 3, 7, len(text)):
            with subtests.test(text, size=size):
                pieces = [text[start : start + size] for start in range(0, len(text), size)]
                events = [event_of(chunk({"content": each})) for each in pieces]
                body = "".join([*events, event_of(chunk({}, "stop"))]).encode()
                found = read(OpenAIAnswer(), [body])
                assert (found.text, found.thought) == expected


UNSTREAMED: Mapping[Wire, object] = {
    Wire.OPENAI: {
        "choices": [
            {
                "message": {
                    "content": f"<think>{THOUGHT}</think>{TEXT}",
                    "tool_calls": [
                        {"id": name, "function": {"name": name, "arguments": json.dumps(arguments)}}
                        for name, arguments in (("a", {"at": 1}), ("b", {}))
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    Wire.ANTHROPIC: {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"},
            {"type": "text", "text": TEXT},
            {"type": "tool_use", "name": "a", "input": {"at": 1}},
            {"type": "tool_use", "name": "b", "input": {}},
        ],
        "stop_reason": "tool_use",
    },
    Wire.GOOGLE: [
        {"candidates": [{"content": {"parts": [{"text": THOUGHT, "thought": True}, {"text": TEXT}]}}]},
        {
            "candidates": [
                {
                    "content": {"parts": [{"functionCall": {"name": "a", "args": {"at": 1}}}]},
                    "finishReason": "STOP",
                }
            ]
        },
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "b"}}]}, "finishReason": "STOP"}]},
    ],
}


def test_an_answer_that_is_not_streamed_is_read(subtests: pytest.Subtests) -> None:
    for wire, answer in UNSTREAMED.items():
        body = json.dumps(answer, indent=1).encode()
        for parts in ([body], [b"\n", body[:50], body[50:]]):
            with subtests.test(wire, parts=len(parts)):
                found = read(STREAMS[wire](), parts)
                assert (found.end, found.text, found.thought) == (End.WHOLE, TEXT, THOUGHT)
                assert found.complete == [("a", {"at": 1}), ("b", {})]


def test_what_is_no_answer_is_refused(subtests: pytest.Subtests) -> None:
    for what, body in {"cut": b'{"choices": [', "text": b'["a"]', "deep": b"[" * 100_000}.items():
        with subtests.test(what), pytest.raises(UnreadableAnswer):
            read(OpenAIAnswer(), [body])
    with pytest.raises(UnreadableAnswer):
        OpenAIAnswer().feed(b"data: no JSON\n\n")


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_events, "EVENT_MAX_BYTES", 100)
    with pytest.raises(UnreadableAnswer):
        OpenAIAnswer().feed(b"data: " + b"a" * 200)
    monkeypatch.undo()
    for count, arguments in ((201, {}), (3, {"at": "a" * 400_000})):
        parts = [{"functionCall": {"name": "look", "args": arguments}}] * count
        with pytest.raises(TooManyCalls):
            GoogleAnswer().feed(event_of({"candidates": [{"content": {"parts": parts}}]}).encode())


def test_a_server_that_sends_the_whole_message_as_well_says_nothing_twice(subtests: pytest.Subtests) -> None:
    whole = {"role": "assistant", "content": "Hello."}
    last = {
        "in the last chunk": chunk(whole, "stop"),
        "beside an empty piece": {"choices": [{"delta": {}, "message": whole, "finish_reason": "stop"}]},
    }
    for what, end in last.items():
        with subtests.test(what):
            events = [chunk({"role": "assistant"}), chunk({"content": "Hel"}), chunk({"content": "lo."}), end]
            assert read(OpenAIAnswer(), ["".join(map(event_of, events)).encode()]).text == "Hello."
    assert read(OpenAIAnswer(), [event_of(chunk(whole, "stop")).encode()]).text == "Hello."


def test_a_second_reason_does_not_make_a_cut_answer_whole() -> None:
    events = [chunk({"tool_calls": [piece(0, "{}", "look", "a")]}), chunk({}, "length"), chunk({}, "stop")]
    found = read(OpenAIAnswer(), ["".join(map(event_of, events)).encode()])
    assert (found.end, found.complete) == (End.LENGTH, [])


def test_calls_of_an_answer_that_is_not_streamed_are_told_apart_without_ids() -> None:
    calls = [{"function": {"name": "ping", "arguments": ""}}] * 2
    answer = {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    assert read(OpenAIAnswer(), [json.dumps(answer).encode()]).complete == [("ping", {})] * 2
