"""The results of tools: a bounded text, images and files."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from conversations.dialects import columns
from conversations.dialects.author import to_strict_json
from sessions_app.agents.llm.tools.calls import Outcome

RESULT_MAX_CHARS = 50_000
FILES_MAX = 20
FILES_MAX_BYTES = 3 * 1024 * 1024
"""Of all images and other files of one result."""
KIND_MAX_CHARS = 100
EMPTY = "(The tool returned nothing.)"
UNREADABLE = "(The tool returned something that can't be read.)"
# The first bytes of the images that providers take; they refuse one of a wrongly named kind.
IMAGE_BYTES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


class _Part(NamedTuple):
    """A part of a result: its text, and perhaps a file."""

    text: str
    file: str = ""
    """A data URL."""


def outcome_of(result: object) -> Outcome:
    """Return a result of the protocol; sentences replace its unreadable parts."""
    fields = columns.fields(result)
    content, structured = fields.get("content"), fields.get("structuredContent")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    reader = _Reader()
    parts = [reader.part(block) for block in blocks]
    texts = [columns.clean(part.text) for part in parts if part.text]
    if structured is not None and not _says(texts, structured):
        texts.append(columns.clean(to_strict_json(structured)))
    is_readable = "content" in fields or structured is not None
    return Outcome(
        text=bounded("\n".join(texts)) or (EMPTY if is_readable else UNREADABLE),
        is_error=fields.get("isError") is True,
        files=tuple(part.file for part in parts if part.file),
    )


def bounded(text: str) -> str:
    """Return a text of at most about RESULT_MAX_CHARS, with a note of what was cut."""
    if len(text) <= RESULT_MAX_CHARS:
        return text
    half = RESULT_MAX_CHARS // 2
    cut = len(text) - 2 * half
    return f"{text[:half]}\n[… {cut:,} characters were cut here …]\n{text[-half:]}"


def _says(texts: list[str], structured: object) -> bool:
    """Return whether a text already is the structured content, as the protocol recommends."""
    # Servers' libraries wrap a result that is no object into the member `result`.
    wrapped = structured["result"] if isinstance(structured, dict) and [*structured] == ["result"] else None
    if isinstance(wrapped, str) and wrapped in ("\n".join(texts), *texts):
        return True
    for text in texts:
        with suppress(ValueError, RecursionError):
            if (found := json.loads(text)) == structured or (wrapped is not None and found == wrapped):
                return True
    return False


class _Reader:
    """Reads the parts of one result, whose files share a bound."""

    def __init__(self) -> None:
        self._room = FILES_MAX_BYTES
        self._left = FILES_MAX

    def part(self, block: object) -> _Part:
        if isinstance(block, str):
            return _Part(block)
        fields = columns.fields(block)
        kind = columns.first_text(fields.get("type"))
        match kind:
            case "text" if isinstance(text := fields.get("text"), str):
                return _Part(text)
            case "image" | "audio" if isinstance(data := fields.get("data"), str):
                return self._file(data, columns.first_text(fields.get("mimeType")) or kind, "")
            case "resource_link":
                return _Part(f"({columns.first_text(fields.get('name'))}: {_text(fields.get('uri'))})")
            case "resource" if isinstance(resource := fields.get("resource"), Mapping):
                return self._resource(resource)
        return _Part(_unknown(block, kind))

    def _resource(self, resource: Mapping[str, Any]) -> _Part:
        uri = _text(resource.get("uri"))
        if isinstance(text := resource.get("text"), str):
            return _Part(f"{uri}:\n{text}")
        if isinstance(blob := resource.get("blob"), str):
            return self._file(blob, columns.first_text(resource.get("mimeType")), uri)
        return _Part(_unknown(resource, "resource"))

    def _file(self, data: str, kind: str, name: str) -> _Part:
        """Return a file, if it is readable and there is room for it."""
        kind = "".join(each for each in kind.lower() if each.isascii() and (each.isalnum() or each in "/+-."))
        kind = kind[:KIND_MAX_CHARS] if "/" in kind else "application/octet-stream"
        content = _decoded(data)
        if not content:
            return _Part(f"({_named(name, kind)} can't be read.)")
        kind = image_kind(content) or (kind if not kind.startswith("image/") else "application/octet-stream")
        shown = f"{_named(name, kind)} with {len(content):,} bytes"
        self._left -= 1
        if self._left < 0 or len(content) > self._room:
            return _Part(f"({shown}, which is left out: it is too long.)")
        self._room -= len(content)
        return _Part(f"({shown}.)", f"data:{kind};base64,{base64.b64encode(content).decode()}")


def _named(name: str, kind: str) -> str:
    return f"{name}, {kind}" if name else kind


def image_kind(content: bytes) -> str | None:
    """Return the kind of an image that models take; None for other content."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in IMAGE_BYTES.items() if content.startswith(start)), None)


def _decoded(data: str) -> bytes:
    """Decode Base64 of either alphabet, also on several lines; return nothing if it is invalid."""
    compact = "".join(data.split()).translate({ord("-"): "+", ord("_"): "/"}).rstrip("=")
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _text(value: object) -> str:
    return " ".join(columns.clean(value).split())[:2_000] if isinstance(value, str) else "?"


def _unknown(block: object, kind: str) -> str:
    """Return the sentence for a part of an unknown kind, or with missing members."""
    try:
        shown = to_strict_json(block)
    except (ValueError, RecursionError):
        shown = ""
    return f"(A part of the kind `{_text(kind) or '?'}` can't be read: {bounded(shown)})"
