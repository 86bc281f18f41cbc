"""What a model's server signs comes back to it with the next request, and to no other model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app.agents.llm.streams import signatures
from sessions_app.agents.llm.streams.signatures import Signed
from tests.conftest import Join
from tests.store.test_llm_endings import (
    CLAUDE,
    GEMINI,
    SUMS,
    anthropic,
    gemini,
    quick,
    runs,
    streamed,
)
from tests.store.test_llm_tools import both, careful, give, program, ran, until_asked
from tests.support.people.model_talks import answers_of, model, said
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import Answer, Asked, chunk, completion

pytestmark = pytest.mark.one_engine

__all__ = ["careful", "manager", "quick", "runs"]

GPT = "openai/gpt-x"
EXTRA = {"google": {"thought_signature": "c2lnbmVk"}}
THOUGHTS = [
    {"type": "thinking", "thinking": "I must add.", "signature": "c2lnbmVk"},
    {"type": "redacted_thinking", "data": "aGlkZGVu"},
]


def gpt_call(number: int, **members: Any) -> str:
    function = {"name": "add", "arguments": json.dumps(SUMS[number])}
    wanted = {"index": number, "id": f"c{number}", "function": function, **members}
    return chunk({"tool_calls": [wanted]})


SIGNED: Mapping[str, tuple[Answer, Answer]] = {
    GPT: (
        streamed(gpt_call(0, extra_content=EXTRA), gpt_call(1), chunk({}, finish_reason="tool_calls")),
        completion(["Done."]),
    ),
    CLAUDE: (
        anthropic(
            *THOUGHTS, {"type": "tool_use", "id": "t", "name": "add", "input": SUMS[0]}, reason="tool_use"
        ),
        anthropic({"type": "text", "text": "Done."}),
    ),
    GEMINI: (
        gemini({"functionCall": {"name": "add", "args": SUMS[0]}, "thoughtSignature": "c2lnbmVk"}),
        gemini({"text": "Done."}),
    ),
}


def parts_of(name: str, asked: Asked) -> Sequence[Any]:
    """Return what a request has of the model's own words, calls and thoughts."""
    body = asked.body
    if name == GEMINI:
        return [part for each in body["contents"] if each["role"] == "model" for part in each["parts"]]
    said = [each for each in body["messages"] if each["role"] == "assistant"]
    if name == CLAUDE:
        return [part for each in said for part in each["content"]]
    return [call for each in said for call in each["tool_calls"]]


async def test_what_a_server_has_signed_comes_back_to_it(
    talk: ConversationRef, alice: User, join: Join, runs: Path, subtests: pytest.Subtests
) -> None:
    await give(alice, program("counting", runs))
    client = await join(talk)
    for name, answers in SIGNED.items():
        with subtests.test(name):
            async with model(alice, *answers, name=name) as asked:
                frames = await said(client, f"Add, {name}.")
            assert answers_of(frames) == ["Done."]
            parts = parts_of(name, asked[1])
            if name == GPT:
                assert parts[-2]["extra_content"] == EXTRA
                assert "skip" in parts[-1]["extra_content"]["google"]["thought_signature"]
            elif name == CLAUDE:
                assert parts[-3:-1] == THOUGHTS
            else:
                assert parts[-1]["thoughtSignature"] == "c2lnbmVk"


async def test_details_of_reasoning_come_back_whole_beside_the_calls(
    talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    hidden = {"type": "reasoning.encrypted", "data": "aGlkZGVu", "id": "r1", "index": 1}
    pieces: list[dict[str, Any]] = [
        {"type": "reasoning.text", "text": "I must ", "index": 0, "signature": None},
        {"type": "reasoning.text", "text": "add.", "index": 0, "signature": "c2lnbmVk"},
        hidden,
    ]
    calling = streamed(
        *(chunk({"reasoning": each.get("text", ""), "reasoning_details": [each]}) for each in pieces),
        gpt_call(0),
        chunk({}, finish_reason="tool_calls"),
    )
    async with model(alice, calling, completion(["Done."]), name=GPT) as asked:
        await said(await join(talk), "Add.")
    answered = next(each for each in asked[1].body["messages"] if each["role"] == "assistant")
    whole = {"type": "reasoning.text", "text": "I must add.", "index": 0, "signature": "c2lnbmVk"}
    assert answered["reasoning_details"] == [whole, hidden]
    assert "c2lnbmVk" not in json.dumps(asked[0].body)


async def test_another_model_gets_nothing_that_it_has_not_signed(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    client = await join(v0_talk)
    for name, answers in SIGNED.items():
        async with model(alice, *answers, name=name):
            await said(client, f"Add, {name}.")
    for name, other in ((GPT, "openai/gpt-y"), (CLAUDE, "anthropic/claude-y"), (GEMINI, "gemini/gemini-y")):
        async with model(alice, SIGNED[name][1], name=other) as asked:
            await said(client, f"And now, {other}?")
        sent = json.dumps(asked[0].body)
        assert "c2lnbmVk" not in sent
        assert "aGlkZGVu" not in sent


@both
async def test_an_approved_call_keeps_what_was_signed(
    careful: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    answer = streamed(gpt_call(0, extra_content=EXTRA), chunk({}, finish_reason="tool_calls"))
    async with model(alice, answer, completion(["Done."])) as asked:
        client = await join(careful)
        await until_asked(client)
        await client.send({"type": "confirm", "id": 1, "accept": True})
        await client.until("event", kind="turn")
    assert ran(runs) == ["add 1 2"]
    assert parts_of(GPT, asked[1])[0]["extra_content"] == EXTRA


def test_blocks_of_an_agent_elsewhere_are_no_signatures(subtests: pytest.Subtests) -> None:
    for data in ("no JSON", "[" * 100_000, "[]", "3", ""):
        with subtests.test(data=data[:10]):
            assert signatures.of([{"type": "redacted_thinking", "data": data}], GPT) == Signed()
