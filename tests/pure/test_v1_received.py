"""What V1 clients send as a message, in every shape that a release or the web frontend gives it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.dialects import v1
from conversations.events import Kind
from conversations.exceptions import InvalidEvent
from tests.support.wires.v1_wire import require_strict

EVENT_ID = "0f0e0d0c-0b0a-4908-8706-050403020100"
IMAGE = "data:image/png;base64,AA"


def stored(request: dict[str, Any]) -> dict[str, Any]:
    authored = v1.received(request, event_id=EVENT_ID)
    event: dict[str, Any] = json.loads(authored.payload)
    require_strict(event)
    assert (authored.reading.kind, authored.reading.source) == (Kind.MESSAGE, "user")
    assert authored.stamp_offset is not None
    return event


def content_of(content: object) -> object:
    return stored({"role": "user", "content": content})["llm_message"]["content"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("Hi", [{"type": "text", "text": "Hi"}]),
        ([{"type": "text", "text": "Hi"}], [{"type": "text", "text": "Hi"}]),
        ([{"type": "image", "image_urls": [IMAGE]}], [{"type": "image", "image_urls": [IMAGE]}]),
        ([{"type": "image_url", "image_url": {"url": IMAGE}}], [{"type": "image", "image_urls": [IMAGE]}]),
        ([{"type": "image_url", "image_url": IMAGE}], [{"type": "image", "image_urls": [IMAGE]}]),
        (
            [{"type": "text", "text": "Hi", "cache_prompt": True, "enable_truncation": True}],
            [{"type": "text", "text": "Hi", "cache_prompt": True}],
        ),
        (
            [{"type": "image_url", "image_url": {"url": IMAGE}}, {"type": "text", "text": "Look"}],
            [{"type": "image", "image_urls": [IMAGE]}, {"type": "text", "text": "Look"}],
        ),
    ],
)
def test_every_shape_of_content_is_stored_as_parts_that_each_release_takes(
    sent: object, kept: list[object]
) -> None:
    assert content_of(sent) == kept


def test_a_message_keeps_its_sender_and_nothing_else_beside_its_content() -> None:
    message = {"content": "Hi", "sender": "bob", "run": True, "vision_enabled": True, "id": "mine"}
    assert stored(message) == stored({"role": "user", "content": "Hi"}) | {"sender": "bob"}


def test_a_null_sender_is_left_out() -> None:
    assert "sender" not in stored({"role": "user", "content": "Hi", "sender": None})


@pytest.mark.parametrize("role", ["assistant", "system", "tool", "", None, 3, ["user"], "\ud800" * 50])
def test_a_client_speaks_for_nobody_but_the_user(role: object) -> None:
    with pytest.raises(InvalidEvent, match="`role` must be `user`") as refusal:
        v1.received({"role": role, "content": "Hi"}, event_id=EVENT_ID)
    str(refusal.value).encode()


def test_a_message_of_another_shape_is_refused_by_a_sentence(subtests: pytest.Subtests) -> None:
    rows: list[tuple[dict[str, object], str]] = [
        ({}, "A message needs `content`"),
        ({"content": []}, "A message needs `content`"),
        ({"content": 3}, "`content` must be a string or a list of parts."),
        ({"content": {"type": "text", "text": "Hi"}}, "`content` must be a string or a list of parts."),
        ({"content": "Hi", "sender": 3}, "`sender` must be a string."),
        ({"content": [{"type": "text", "text": "Hi"}, "Hi"]}, "Part 1 of `content` is none of"),
        ({"content": [{"type": "text", "text": 3}]}, "Part 0 of `content` is none of"),
        ({"content": [{"type": "image", "image_urls": [3]}]}, "Part 0 of `content` is none of"),
        ({"content": [{"type": "image_url", "image_url": {}}]}, "Part 0 of `content` is none of"),
        ({"content": [{"type": "audio"}]}, "Part 0 of `content` is none of"),
        ({"content": [None]}, "Part 0 of `content` is none of"),
    ]
    for request_, sentence in rows:
        with subtests.test(request_=request_), pytest.raises(InvalidEvent, match=sentence):
            v1.received(request_, event_id=EVENT_ID)


TEXTS = st.text(max_size=20) | st.just("half \ud800 of a pair")
PARTS = (
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
    | st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, TEXTS)
    | st.builds(lambda urls: {"type": "image", "image_urls": urls}, st.lists(TEXTS, max_size=3))
)


@given(TEXTS | st.lists(PARTS, min_size=1, max_size=5), st.none() | TEXTS)
def test_whatever_a_user_says_is_stored_as_a_message_that_strict_clients_take(
    content: object, sender: str | None
) -> None:
    event = stored({"role": "user", "content": content, "sender": sender, "extra": [content]})
    sent = [content] if isinstance(content, str) else content
    assert isinstance(sent, list)
    assert len(event["llm_message"]["content"]) == len(sent)
