"""The content of a message of ChatGPT's export: words, thoughts, images, files, and the rest."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources.archives import Archive
from conversations.transcripts.sources.chats import exports
from conversations.transcripts.sources.nodes import Kept, Record, Unreadable, rest_of

IMAGE_MAX_BYTES = 8 * 1024 * 1024
TOO_LARGE = "an image is larger than 8 MB"
NO_IMAGE = "an image is of an unknown kind"

_FILE_ID = re.compile(r"file[-_][0-9A-Za-z]+")
_IMAGES = (
    (re.compile(rb"\x89PNG\r\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image of the export as a URL, or the reason why there is none."""

    url: str = ""
    noted: str = ""


def no_image(_pointer: str) -> Image:
    """Return no image, for when only the kinds of parts matter."""
    return Image()


class Images:
    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._names: dict[str, str] = {}
        for name in archive.names():
            if found := _FILE_ID.match(PurePosixPath(name).name):
                self._names.setdefault(found[0], name)

    def url(self, pointer: str) -> Image:
        name = self._names.get(file_id(pointer))
        try:
            return Image(noted=exports.IMAGE_MISSING) if name is None else self._read(name)
        except Unreadable as error:
            return Image(noted=f"an image cannot be read: {error}")

    def _read(self, name: str) -> Image:
        if self._archive.size(name) > IMAGE_MAX_BYTES:
            return Image(noted=TOO_LARGE)
        content = b"".join(self._archive.chunks(name))
        kind = next((kind for begins, kind in _IMAGES if begins.match(content)), None)
        if kind is None:
            return Image(noted=NO_IMAGE)
        return Image(url=f"data:{kind};base64,{base64.b64encode(content).decode()}")


def file_id(pointer: str) -> str:
    """Return the id in `file-service://file-abc`, the beginning of the file's name."""
    found = _FILE_ID.search(pointer.rpartition("://")[2])
    return found[0] if found else ""


@dataclass(kw_only=True, slots=True)
class Content:
    """The content of one message, divided."""

    image: Callable[[str], Image]
    shown: Callable[[str], str]  # returns a text with links instead of marks of citations
    names: Mapping[str, str]  # the names of files, by their ids
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)  # the ids of those that were named or shown
    rest: dict[str, object] = field(default_factory=dict)  # what is left of the content

    @property
    def text(self) -> str:
        """Return all texts, a blank line between them."""
        return "\n\n".join(text for text in self.texts if text.strip())

    def take(self, content: Fields) -> bool:
        """Divide the content of a message; return whether its type is known."""
        carried: list[str] = []
        inner: dict[str, object] = {}
        match columns.first_text(content.get("content_type")):
            case "text" | "multimodal_text":
                if isinstance(parts := content.get("parts"), list):
                    inner["parts"] = _filled([self._part(part) for part in parts])
                else:
                    carried = self._say(content, "text")
            case "code" | "execution_output" | "system_error":
                carried = self._say(content, "text")
            case "thoughts":
                if isinstance(thoughts := content.get("thoughts"), list):
                    inner["thoughts"] = _filled([self._thought(thought) for thought in thoughts])
            case "tether_quote":
                carried = self._say(content, "title", "url", "text")
            case "tether_browsing_display":
                carried = self._say(content, "result") or self._say(content, "summary")
            case "computer_output":
                inner["screenshot"] = self._part(content.get("screenshot"))
            case _:
                return False
        self.rest = rest_of(content, ("content_type", *carried), inner)
        return True

    def name_file(self, file_id: str, name: str) -> None:
        """Add the name of a file whose content is missing, and a note."""
        if file_id not in self.files or not file_id:
            self.texts.append(f"[File: {name}]")
            self.noted.append(exports.NAMED_ONLY)

    def show(self, pointer: str) -> None:
        """Add an image, or its name."""
        self.files.add(file_id(pointer))
        image = self.image(pointer)
        if image.url:
            self.images.append(image.url)
            return
        self.texts.append(f"[Image: {self._name(pointer)}]")
        if image.noted:
            self.noted.append(image.noted)

    def _say(self, told: Fields, *names: str) -> list[str]:
        """Add the members that are texts as one; return their names."""
        found = [name for name in names if columns.first_text(told.get(name))]
        if found:
            self.texts.append("\n".join(columns.first_text(told.get(name)) for name in found))
        return found

    def _thought(self, thought: object) -> object:
        """Add a thought; return the rest of it."""
        told = columns.fields(thought)
        said = {name: text for name in ("summary", "content") if (text := columns.first_text(told.get(name)))}
        shown = {name: self.shown(text) for name, text in said.items()}
        self.reasoning.append("\n".join(shown.values()))
        return rest_of(told, [name for name in said if shown[name] == said[name]]) if told else thought

    def _part(self, part: object) -> object:
        """Add a part; return the rest of it."""
        if isinstance(part, str):
            self.texts.append(self.shown(part))
            return "" if self.texts[-1] == part else part
        told = columns.fields(part)
        kind = columns.first_text(told.get("content_type"))
        pointer = columns.first_text(told.get("asset_pointer"))
        spoken = columns.fields(told.get("audio_asset_pointer"))
        carried: list[str] = []
        if kind == "image_asset_pointer" and pointer:
            self.show(pointer)
        elif kind == "audio_transcription" or (not kind and isinstance(told.get("text"), str)):
            carried = self._say(told, "text")
        elif kind.endswith("asset_pointer") and (pointer or spoken):
            named = pointer or columns.first_text(spoken.get("asset_pointer"))
            self.files.add(file_id(named))
            self.texts.append(f"[Recording: {self._name(named)}]")
            self.noted.append(exports.NAMED_ONLY)
        elif part is not None:
            name = f"part {kind}" if kind else "part"
            self.records.append(Record(name=name, value=part, why=Kept.UNKNOWN))
            return None
        rest = rest_of(told, ("content_type", *carried))
        return {"content_type": kind, **rest} if rest else None

    def _name(self, pointer: str) -> str:
        return self.names.get(file_id(pointer)) or pointer


def _filled(by_place: list[object]) -> list[object]:
    """Return the rest of each item, at its place; nothing if all rests are empty."""
    return by_place if any(by_place) else []
