"""ChatGPT's data export: conversations whose messages are a `mapping` of nodes (docs/formats.md)."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath

from conversations.dialects import columns
from conversations.transcripts.sources import archives, lines
from conversations.transcripts.sources.archives import Archive
from conversations.transcripts.sources.chats import exports
from conversations.transcripts.sources.chats.exports import Chat, Kind, Reading
from conversations.transcripts.sources.chats.tree import Place
from conversations.transcripts.sources.lines import Damaged
from conversations.transcripts.sources.nodes import (
    Author,
    Kept,
    Message,
    Part,
    Record,
    ToolCall,
    ToolResult,
    Transcript,
    Unreadable,
)

NAME = "chatgpt"
IMAGE_MAX_BYTES = 8 * 1024 * 1024
NO_MESSAGE = "it has no message"
MISSING = "an image is not in the export"
TOO_LARGE = "an image is larger than 8 MB"
NO_IMAGE = "an image is of an unknown kind"
LEFT_OUT = "a file is named only"
EVERYBODY = ("", "all")
"""Recipients of what is no call of a tool."""
BOOKKEEPING = frozenset(
    {"app_pairing_content", "model_editable_context", "reasoning_recap", "user_editable_context"}
)
"""Types of content that say nothing to people; they are kept all the same."""
SOURCES = ("citations", "content_references")
"""What a message's metadata tell of where its words come from."""
SECONDS_MAX = 1e11

_FILE_ID = re.compile(r"file[-_][0-9A-Za-z]+")
_IMAGES = (
    (re.compile(rb"\x89PNG\r\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)

Fields = Mapping[str, object]


def is_source(path: Path) -> bool:
    """Say whether this is an export, or one of its files with conversations. Raise Unreadable."""
    return exports.is_source(path, _is_chat)


def holds(archive: Archive) -> bool:
    """Say the same of an archive that is open. Raise Unreadable."""
    return exports.holds(archive, _is_chat)


def transcripts(path: Path, *, is_growing: bool = False) -> Iterator[Transcript]:
    """Yield the conversations of a zip file, a directory, or a file, each before its branches.

    Raise Unreadable. An export does not grow: `is_growing` changes nothing.
    """
    archive = archives.opened(path)
    kind = Kind(
        is_chat=_is_chat,
        chat=_chat,
        reader=partial(_Reader, _Images(archive).url),
        glancing=partial(_Reader, _no_image),
    )
    yield from exports.transcripts(archive, kind)


def _is_chat(value: Fields) -> bool:
    return isinstance(value.get("mapping"), dict)


def _chat(value: Fields) -> Chat | None:
    mapping = value.get("mapping")
    if not isinstance(mapping, dict):
        return None
    return Chat(
        chat_id=columns.event_id(columns.first_text(value.get("conversation_id"), value.get("id"))),
        title=columns.first_text(value.get("title")),
        created_at=_instant(value.get("create_time")),
        places=[_place(*entry, number) for number, entry in enumerate(mapping.items(), 1)],
        shown=columns.first_text(value.get("current_node")) or None,
        model=columns.first_text(value.get("default_model_slug")),
    )


def _place(node_id: str, value: object, number: int) -> Place:
    entry = columns.fields(value)
    children = entry.get("children")
    return Place(
        node_id=node_id,
        number=number,
        value=value,
        parent=columns.first_text(entry.get("parent")) or None,
        children=[each for each in children if isinstance(each, str)] if isinstance(children, list) else (),
        is_aside=not entry,
        is_linked="parent" in entry or "children" in entry or not entry,
    )


def _instant(value: object) -> datetime | None:
    """Read a time in seconds, or as text."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < SECONDS_MAX:
        return datetime.fromtimestamp(value, UTC)
    return columns.instant(value)


@dataclass(frozen=True, slots=True)
class _Image:
    """An image of the export as a URL, or why there is none."""

    url: str = ""
    noted: str = ""


def _no_image(_pointer: str) -> _Image:
    return _Image()


class _Images:
    """The images of an export, by the pointers that messages have to them."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._names: dict[str, str] = {}
        for name in archive.names():
            if found := _FILE_ID.match(PurePosixPath(name).name):
                self._names.setdefault(found[0], name)

    def url(self, pointer: str) -> _Image:
        """Return an image's bytes as a data URL."""
        name = self._names.get(_file_id(pointer))
        try:
            return _Image(noted=MISSING) if name is None else self._read(name)
        except Unreadable as error:
            return _Image(noted=f"an image cannot be read: {error}")

    def _read(self, name: str) -> _Image:
        if self._archive.size(name) > IMAGE_MAX_BYTES:
            return _Image(noted=TOO_LARGE)
        content = b"".join(self._archive.chunks(name))
        kind = next((kind for begins, kind in _IMAGES if begins.match(content)), None)
        if kind is None:
            return _Image(noted=NO_IMAGE)
        return _Image(url=f"data:{kind};base64,{base64.b64encode(content).decode()}")


def _file_id(pointer: str) -> str:
    """Return the id in `file-service://file-abc`, with which the name of the file begins."""
    found = _FILE_ID.search(pointer.rpartition("://")[2])
    return found[0] if found else ""


@dataclass(kw_only=True, slots=True)
class _Content:
    """What the content of one message holds."""

    image: Callable[[str], _Image]
    names: Mapping[str, str]
    """The names of files, by their ids."""
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    """The ids of those that were dealt with."""

    @property
    def text(self) -> str:
        """Return all texts, a blank line between them."""
        return "\n\n".join(text for text in self.texts if text.strip())

    def take(self, content: Fields) -> bool:
        """Take what a message contains; say whether its type is known."""
        kind = columns.first_text(content.get("content_type"))
        if kind in ("text", "multimodal_text"):
            parts = content.get("parts")
            self._parts(parts if isinstance(parts, list) else [content.get("text")])
        elif kind in ("code", "execution_output", "system_error"):
            self._add(content.get("text"))
        elif kind == "thoughts":
            self._thoughts(content.get("thoughts"))
        elif kind == "tether_quote":
            told = (content.get("title"), content.get("url"), content.get("text"))
            self._add("\n".join(each for each in told if isinstance(each, str) and each))
        elif kind == "tether_browsing_display":
            self._add(columns.first_text(content.get("result"), content.get("summary")))
        elif kind == "computer_output":
            self._part(columns.fields(content.get("screenshot")))
        else:
            return False
        return True

    def name_file(self, file_id: str, name: str) -> None:
        """Say that there was a file, unless it was dealt with."""
        if file_id not in self.files or not file_id:
            self.texts.append(f"[File: {name}]")
            self.noted.append(LEFT_OUT)

    def _add(self, text: object) -> None:
        if isinstance(text, str):
            self.texts.append(text)

    def _thoughts(self, thoughts: object) -> None:
        for thought in thoughts if isinstance(thoughts, list) else []:
            told = columns.fields(thought)
            said = [columns.first_text(told.get(name)) for name in ("summary", "content")]
            self.reasoning.append("\n".join(filter(None, said)))

    def _parts(self, parts: Iterable[object]) -> None:
        for part in parts:
            if isinstance(part, str):
                self.texts.append(part)
            elif isinstance(part, Mapping):
                self._part(part)
            elif part is not None:
                self.records.append(Record(name="part", value=part, why=Kept.UNKNOWN))

    def _part(self, part: Fields) -> None:
        kind = columns.first_text(part.get("content_type"))
        pointer = columns.first_text(part.get("asset_pointer"))
        spoken = columns.fields(part.get("audio_asset_pointer"))
        if kind == "image_asset_pointer" and pointer:
            self._image(pointer)
        elif kind == "audio_transcription" or (not kind and isinstance(part.get("text"), str)):
            self._add(part.get("text"))
        elif kind.endswith("asset_pointer") and (pointer or spoken):
            named = pointer or columns.first_text(spoken.get("asset_pointer"))
            self.files.add(_file_id(named))
            self.texts.append(f"[Recording: {self._name(named)}]")
            self.noted.append(LEFT_OUT)
        else:
            name = f"part {kind}" if kind else "part"
            self.records.append(Record(name=name, value=part, why=Kept.UNKNOWN))

    def _image(self, pointer: str) -> None:
        self.files.add(_file_id(pointer))
        image = self.image(pointer)
        if image.url:
            self.images.append(image.url)
            return
        self.texts.append(f"[Image: {self._name(pointer)}]")
        if image.noted:
            self.noted.append(image.noted)

    def _name(self, pointer: str) -> str:
        return self.names.get(_file_id(pointer)) or pointer


class _Reader:
    """Reads the messages of one chain: what a tool says belongs to the last call of it."""

    def __init__(self, image: Callable[[str], _Image]) -> None:
        self._image = image
        self._calls: dict[str, str] = {}
        """The id of the last call of each tool."""

    def read(self, place: Place) -> Reading:
        """Return what the next message says."""
        if place.value is not None and not isinstance(place.value, Mapping):
            return Reading(parts=(Record(name="node", value=place.value, why=Kept.DAMAGED),))
        message = columns.fields(place.value).get("message")
        if message is None:
            return Reading(skipped=NO_MESSAGE)
        if not isinstance(message, Mapping):
            return Reading(parts=(Record(name="message", value=place.value, why=Kept.DAMAGED),))
        return self._message(message, place)

    def _message(self, message: Fields, place: Place) -> Reading:
        metadata = columns.fields(message.get("metadata"))
        role = columns.first_text(columns.fields(message.get("author")).get("role"))
        content = columns.fields(message.get("content"))
        kind = columns.first_text(content.get("content_type"))
        at = _instant(message.get("create_time"))
        model = columns.first_text(metadata.get("model_slug"))
        why = Kept.BOOKKEEPING
        if not (_is_hidden(metadata) or role == "system" or kind in BOOKKEEPING):
            read = _Content(image=self._image, names=_attached(metadata))
            is_known = read.take(content) and role in ("user", "assistant", "tool")
            why = why if is_known else Kept.UNKNOWN
            for file_id, name in _attached(metadata).items() if is_known else ():
                read.name_file(file_id, name)
            said = list(self._said(message, role, read, place.node_id)) if is_known else []
            if said or read.records:
                parts = (*said, *read.records, *_sources(metadata))
                return Reading(parts=parts, at=at, noted=tuple(read.noted), model=model)
        name = " ".join(filter(None, (role, kind))) or "message"
        return Reading(parts=(Record(name=name, value=place.value, why=why),), at=at)

    def _said(self, message: Fields, role: str, read: _Content, node_id: str) -> Iterator[Part]:
        recipient = columns.first_text(message.get("recipient"))
        text, reasoning = read.text, "\n\n".join(filter(None, read.reasoning))
        if role == "tool":
            is_output = columns.fields(message.get("content")).get("content_type") == "execution_output"
            if text or read.images or is_output:  # a program may well print nothing
                yield self._result(message, read, node_id)
        elif role == "assistant" and recipient not in EVERYBODY:
            self._calls.pop(recipient, None)  # the last one stands last
            self._calls[recipient] = node_id
            yield ToolCall(call_id=node_id, tool=recipient, arguments=_arguments(text), reasoning=reasoning)
        elif text or reasoning or read.images:
            if role == "user":
                self._calls.clear()
            author = Author.USER if role == "user" else Author.AGENT
            yield Message(author=author, text=text, reasoning=reasoning, images=tuple(read.images))

    def _result(self, message: Fields, read: _Content, node_id: str) -> ToolResult:
        tool = columns.first_text(columns.fields(message.get("author")).get("name"))
        metadata = columns.fields(message.get("metadata"))
        content = columns.fields(message.get("content"))
        status = columns.first_text(columns.fields(metadata.get("aggregate_result")).get("status"))
        return ToolResult(
            call_id=self._call_of(tool) or f"{node_id}/call",
            text=read.text,
            tool=tool,
            images=tuple(read.images),
            is_error=content.get("content_type") == "system_error" or status.startswith("failed"),
        )

    def _call_of(self, tool: str) -> str:
        """Return the last call of a tool since the user spoke; of any tool, if it was not called."""
        return self._calls.get(tool) or next(reversed(self._calls.values()), "")


def _is_hidden(metadata: Fields) -> bool:
    return metadata.get("is_visually_hidden_from_conversation") is True


def _attached(metadata: Fields) -> dict[str, str]:
    """Return the names of the files that were sent along, by their ids."""
    attachments = metadata.get("attachments")
    named: dict[str, str] = {}
    for each in attachments if isinstance(attachments, list) else []:
        attached = columns.fields(each)
        file_id, name = (columns.first_text(attached.get(member)) for member in ("id", "name"))
        if file_id or name:
            named[_file_id(file_id) or file_id or name] = name or file_id
    return named


def _arguments(text: str) -> Fields | str:
    """Return the arguments of a call: an object if the text is one."""
    if text.lstrip().startswith("{"):
        try:
            return lines.record(text.encode())
        except (Damaged, UnicodeEncodeError):
            pass
    return text


def _sources(metadata: Fields) -> Iterator[Record]:
    told = {name: metadata[name] for name in SOURCES if metadata.get(name)}
    if told:
        yield Record(name="citations", value=told, why=Kept.BOOKKEEPING)
