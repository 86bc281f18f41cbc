"""Content as Anthropic's messages hold it: a text, or a list of blocks with a `type`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conversations.dialects import columns
from conversations.transcripts.sources.nodes import (
    Author,
    Kept,
    Message,
    Part,
    Record,
    ToolCall,
    ToolResult,
)

Block = Mapping[str, object]

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})


def parts(content: object, author: Author) -> Iterator[Part]:
    """Yield what a message's content says, in its order; a block that is unknown as it is."""
    reading = _Reading(author)
    for block in [content] if isinstance(content, str) else content if isinstance(content, list) else []:
        yield from reading.take({"type": "text", "text": block} if isinstance(block, str) else block)
    yield from reading.rest()
    if content is not None and not isinstance(content, str | list):
        yield Record(name="content", value=content, why=Kept.UNKNOWN)


class _Reading:
    """Joins what belongs together: texts and images, and the reasoning before them."""

    def __init__(self, author: Author) -> None:
        self._author = author
        self._texts: list[str] = []
        self._images: list[str] = []
        self._reasoning: list[str] = []

    def take(self, block: object) -> Iterator[Part]:
        """Yield what this block completes."""
        found = columns.fields(block)
        kind = columns.first_text(found.get("type"))
        if kind == "text" and isinstance(text := found.get("text"), str):
            self._texts.append(text)
        elif kind == "image" and (url := image_url(found)):
            self._images.append(url)
        elif kind in _THOUGHTS:
            if self._texts:
                yield from self.rest()
            yield from self._think(found)
        elif kind in _CALLS and isinstance(found.get("id"), str):
            yield from self._call(found)
        elif kind.endswith("tool_result") and isinstance(found.get("tool_use_id"), str):
            yield from self.rest()
            yield result(found)
        elif block is not None:
            yield from self.rest()
            yield Record(name=f"block {kind}" if kind else "block", value=block, why=Kept.UNKNOWN)

    def rest(self) -> Iterator[Part]:
        """Yield what was said since the last part."""
        text, reasoning = "\n\n".join(filter(None, self._texts)), self._taken_reasoning()
        if text or reasoning or self._images:
            yield Message(author=self._author, text=text, reasoning=reasoning, images=tuple(self._images))
        self._texts, self._images = [], []

    def _think(self, block: Block) -> Iterator[Part]:
        if isinstance(thought := block.get("thinking"), str):
            self._reasoning.append(thought)
        else:  # what the model thought is encrypted
            yield Record(name=columns.first_text(block.get("type")), value=block, why=Kept.BOOKKEEPING)

    def _call(self, block: Block) -> Iterator[Part]:
        # The words before a call are its thought only where nothing but they came before it.
        thought = "\n\n".join(filter(None, self._texts)) if not self._images else ""
        if thought:
            self._texts = []
        else:
            yield from self.rest()
        given = block.get("input")
        yield ToolCall(
            call_id=columns.first_text(block.get("id")),
            tool=columns.first_text(block.get("name")) or "unknown",
            arguments=given if isinstance(given, Mapping) else columns.as_json(given),
            thought=thought,
            reasoning=self._taken_reasoning(),
        )

    def _taken_reasoning(self) -> str:
        taken, self._reasoning = "\n\n".join(filter(None, self._reasoning)), []
        return taken


def result(block: Block) -> ToolResult:
    """Return what a tool answered: text, and images."""
    content = block.get("content")
    blocks = content if isinstance(content, list) else []
    images = [url for each in blocks if (url := image_url(columns.fields(each)))]
    text = columns.content_text(content)
    if not text and not images and content not in (None, "", []):
        text = columns.as_json(content)
    return ToolResult(
        call_id=columns.first_text(block.get("tool_use_id")),
        text=text,
        images=tuple(images),
        is_error=block.get("is_error") is True,
    )


def image_url(block: Block) -> str | None:
    """Return the address of an image, or its data as one; None if it has neither."""
    source = columns.fields(block.get("source"))
    if url := columns.first_text(source.get("url")):
        return url
    data, media = columns.first_text(source.get("data")), columns.first_text(source.get("media_type"))
    return f"data:{media or 'image/png'};base64,{data}" if data else None
