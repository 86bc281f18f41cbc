"""Turns whose model ends an answer early, oddly or not at all: what runs, and what is said and asked next."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app.agents.llm import agent as llm_agent
from sessions_app.agents.llm import endings, prompts, requests
from sessions_app.agents.llm.streams.answer import AnswerStream
from sessions_app.agents.llm.tools import calls
from tests.conftest import Join
from tests.store.test_llm_tools import called, give, program, ran, results_of
from tests.support.people.model_talks import answers_of, events, model, notices_of, said
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import DONE, Answer, chunk, completion, used

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

CLAUDE, GEMINI = "anthropic/claude-x", "gemini/gemini-x"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let failed requests be repeated at once."""
    monkeypatch.setattr(llm_agent, "WAITS_S", (0.0, 0.0, 0.0, 0.0))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The file in which the counting program leaves a line for each run."""
    return tmp_path / "runs"


def streamed(*chunks: str) -> Answer:
    return Answer(stream=[*chunks, DONE])


def ended(text: str, reason: str) -> Answer:
    return streamed(chunk({"content": text}), chunk({}, finish_reason=reason), used(7, 3))


def begun_call(name: str, arguments: str = "", index: int = 0) -> str:
    function = {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]})


def anthropic_events(*blocks: Mapping[str, Any], reason: str = "end_turn") -> list[str]:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-x", "content": []}
    usage = {"input_tokens": 7, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "usage": usage}}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}})
    events.append({"type": "message_stop"})
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events]


def anthropic(*blocks: Mapping[str, Any], reason: str = "end_turn") -> Answer:
    return Answer(stream=anthropic_events(*blocks, reason=reason))


def gemini_events(*parts: Mapping[str, Any], reason: str = "STOP") -> list[str]:
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
    bodies: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in parts
    ]
    last = {"candidates": [{"content": {}, "finishReason": reason, "index": 0}], "usageMetadata": usage}
    return [f"data: {json.dumps(body)}\r\n\r\n" for body in [*bodies, last]]


def gemini(*parts: Mapping[str, Any], reason: str = "STOP") -> Answer:
    return Answer(stream=gemini_events(*parts, reason=reason))


SUMS = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
WHOLE: Mapping[str, tuple[list[str], Answer]] = {
    "openai/gpt-x": (
        [
            chunk({"content": "I add."}),
            ": processing\n\n",
            *(begun_call("add", json.dumps(each), index) for index, each in enumerate(SUMS)),
            chunk({}, finish_reason="tool_calls"),
        ],
        completion(["Done."]),
    ),
    CLAUDE: (
        anthropic_events(
            {"type": "text", "text": "I add."},
            *({"type": "tool_use", "id": f"t{each['a']}", "name": "add", "input": each} for each in SUMS),
            reason="tool_use",
        )[:-1],
        anthropic({"type": "text", "text": "Done."}),
    ),
    GEMINI: (
        gemini_events(
            {"text": "I add."}, *({"functionCall": {"name": "add", "args": each}} for each in SUMS)
        ),
        gemini({"text": "Done."}),
    ),
}
"""An answer of each wire that wants two calls, the last event says so, and the answer that follows."""


async def test_of_an_answer_that_is_cut_anywhere_nothing_runs_and_nothing_is_said_twice(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path, subtests: pytest.Subtests
) -> None:
    await give(alice, program("counting", runs))
    client = await join(v0_talk)
    for name, (parts, answer) in WHOLE.items():
        body = "".join(parts)
        for tenths in (0, 3, 6, 9, 10):
            before = len(ran(runs))
            size = len(body) * tenths // 10
            with subtests.test(name, tenths=tenths):
                async with model(alice, Answer(stream=[body[:size] or ":\n\n"]), answer, name=name) as asked:
                    frames = await said(client, f"Add, {name} {tenths}.")
                is_whole = size == len(body)
                assert ran(runs)[before:] == (["add 1 2", "add 3 4"] if is_whole else [])
                assert "".join(answers_of(frames)) in ("Done.", "I add.Done.")
                assert len(asked) == 2
                assert len(called(frames)) == (2 if is_whole else 0)
                assert events(frames, "turn")[0]["text"] != "error"


CUT_CALLS: Mapping[str, tuple[str, Answer]] = {
    "before its arguments": (
        "openai/gpt-x",
        streamed(begun_call("add"), chunk({}, finish_reason="length")),
    ),
    "in its arguments": (
        "openai/gpt-x",
        streamed(begun_call("add", '{"a": 1'), chunk({}, finish_reason="length")),
    ),
    "after one that looks whole": (
        "openai/gpt-x",
        streamed(
            begun_call("add", '{"a": 1, "b": 2}'),
            begun_call("add", "", 1),
            chunk({}, finish_reason="length"),
        ),
    ),
    "the last one of Anthropic's": (
        CLAUDE,
        anthropic({"type": "tool_use", "id": "t", "name": "add", "input": {}}, reason="max_tokens"),
    ),
}


async def test_a_call_that_the_limit_of_length_cut_is_not_run_and_the_model_is_told(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path, subtests: pytest.Subtests
) -> None:
    await give(alice, program("counting", runs))
    client = await join(v0_talk)
    for what, (name, answer) in CUT_CALLS.items():
        with subtests.test(what):
            async with model(alice, answer, WHOLE[name][1], name=name) as asked:
                frames = await said(client, f"Add, {what}.")
            assert ran(runs) == []
            assert set(results_of(frames)) == {calls.CUT_SHORT}
            assert calls.CUT_SHORT in json.dumps(asked[1].body)
            assert answers_of(frames) == ["Done."]


async def test_calls_that_are_complete_before_the_limit_of_length_run(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    wanted = {"type": "tool_use", "id": "t1", "name": "add", "input": SUMS[0]}
    cut = {"type": "tool_use", "id": "t2", "name": "add", "input": {}}
    answer = anthropic(wanted, cut, reason="max_tokens")
    async with model(alice, answer, WHOLE[CLAUDE][1], name=CLAUDE):
        frames = await said(await join(v0_talk), "Add.")
    assert ran(runs) == ["add 1 2"]
    assert results_of(frames) == ["3", calls.CUT_SHORT]


async def test_a_model_whose_calls_are_always_cut_is_not_asked_for_ever(
    talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    answers = [CUT_CALLS["before its arguments"][1], CUT_CALLS["in its arguments"][1]] * 2
    async with model(alice, *answers) as asked:
        frames = await said(await join(talk), "Add.")
    assert len(asked) == endings.EARLY_MAX
    assert ran(runs) == []
    assert (notices_of(frames), answers_of(frames)) == ([prompts.EARLY_NOTICE], [])


async def test_a_filter_that_ends_an_answer_in_a_call_runs_nothing(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    answer = streamed(begun_call("add", '{"a": 1, "b": 2}'), chunk({}, finish_reason="content_filter"))
    async with model(alice, answer, completion(["I can't."])):
        frames = await said(await join(v0_talk), "Add.")
    assert (ran(runs), results_of(frames)) == ([], [calls.FILTERED])
    assert answers_of(frames) == ["I can't."]


async def test_each_call_runs_once_however_a_server_numbers_them(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    pieces: list[dict[str, Any]] = [
        {"index": 0, "id": "a", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
        {"index": 0, "id": "b", "function": {"name": "add", "arguments": '{"a": 3, '}},
        {"index": 7, "id": None, "function": {"arguments": '"b": 4}'}},
    ]
    answer = streamed(*(chunk({"tool_calls": [each]}) for each in pieces), chunk({}, finish_reason="stop"))
    async with model(alice, answer, completion(["Done."])):
        frames = await said(await join(v0_talk), "Add.")
    assert ran(runs) == ["add 1 2", "add 3 4"]
    assert results_of(frames) == ["3", "7"]


BEGUN = {"text": "Half an"}
ENDED: Mapping[str, tuple[str, Answer, str]] = {
    "length": ("openai/gpt-x", ended("Half an", "length"), prompts.LENGTH_NOTICE),
    "max_tokens": (
        CLAUDE,
        anthropic({"type": "text", **BEGUN}, reason="max_tokens"),
        prompts.LENGTH_NOTICE,
    ),
    "MAX_TOKENS": (GEMINI, gemini(BEGUN, reason="MAX_TOKENS"), prompts.LENGTH_NOTICE),
    "content_filter": ("openai/gpt-x", ended("Half an", "content_filter"), prompts.FILTER_NOTICE),
    "refusal": (CLAUDE, anthropic({"type": "text", **BEGUN}, reason="refusal"), prompts.FILTER_NOTICE),
    "SAFETY": (GEMINI, gemini(BEGUN, reason="SAFETY"), prompts.FILTER_NOTICE),
}


async def test_an_answer_that_a_limit_or_a_filter_ended_says_so_and_what_to_do(
    talk: ConversationRef, alice: User, join: Join, subtests: pytest.Subtests
) -> None:
    client = await join(talk)
    for reason, (name, answer, notice) in ENDED.items():
        with subtests.test(reason):
            async with model(alice, answer, WHOLE[name][1], name=name) as asked:
                frames = await said(client, f"Tell me, {reason}.")
                assert (answers_of(frames), notices_of(frames)) == (["Half an"], [notice])
                assert len(asked) == 1
                await said(client, "Continue")
            assert "Half an" in json.dumps(asked[1].body)
            sent = json.dumps(asked[1].body, ensure_ascii=False)
            assert notice not in sent


async def test_a_pause_of_the_server_is_continued(v0_talk: ConversationRef, alice: User, join: Join) -> None:
    paused = anthropic({"type": "text", "text": "I looked "}, reason="pause_turn")
    async with model(alice, paused, anthropic({"type": "text", "text": "and found."}), name=CLAUDE) as asked:
        frames = await said(await join(v0_talk), "Look.")
    assert (answers_of(frames), len(asked)) == (["I looked ", "and found."], 2)


async def test_an_answer_without_a_word_is_asked_for_again_and_not_for_ever(
    v0_talk: ConversationRef, alice: User, join: Join, subtests: pytest.Subtests
) -> None:
    client = await join(v0_talk)
    answers = {
        "malformed": (GEMINI, gemini(reason="MALFORMED_FUNCTION_CALL")),
        "empty": (GEMINI, gemini()),
        "only reasoning": ("openai/gpt-x", completion([], reasoning=["hm"])),
    }
    for what, (name, answer) in answers.items():
        with subtests.test(what):
            async with model(alice, answer, WHOLE[name][1], name=name) as asked:
                frames = await said(client, f"Tell me, {what}.")
            assert (answers_of(frames), len(asked)) == (["Done."], 2)
    async with model(alice, gemini(), name=GEMINI) as asked:
        await said(client, "Tell me.")
    assert len(asked) == 1 + requests.FRUITLESS_TRIES


async def test_an_answer_is_resumed_that_closed_without_an_end(
    v0_talk: ConversationRef, alice: User, join: Join, subtests: pytest.Subtests
) -> None:
    client = await join(v0_talk)
    cut = {
        "openai/gpt-x": Answer(stream=[chunk({"content": "Half "}), used(7, 3)]),
        CLAUDE: Answer(stream=anthropic_events({"type": "text", "text": "Half "})[:-2]),
        GEMINI: Answer(stream=gemini_events({"text": "Half "})[:-1]),
    }
    for name, answer in cut.items():
        with subtests.test(name):
            async with model(alice, answer, WHOLE[name][1], name=name) as asked:
                frames = await said(client, f"Tell me, {name}.")
            assert (answers_of(frames), len(asked)) == (["Half ", "Done."], 2)
            assert prompts.CONTINUE in json.dumps(asked[1].body)


async def test_a_server_that_ends_no_answer_is_asked_few_times(
    v0_talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, Answer(stream=[chunk({"content": "All of it. "})])) as asked:
        frames = await said(await join(v0_talk), "Tell me.")
    assert len(asked) == len(answers_of(frames)) == 1 + requests.FRUITLESS_TRIES


async def test_any_reason_and_the_mark_of_the_end_end_an_answer(
    v0_talk: ConversationRef, alice: User, join: Join, subtests: pytest.Subtests
) -> None:
    client = await join(v0_talk)
    for reason in ("eos", "eos_token", "STOP", "end_turn", ""):
        with subtests.test(reason):
            answer = streamed(chunk({"content": "Hello."}), chunk({}, finish_reason=reason))
            async with model(alice, answer) as asked:
                frames = await said(client, f"Hello, {reason}.")
            assert (answers_of(frames), len(asked)) == (["Hello."], 1)


async def test_a_connection_that_stays_open_after_the_end_holds_no_turn(
    v0_talk: ConversationRef, alice: User, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnswerStream, "REST_S", 0.1)
    never = threading.Event()
    answer = Answer(stream=[chunk({"content": "Hello."}), chunk({}, finish_reason="stop"), never])
    async with model(alice, answer) as asked:
        frames = await said(await join(v0_talk), "Hello.")
    assert (answers_of(frames), len(asked)) == (["Hello."], 1)


async def test_an_answer_that_is_not_streamed_is_shown_and_its_calls_run(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    function = {"name": "add", "arguments": json.dumps(SUMS[0])}
    message = {"role": "assistant", "content": "I add.", "tool_calls": [{"id": "a", "function": function}]}
    body = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = Answer(body=gzip.compress(json.dumps(body).encode()), headers=headers)
    async with model(alice, answer, completion(["Done."])):
        frames = await said(await join(v0_talk), "Add.")
    assert ran(runs) == ["add 1 2"]
    assert answers_of(frames) == ["I add.", "Done."]


async def test_reasoning_between_tags_is_none_of_the_answer(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, completion(["<think>\nhm", "m\n</thi", "nk>\n\nPar", "is."])):
        frames = await said(await join(talk), "What is the capital of France?")
    [message] = events(frames, "message", "agent")
    assert message["text"] == "Paris."
    assert "hmm" in json.dumps(message["event"])
