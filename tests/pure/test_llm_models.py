"""Models by the names that OpenHands writes, and the three wires over which they are asked."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from sessions_app.agents.base import AgentFailure, CallUsage
from sessions_app.agents.llm import library, transport
from sessions_app.agents.llm.choice import ModelChoice
from sessions_app.agents.llm.faults import ModelFault
from sessions_app.agents.llm.models import NO_KEY, NO_SERVER, Target, Wire, target_of
from sessions_app.agents.llm.record import Record
from sessions_app.agents.llm.requests import AnswerPiece, ModelClient
from tests.support.servers.model_server import Answer, completion, model_server

KEY = "sk-1234567890"
LOCAL = "http://127.0.0.1:9/v1"
GOOGLE = "https://generativelanguage.googleapis.com"


def test_a_name_leads_to_a_server_a_wire_and_a_name_there(subtests: pytest.Subtests) -> None:
    for model, base_url, wire, name, address in [
        ("openai/gpt-5", "", Wire.OPENAI, "gpt-5", "https://api.openai.com/v1"),
        ("gpt-5", "", Wire.OPENAI, "gpt-5", "https://api.openai.com/v1"),
        ("anthropic/claude-x", "", Wire.ANTHROPIC, "claude-x", "https://api.anthropic.com"),
        ("claude-x", "", Wire.ANTHROPIC, "claude-x", "https://api.anthropic.com"),
        ("gemini/gemini-x", "", Wire.GOOGLE, "gemini-x", GOOGLE),
        ("google/gemini-x", "", Wire.GOOGLE, "gemini-x", GOOGLE),
        ("gemini/gemini-x", f"{GOOGLE}/v1beta/openai", Wire.OPENAI, "gemini-x", f"{GOOGLE}/v1beta/openai"),
        ("openrouter/a/b", "", Wire.OPENAI, "a/b", "https://openrouter.ai/api/v1"),
        ("mistral/large", "", Wire.OPENAI, "large", "https://api.mistral.ai/v1"),
        ("ollama/llama3", "", Wire.OPENAI, "llama3", "http://localhost:11434/v1"),
        ("ollama/llama3", "http://127.0.0.1:9", Wire.OPENAI, "llama3", LOCAL),
        ("openhands/claude-x", LOCAL, Wire.OPENAI, "claude-x", LOCAL),
        ("openai/org/model", LOCAL, Wire.OPENAI, "org/model", LOCAL),
        ("org/model", f"{LOCAL}/", Wire.OPENAI, "org/model", LOCAL),
        ("model", LOCAL, Wire.OPENAI, "model", LOCAL),
        ("anthropic/claude-x", LOCAL, Wire.ANTHROPIC, "claude-x", "http://127.0.0.1:9"),
    ]:
        with subtests.test(model=model, base_url=base_url, wire=wire, name=name, address=address):
            found = target_of(ModelChoice(model=model, base_url=base_url, key=KEY))
            assert (found.wire, found.name, found.base_url) == (wire, name, address)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (ModelChoice(model="openai/gpt-5"), NO_KEY),
        (ModelChoice(model="openhands/claude-x", key=KEY), NO_SERVER),
        (ModelChoice(model="org/model", key=KEY), NO_SERVER),
        (ModelChoice(model="openai/gpt-5", key="sk\n1"), "invalid characters"),
        (ModelChoice(model="openai/gpt-5", base_url="nowhere", key=KEY), "starts with https://"),
    ],
)
def test_a_model_that_cannot_be_asked_is_told(choice: ModelChoice, words: str) -> None:
    with pytest.raises(AgentFailure) as caught:
        target_of(choice)
    assert words in str(caught.value)


def test_neither_a_choice_nor_a_target_is_printed_with_its_key() -> None:
    choice = ModelChoice(model="openai/gpt-5", key=KEY)
    assert KEY not in repr(choice) + repr(target_of(choice))


def _events(*events: tuple[str, dict[str, Any]]) -> Answer:
    return Answer(
        stream=[f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events]
    )


def _anthropic() -> Answer:
    message: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 1},
    }
    text = {"index": 1, "delta": {"type": "text_delta", "text": "Paris."}}
    thought = {"index": 0, "delta": {"type": "thinking_delta", "thinking": "France."}}
    return _events(
        ("message_start", {"message": message}),
        (
            "content_block_start",
            {"index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        ),
        ("content_block_delta", thought),
        ("content_block_stop", {"index": 0}),
        ("content_block_start", {"index": 1, "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", text),
        ("content_block_stop", {"index": 1}),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        ("message_stop", {}),
    )


def _google() -> Answer:
    parts = [{"text": "France.", "thought": True}, {"text": "Paris."}]
    body = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10},
        "modelVersion": "gemini-x",
    }
    return Answer(stream=[f"data: {json.dumps(body)}\n\n"])


WIRES = {
    Wire.OPENAI: ("openai/gpt-x", completion(["Paris."], reasoning=["France."]), "/v1/chat/completions"),
    Wire.ANTHROPIC: ("anthropic/claude-x", _anthropic(), "/v1/messages"),
    Wire.GOOGLE: ("gemini/gemini-x", _google(), "/v1beta/models/gemini-x:streamGenerateContent"),
}


@pytest.mark.parametrize("wire", list(Wire))
async def test_each_wire_brings_text_reasoning_and_usage(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "of-the-operator")
    model, answer, path = WIRES[wire]
    pieces: list[AnswerPiece] = []
    usages: list[CallUsage] = []
    with model_server(lambda asked: answer) as (base_url, asked):
        target, client = await _ready(model, base_url)
        shown = client.request_of(Record(), max_chars=1_000)
        await client.stream(target, shown, pieces.append, usages.append)
    assert "".join(piece.text for piece in pieces) == "Paris."
    assert "".join(piece.reasoning for piece in pieces) == "France."
    assert usages == [CallUsage(model=model, prompt_tokens=7, completion_tokens=3)]
    [request] = asked
    assert request.path.partition("?")[0] == path
    assert "of-the-operator" not in str(request)
    assert KEY in request.keys


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize(
    ("status", "words"), [(401, "rejected the key"), (404, "has no model"), (500, "failed")]
)
async def test_each_wire_says_what_has_failed(wire: Wire, status: int, words: str) -> None:
    with model_server(lambda asked: Answer(status, {"error": {"message": KEY}})) as (base_url, asked):
        target, client = await _ready(WIRES[wire][0], base_url)
        with pytest.raises(AgentFailure) as caught:
            await client.stream(target, client.request_of(Record(), max_chars=1_000), _ignore, _ignore)
    assert words in str(caught.value)
    assert KEY not in str(caught.value)
    assert len(asked) == 1


@pytest.mark.parametrize("wire", list(Wire))
async def test_each_wire_waits_for_a_server_that_hangs_no_longer_than_it_may(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "READ_S", 0.2)
    never = threading.Event()
    with model_server(lambda asked: Answer(stream=[never])) as (base_url, asked):
        target, client = await _ready(WIRES[wire][0], base_url)
        with pytest.raises(ModelFault, match="didn't answer in time") as caught:
            await client.stream(target, client.request_of(Record(), max_chars=1_000), _ignore, _ignore)
    assert (caught.value.is_passing, len(asked)) == (True, 1)


def _ignore(told: object) -> None:
    pass


async def _ready(model: str, base_url: str) -> tuple[Target, ModelClient]:
    target = target_of(ModelChoice(model=model, base_url=base_url, key=KEY))
    return target, await library.client_of(target.wire)
