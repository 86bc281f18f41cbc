"""What servers of models say in the bodies of their errors, and what they refuse in a request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cachetools import LRUCache
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.exceptions import ModelHTTPError

from sessions_app.agents.llm import refusals
from sessions_app.agents.llm.error_words import WORDS_MAX_CHARS, words_of
from sessions_app.agents.llm.failures import fault_of
from sessions_app.agents.llm.models import Target, Wire

SAID = "context window exceeded"
BODIES: dict[str, tuple[Any, str]] = {
    "OpenAI": ({"error": {"message": SAID, "param": None}}, SAID),
    "the inner part of it": ({"message": SAID, "type": "x"}, SAID),
    "a text under error": ({"error": SAID}, SAID),
    "a text under detail": ({"detail": SAID}, SAID),
    "a validator's list": (
        {"detail": [{"loc": ["body", "top_k"], "msg": SAID}, {"loc": ["body"], "msg": "x", "input": {}}]},
        f"body.top_k: {SAID}; body: x",
    ),
    "a list of errors": ([{"error": {"code": 400, "message": SAID, "details": []}}], SAID),
    "errors": ({"errors": [{"message": SAID}, "and more"]}, f"{SAID}; and more"),
    "OAuth": ({"error": {}, "error_description": SAID}, SAID),
    "plain text": (f"  {SAID}\n", SAID),
    "JSON as text": (json.dumps({"error": SAID}), SAID),
    "JSON in JSON": ({"error": {"message": json.dumps({"detail": SAID})}}, SAID),
    "a page": (
        f"<!doctype html><html><head><title>\n{SAID} &amp; <b>gone</b></title></head></html>",
        f"{SAID} & gone",
    ),
    "a page without a title": ("<html><body>x</body></html>", ""),
    "nothing": (None, ""),
    "numbers": ({"error": 4, "message": 5}, ""),
    "half of a character": ({"error": "bad \ud83c\0 input"}, "bad \ufffd\ufffd input"),
}


def test_every_shape_of_a_body_is_told_in_its_own_words(subtests: pytest.Subtests) -> None:
    for name, (body, words) in BODIES.items():
        with subtests.test(name):
            assert words_of(body) == words


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=400),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["error", "detail", "message"]), inner),
    max_leaves=20,
)


@given(body=ANY)
@settings(derandomize=True, max_examples=200)
def test_no_body_is_too_odd(body: Any) -> None:
    words = words_of(body)
    assert len(words) <= WORDS_MAX_CHARS
    words.encode()


def target(name: str, key: str = "sk-1234567890") -> Target:
    return Target(wire=Wire.OPENAI, name=name, base_url="https://m.example/v1", key=key, is_operators=False)


def test_a_failure_has_the_servers_words_and_its_wait_without_the_key(subtests: pytest.Subtests) -> None:
    for status in (400, 401, 402, 403, 404, 413, 422, 429, 500, 503):
        with subtests.test(str(status)):
            headers = {"retry-after": "37"}
            error = ModelHTTPError(status, "m", {"error": "Quota of sk-1234567890"}, headers=headers)
            told = str(fault_of(error, target("m")))
            assert told.endswith("It asks to wait 37 seconds. It says: Quota of ***")
    for key in ("k", "EMPTY", "ollama", "sk-no-key-required"):
        with subtests.test(key):
            error = ModelHTTPError(400, "m", f"Unknown {key}")
            assert str(fault_of(error, target("m", key))).endswith(f"It says: Unknown {key}")


def test_a_key_at_the_end_of_what_is_told_leaves_no_part_behind(subtests: pytest.Subtests) -> None:
    for chars in range(WORDS_MAX_CHARS - 15, WORDS_MAX_CHARS + 2):
        with subtests.test(chars=chars):
            said = f"{'x' * (chars - 1)} sk-1234567890"
            told = str(fault_of(ModelHTTPError(400, "m", {"error": said}), target("m")))
            assert "sk-" not in told
    with subtests.test("a key that was entered with a line end"):
        error = ModelHTTPError(400, "m", {"error": "Unknown key sk-1234567890"})
        assert str(fault_of(error, target("m", "sk-1234567890\n"))).endswith("It says: Unknown key ***")


REFUSED: dict[str, tuple[int, Any, str]] = {
    "OpenAI": (
        400,
        {"error": {"message": "Unknown parameter.", "param": "stream_options"}},
        "stream_options",
    ),
    "a validator": (
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs"}]},
        "stream_options",
    ),
    "in words": (400, {"message": "parallel_tool_calls is not supported"}, "parallel_tool_calls"),
    "another name": (
        400,
        {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}},
        "max_tokens",
    ),
    "a value, no name": (400, {"message": "max_tokens is too large"}, ""),
    "Ollama's tools": (400, {"error": {"message": "library/gemma3 does not support tools"}}, "tools"),
    "a router's tools": (404, {"error": "No endpoints found that support tool use."}, "tools"),
    "vLLM's tools": (400, {"message": '"auto" tool choice requires --enable-auto-tool-choice'}, "tools"),
    "Gemini's tools": (400, [{"error": {"message": "Function calling is not enabled for gemma"}}], "tools"),
    "a validator's tools": (
        422,
        {"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted"}]},
        "tools",
    ),
    "a wrong schema of one tool": (
        400,
        {
            "error": {
                "message": "Invalid schema for function 'add': 'x' not permitted",
                "param": "tools[0]",
            }
        },
        "",
    ),
    "a member of one tool": (
        422,
        {
            "detail": [
                {"loc": ["body", "tools", 0, "function", "strict"], "msg": "Extra inputs not permitted"}
            ]
        },
        "",
    ),
    "a model that is not there": (404, {"error": "model 'tools' not found"}, ""),
    "another failure": (429, {"error": "stream_options"}, ""),
}


def test_what_a_server_refuses_is_found_and_remembered_once(subtests: pytest.Subtests) -> None:
    for name, (status, body, refused) in REFUSED.items():
        with subtests.test(name):
            asked = target(name)
            error = ModelHTTPError(status, "m", body)
            assert refusals.learn(asked, error, offers_tools=True) == refused
            assert refusals.learn(asked, error, offers_tools=True) == ""
            assert refusals.refused_by(asked) == frozenset({refused} - {""})
            assert refusals.refused_by(target(f"not {name}")) == frozenset()


def test_a_request_loses_what_is_refused_and_nothing_else(subtests: pytest.Subtests) -> None:
    body = b'{"model": "m", "max_tokens": 5, "stream_options": {"include_usage": true}}'
    for refused, sent in (
        (set(), body),
        ({"stream_options"}, b'{"model": "m", "max_tokens": 5}'),
        ({"max_tokens", "stream_options"}, b'{"model": "m", "max_completion_tokens": 5}'),
        ({"max_tokens", "max_completion_tokens", "stream_options"}, b'{"model": "m"}'),
    ):
        with subtests.test(str(refused)):
            assert refusals.without_refused(body, frozenset(refused)) == sent
    for odd in (b"", b"[1]", b"no JSON"):
        with subtests.test(str(odd)):
            assert refusals.without_refused(odd, frozenset({"tools"})) == odd


def test_the_memory_of_refusals_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_refused", LRUCache(3))
    error = ModelHTTPError(400, "m", "stream_options")
    for number in range(10):
        refusals.learn(target(f"bounded-{number}"), error, offers_tools=False)
    known = [number for number in range(10) if refusals.refused_by(target(f"bounded-{number}"))]
    assert known == [7, 8, 9]
