"""A conversation's record as messages to a model, without hidden events; the two sides alternate.

Calls of tools that the model is offered now become calls with results; a sentence replaces a missing result,
because servers refuse a call without one. Other calls, as those of earlier agents, become text of the user:
servers want definitions of all called tools.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple, cast

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from conversations.dialects import columns
from conversations.dialects.views import CallView, EventView, MessageView, ResultView
from conversations.events import EventEnvelope, Kind
from conversations.payloads import halves
from sessions_app.agents.llm import images, prompts
from sessions_app.agents.llm.images import Part
from sessions_app.agents.llm.record import File, Record, is_forgotten, view_of
from sessions_app.agents.llm.streams import signatures
from sessions_app.agents.llm.streams.signatures import Signed, Signer
from sessions_app.agents.llm.tools.offers import offered_name

RESULT_MAX_CHARS = 10_000  # of a call that becomes text
SHOWN_RESULT_MAX_CHARS = 60_000  # only other agents store longer results
# A single call or result takes at most one part in this many of a request.
SHARE = 4
NO_RESULT = "It has no result: it was interrupted, and may have taken effect all the same."
ARGUMENTS_MAX_CHARS = 2_000
FILE_MAX_CHARS = 50_000
# V0's agents wrote events of these types for themselves.
_INTERNAL = frozenset({"recall", "think"})


class History(NamedTuple):
    """The messages of a request, and whether older ones were left out."""

    messages: list[ModelMessage]
    is_cut: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Said:
    """The content of one side."""

    is_agents: bool
    content: Sequence[Part]

    @property
    def chars(self) -> int:
        """Return the length of the texts."""
        return sum(_chars(part) for part in self.content)

    @property
    def is_result(self) -> bool:
        """Return whether it is the result of a call, which must precede it."""
        return any(isinstance(part, ToolReturnPart) for part in self.content)


def _chars(part: Part) -> int:
    match part:
        case str():
            return len(part)
        case ToolCallPart():
            return len(part.args_as_json_str())
        case ToolReturnPart():
            return len(part.model_response_str())
        case _:
            return 0


def messages_of(
    record: Record,
    *,
    max_chars: int,
    takes_urls: bool,
    tools: Collection[str] = (),
    signer: Signer | None = None,
    shows_images: bool = True,
) -> History:
    """Return the newest messages of a record with at most `max_chars` characters, and the instructions.

    The first and the last are the user's. `takes_urls`: the server loads images by their addresses. `tools`
    are the names of the offered tools. `signer` gets its signatures back. `shows_images`: include the images
    of tools.
    """
    told = _said(record, tools, max_chars // SHARE, signer, shows_images=shows_images)
    said = [each for each in told if each.content]
    # A message that the user has sent again because there was no answer counts once.
    pairs = zip(said, [*said[1:], None], strict=False)
    once = [each for each, following in pairs if each.is_agents or each != following]
    kept, is_cut = _newest(once, max_chars)
    if record.summary:
        summary = f"A summary of the earlier conversation:\n\n{record.summary}"
        kept.insert(0, _Said(is_agents=False, content=[summary]))
    if files := [part for file in record.files for part in _file(file)]:
        kept.insert(0, _Said(is_agents=False, content=files))
    # Servers want the first and the last message to be the user's.
    if not kept or kept[0].is_agents:
        kept.insert(0, _Said(is_agents=False, content=[prompts.BEGINNING]))
    if kept[-1].is_agents:
        kept.append(_Said(is_agents=False, content=[prompts.CONTINUE]))
    shown = images.within_limits([each.content for each in kept], takes_urls=takes_urls)
    sides = [(each.is_agents, content) for each, content in zip(kept, shown, strict=True)]
    instructions = prompts.instructions(record, has_tools=bool(tools))
    return History(list(_messages(sides, instructions)), is_cut or not record.is_complete)


def chars_of(messages: Sequence[ModelMessage]) -> int:
    """Return about how many characters of text a request has, with its instructions."""
    requests = (message for message in messages if isinstance(message, ModelRequest))
    instructions = next((request.instructions or "" for request in requests), "")
    return len(instructions) + sum(_length(part) for message in messages for part in message.parts)


def has_images(messages: Sequence[ModelMessage]) -> bool:
    contents = (
        part.content
        for message in messages
        for part in message.parts
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str)
    )
    return any(isinstance(each, BinaryContent) for content in contents for each in content)


def _length(part: ModelRequestPart | ModelResponsePart) -> int:
    match part:
        case UserPromptPart(content=str(text)) | TextPart(content=text):
            return len(text)
        case UserPromptPart(content=content):
            return sum(len(each) for each in content if isinstance(each, str))
        case ToolCallPart() | ToolReturnPart():
            return _chars(part)
        case _:
            return 0


def _messages(said: Sequence[tuple[bool, Sequence[Part]]], instructions: str) -> Iterator[ModelMessage]:
    for is_agents, group in groupby(said, key=lambda each: each[0]):
        content = [part for _, parts in group for part in parts]
        if is_agents:
            text = "\n\n".join(part for part in content if isinstance(part, str))
            calls = [part for part in content if isinstance(part, ToolCallPart)]
            thoughts = [part for part in content if isinstance(part, ThinkingPart)]
            yield ModelResponse(parts=[*thoughts, *([TextPart(content=text)] if text else ()), *calls])
        else:
            results = [part for part in content if isinstance(part, ToolReturnPart)]
            others = [cast(UserContent, part) for part in content if not isinstance(part, ToolReturnPart)]
            prompt = [UserPromptPart(content=_plain(others))] if others else []
            yield ModelRequest(parts=[*results, *prompt], instructions=instructions)


def _plain(content: list[UserContent]) -> str | list[UserContent]:
    """Join the parts if all are texts."""
    # Some servers take no list of parts.
    texts = [part for part in content if isinstance(part, str)]
    return "\n\n".join(texts) if len(texts) == len(content) else content


def _newest(said: Sequence[_Said], max_chars: int) -> tuple[list[_Said], bool]:
    """Return the newest that fit, and whether any were left out; shorten a newest one that does not fit."""
    kept: list[_Said] = []
    room = max_chars
    for each in reversed(said):
        room -= each.chars
        if room < 0:
            while kept and kept[-1].is_result:  # its call does not fit
                kept.pop()
            if not kept:
                kept = [_shortened(each, max_chars)]
            return kept[::-1], True
        kept.append(each)
    return kept[::-1], False


def _shortened(said: _Said, max_chars: int) -> _Said:
    texts = "\n\n".join(part for part in said.content if isinstance(part, str))
    others = [part for part in said.content if not isinstance(part, str)]
    return _Said(is_agents=said.is_agents, content=[_middle_cut(texts, max_chars), *others])


def _said(
    record: Record, tools: Collection[str], most: int, signer: Signer | None, *, shows_images: bool
) -> Iterator[_Said]:
    shown = [
        event
        for event in record.events
        if not (event["hidden"] or event["type"] in _INTERNAL or is_forgotten(event, record.forgotten))
    ]
    calls = {event["seq"] for event in shown if event["kind"] == Kind.TOOL_CALL}
    ids = {event["tool_call_id"]: event["seq"] for event in shown if event["seq"] in calls}
    results: dict[int, EventEnvelope] = {}
    for event in shown:
        if event["kind"] in (Kind.TOOL_RESULT, Kind.ERROR):
            call = event["cause"] if event["cause"] in calls else ids.get(event["tool_call_id"] or "-")
            if call is not None:
                results[call] = event
    for event in shown:
        # Of all notices, a record has those that files were restored.
        if event["kind"] in (Kind.MESSAGE, Kind.OTHER):
            yield from _message(event)
        elif event["kind"] == Kind.TOOL_CALL:
            result = results.get(event["seq"])
            yield from _call(event, result, tools, most, signer, shows_images=shows_images)


def _message(event: EventEnvelope) -> Iterator[_Said]:
    view, is_agents = view_of(event), event["source"] == "agent"
    text = columns.clean(view.text)
    if is_agents:
        if text.strip():
            yield _Said(is_agents=True, content=[text])
        return
    note, urls = (view.note, view.images) if isinstance(view, MessageView) else ("", ())
    told = [each for each in (text, note) if each.strip()]
    yield _Said(is_agents=False, content=[*told, *images.parts_of(urls)])


def _call(
    call: EventEnvelope,
    result: EventEnvelope | None,
    tools: Collection[str],
    most: int,
    signer: Signer | None,
    *,
    shows_images: bool,
) -> Iterator[_Said]:
    view = view_of(call)
    if not isinstance(view, CallView):
        return
    if view.thought.strip():
        yield _Said(is_agents=True, content=[view.thought])
    name = offered_name(view.tool, tools)
    arguments = halves.whole_value(view.given)  # V1 has them as JSON inside JSON
    brought = None if result is None else view_of(result)
    text = None if brought is None else columns.clean(brought.text) + _command_end(brought)
    seen = list(images.parts_of(_returned_images(brought))) if shows_images else []
    if seen:
        seen.insert(0, f"The tool `{name}` returned with its result:")
    if name in tools and len(columns.as_json(arguments)) <= most:
        # The ids of a copied log may repeat, and some servers want nine letters and digits.
        number = f"call{call['seq']:05d}"
        shown = NO_RESULT if text is None else _middle_cut(text, min(SHOWN_RESULT_MAX_CHARS, most))
        wanted = ToolCallPart(name, dict(arguments), tool_call_id=number)
        yield _Said(is_agents=True, content=_with_signatures(wanted, view, signer))
        yield _Said(is_agents=False, content=[ToolReturnPart(name, shown, tool_call_id=number), *seen])
        return
    # Servers want a definition of each called tool, and this one is offered no more, or its call is too long.
    told = _middle_cut(columns.as_json(arguments), ARGUMENTS_MAX_CHARS)
    ended = "It has no result."
    if text is not None:
        ended = f"The result:\n\n{_middle_cut(text, RESULT_MAX_CHARS)}"
    called = f"(The assistant called the tool `{name}` with {told}. {ended})"
    yield _Said(is_agents=False, content=[called, *seen])


def _with_signatures(call: ToolCallPart, view: CallView, signer: Signer | None) -> list[Part]:
    """Return a call with what the model has signed, for the model that has."""
    # Some servers refuse a request without their signatures, and all refuse another model's.
    signed = signatures.of(view.signed, signer.model) if signer else Signed()
    if signer is None or not (signed.call or signed.thoughts):
        return [call]
    call = replace(call, provider_name=signer.system, provider_details=dict(signed.call) or None)
    thoughts = [
        ThinkingPart(
            content=columns.first_text(block.get("thinking")),
            id="redacted_thinking" if "data" in block else None,
            signature=columns.first_text(block.get("signature"), block.get("data")),
            provider_name=signer.system,
        )
        for block in signed.thoughts
    ]
    return [*thoughts, call]


def _command_end(view: EventView) -> str:
    """Return a line about the end of a command: its text has only what the command has written."""
    if not isinstance(view, ResultView) or view.action != "run" or view.exit_code is None:
        return ""
    known = columns.first_text(columns.fields(view.fields.get("metadata")).get("working_dir"))
    place = f", working directory {known}" if known else ""
    begin = "" if not view.text or view.text.endswith("\n") else "\n"
    return columns.clean(f"{begin}[exit code {view.exit_code}{place}]")


def _returned_images(view: EventView | None) -> Sequence[str]:
    """Return the images among what a tool has returned; other files are for people."""
    urls = view.files if isinstance(view, ResultView) else ()
    return [url for url in urls if url.startswith("data:image/")]


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
