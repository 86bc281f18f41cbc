"""A conversation's record as messages to a model: the two sides take turns, and nothing hidden is told.

Tool calls of earlier agents are told as text on the user's side. So a call without a result needs no
special form, and servers do not ask for definitions of tools that nobody offers now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserContent,
    UserPromptPart,
)

from conversations import dialects
from conversations.dialects import columns
from conversations.dialects.v0 import reading as v0
from conversations.dialects.v1 import reading as v1
from conversations.events import Dialect, EventEnvelope, Kind
from sessions_app.agents.llm import images, prompts
from sessions_app.agents.llm.record import File, Record

RESULT_MAX_CHARS = 10_000
ARGUMENTS_MAX_CHARS = 2_000
FILE_MAX_CHARS = 50_000
_INTERNAL = frozenset({"recall", "think"})
"""Types of V0 that an agent says to itself."""

Payload = Mapping[str, Any]


class History(NamedTuple):
    """The messages of a request, and whether older ones were left out."""

    messages: list[ModelMessage]
    is_cut: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Said:
    """What one side has said."""

    is_agents: bool
    content: Sequence[UserContent]

    @property
    def chars(self) -> int:
        """Return the length of the texts."""
        return sum(len(part) for part in self.content if isinstance(part, str))


def messages_of(record: Record, *, max_chars: int, takes_urls: bool) -> History:
    """Return the newest messages of a record with at most `max_chars` characters, instructions beside them.

    The first and the last are the user's. `takes_urls`: whether the server loads images by their addresses.
    """
    said = [each for each in _said(record) if each.content]
    kept, is_cut = _newest(said, max_chars)
    if record.summary:
        summary = f"A summary of the earlier conversation:\n\n{record.summary}"
        kept.insert(0, _Said(is_agents=False, content=[summary]))
    if files := [part for file in record.files for part in _file(file)]:
        kept.insert(0, _Said(is_agents=False, content=files))
    if not kept or kept[0].is_agents:
        kept.insert(0, _Said(is_agents=False, content=[prompts.BEGINNING]))
    if kept[-1].is_agents:
        kept.append(_Said(is_agents=False, content=[prompts.CONTINUE]))
    shown = images.within_limits([each.content for each in kept], takes_urls=takes_urls)
    pairs = [(each.is_agents, content) for each, content in zip(kept, shown, strict=True)]
    return History(list(_messages(pairs, prompts.instructions(record))), is_cut or not record.is_complete)


def _messages(
    said: Sequence[tuple[bool, Sequence[UserContent]]], instructions: str
) -> Iterator[ModelMessage]:
    for is_agents, group in groupby(said, key=lambda each: each[0]):
        content = [part for _, parts in group for part in parts]
        if is_agents:
            texts = (part for part in content if isinstance(part, str))
            yield ModelResponse(parts=[TextPart(content="\n\n".join(texts))])
        else:
            yield ModelRequest(parts=[UserPromptPart(content=_plain(content))], instructions=instructions)


def _plain(content: list[UserContent]) -> str | list[UserContent]:
    """Return texts as one: not every server takes a list of parts."""
    texts = [part for part in content if isinstance(part, str)]
    return "\n\n".join(texts) if len(texts) == len(content) else content


def _newest(said: Sequence[_Said], max_chars: int) -> tuple[list[_Said], bool]:
    """Return the newest that fit; of a newest one that does not, the beginning and the end."""
    kept: list[_Said] = []
    room = max_chars
    for each in reversed(said):
        room -= each.chars
        if room < 0:
            if not kept:
                kept = [_shortened(each, max_chars)]
            return kept[::-1], True
        kept.append(each)
    return kept[::-1], False


def _shortened(said: _Said, max_chars: int) -> _Said:
    texts = "\n\n".join(part for part in said.content if isinstance(part, str))
    others = [part for part in said.content if not isinstance(part, str)]
    return _Said(is_agents=said.is_agents, content=[_middle_cut(texts, max_chars), *others])


def _said(record: Record) -> Iterator[_Said]:
    shown = [event for event in record.events if _is_shown(event, record.forgotten)]
    calls = {event["seq"] for event in shown if event["kind"] == Kind.TOOL_CALL}
    ids = {event["tool_call_id"]: event["seq"] for event in shown if event["seq"] in calls}
    results: dict[int, EventEnvelope] = {}
    for event in shown:
        if event["kind"] in (Kind.TOOL_RESULT, Kind.ERROR):
            call = event["cause"] if event["cause"] in calls else ids.get(event["tool_call_id"] or "-")
            if call is not None:
                results[call] = event
    for event in shown:
        if event["kind"] == Kind.MESSAGE:
            yield from _message(event)
        elif event["kind"] == Kind.TOOL_CALL:
            yield from _call(event, results.get(event["seq"]))


def _is_shown(event: EventEnvelope, forgotten: frozenset[str | int]) -> bool:
    if event["hidden"] or event["type"] in _INTERNAL:
        return False
    if not forgotten:
        return True
    if event["dialect"] == Dialect.V1:
        return event["id"] not in forgotten
    number = _payload(event).get("id") if event["brings_envelope"] else event["seq"]
    return number not in forgotten


def _message(event: EventEnvelope) -> Iterator[_Said]:
    payload, is_agents = _payload(event), event["source"] == "agent"
    text = _text(event, payload)
    if is_agents:
        if text.strip() and text != prompts.CUT_NOTICE:
            yield _Said(is_agents=True, content=[text])
        return
    told = [text, columns.content_text(payload.get("extended_content"))]
    yield _Said(
        is_agents=False,
        content=[*(each for each in told if each.strip()), *images.parts_of(_image_urls(payload))],
    )


def _call(call: EventEnvelope, result: EventEnvelope | None) -> Iterator[_Said]:
    payload = _payload(call)
    thought = _thought(payload)
    if thought.strip():
        yield _Said(is_agents=True, content=[thought])
    name, arguments = dialects.called_tool(payload, Dialect(call["dialect"]))
    given = _middle_cut(columns.as_json(arguments), ARGUMENTS_MAX_CHARS)
    if result is None:
        ended = "It has no result."
    else:
        ended = f"The result:\n\n{_middle_cut(_text(result, _payload(result)), RESULT_MAX_CHARS)}"
    yield _Said(is_agents=False, content=[f"(The assistant called the tool `{name}` with {given}. {ended})"])


def _thought(payload: Payload) -> str:
    thought = payload.get("thought") or columns.fields(payload.get("args")).get("thought")
    return columns.content_text(thought) if thought else ""


def _text(event: EventEnvelope, payload: Payload) -> str:
    """Return the text of an event, however long it is."""
    is_v1 = event["dialect"] == Dialect.V1
    whole = v1.whole_text(payload) if is_v1 else v0.whole_text(payload)
    return columns.clean(whole) or event["text"]


def _image_urls(payload: Payload) -> Iterator[str]:
    message = columns.fields(payload.get("llm_message"))
    content = message.get("content")
    holders = [columns.fields(payload.get("args")), columns.fields(payload.get("extras"))]
    holders += [columns.fields(part) for part in (content if isinstance(content, list) else [])]
    for holder in holders:
        urls = holder.get("image_urls")
        yield from (url for url in (urls if isinstance(urls, list) else []) if isinstance(url, str))


def _file(file: File) -> Iterator[UserContent]:
    title = f"The user's file `{file.name}` ({file.size} bytes)"
    if file.content is None:
        yield f"{title} is not shown: the files are too long."
    elif (media_type := images.media_type_of(file.name)) is not None:
        yield f"{title}:"
        yield BinaryContent(data=file.content, media_type=media_type)
    else:
        try:
            yield f"{title}:\n\n{_middle_cut(columns.clean(file.content.decode()), FILE_MAX_CHARS)}"
        except UnicodeDecodeError:
            yield f"{title} is not shown: it is no text."


def _middle_cut(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars // 2]}\n[…]\n{text[len(text) - max_chars // 2 :]}"


def _payload(event: EventEnvelope) -> Payload:
    payload: Payload = json.loads(event["payload"])
    return payload
