"""Content in the form of Anthropic's messages: a text, or a list of blocks with a `type`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from conversations.dialects import columns
from conversations.transcripts.sources.nodes import (
    Author,
    Kept,
    Message,
    Part,
    Record,
    ToolCall,
    ToolResult,
    filled_rests,
    rest_of,
    rest_of_block,
)

Block = Mapping[str, object]

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})


class BlockContent(NamedTuple):
    # In the order of the blocks, unknown ones unchanged; then unknown contents of results.
    parts: tuple[Part, ...]
    # By block: the members that no part carries. Empty if no block has any.
    rest: list[dict[str, object]]


def read(content: object, author: Author) -> BlockContent:
    reading = _Reading(author)
    found: list[Part] = []
    for block in [content] if isinstance(content, str) else columns.items(content):
        found += reading.take(text_block(block) if isinstance(block, str) else block)
    found += reading.said()
    if content is not None and not isinstance(content, str | list):
        found.append(Record(name="content", value=content, why=Kept.UNKNOWN))
    return BlockContent((*found, *reading.unknown), filled_rests(reading.rests))


def parts(content: object, author: Author) -> Iterator[Part]:
    """Yield the parts of a message's content, in order; an unknown block unchanged."""
    yield from read(content, author).parts


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


class _Reading:
    """Joins parts that belong together: texts and images, and the reasoning before them."""

    def __init__(self, author: Author) -> None:
        self.rests: list[dict[str, object]] = []  # one for each block
        self.unknown: list[Part] = []  # what results hold beside texts and images
        self._author = author
        self._texts: list[str] = []
        self._images: list[str] = []
        self._reasoning: list[str] = []

    def take(self, block: object) -> Iterator[Part]:
        """Yield the parts that this block completes."""
        found = columns.fields(block)
        kind = columns.first_text(found.get("type"))
        self.rests.append({})
        if kind == "text" and isinstance(text := found.get("text"), str):
            self._texts.append(text)
            self.rests[-1] = rest_of_block(found, {"text"})
        elif kind == "image" and (url := image_url(found)):
            self._images.append(url)
            self.rests[-1] = _left_of_image(found)
        elif kind in _THOUGHTS:
            if self._texts:
                yield from self.said()
            yield from self._think(found)
        elif kind in _CALLS and isinstance(found.get("id"), str):
            yield from self._call(found)
        elif kind.endswith("tool_result") and isinstance(found.get("tool_use_id"), str):
            yield from self.said()
            yield result(found)
            self._look_into(found)
        elif block is not None:
            yield from self.said()
            yield Record(name=f"block {kind}" if kind else "block", value=block, why=Kept.UNKNOWN)

    def said(self) -> Iterator[Part]:
        """Yield the words since the last part."""
        text, reasoning = "\n\n".join(filter(None, self._texts)), self._taken_reasoning()
        if text or reasoning or self._images:
            yield Message(author=self._author, text=text, reasoning=reasoning, images=tuple(self._images))
        self._texts, self._images = [], []

    def _think(self, block: Block) -> Iterator[Part]:
        if isinstance(thought := block.get("thinking"), str):
            # Some thoughts are missing themselves, and only their summaries are there.
            summaries = columns.objects(block.get("summaries"))
            texts = [columns.first_text(each.get("summary")) for each in summaries]
            self._reasoning.append(thought or "\n\n".join(filter(None, texts)))
            self.rests[-1] = rest_of_block(block, {"thinking"})
        else:  # what the model thought is encrypted
            yield Record(name=columns.first_text(block.get("type")), value=block, why=Kept.BOOKKEEPING)

    def _call(self, block: Block) -> Iterator[Part]:
        # The words before a call are its thought only if nothing else came before it.
        thought = "\n\n".join(filter(None, self._texts)) if not self._images else ""
        if thought:
            self._texts = []
        else:
            yield from self.said()
        name, given = block.get("name"), block.get("input")
        self.rests[-1] = rest_of_block(block, {"id", "input", "name" if isinstance(name, str) else ""})
        yield ToolCall(
            call_id=columns.first_text(block.get("id")),
            tool=columns.first_text(name) or "unknown",
            arguments=given if isinstance(given, Mapping) else columns.as_json(given),
            thought=thought,
            reasoning=self._taken_reasoning(),
        )

    def _look_into(self, block: Block) -> None:
        """Keep the members of a result beside the texts and images in its part."""
        content = block.get("content")
        items = content if isinstance(content, list) else [content]
        inner = [self._left_of_item(each) for each in items] if _has_words(content) else []
        carried = {"tool_use_id", "is_error" if isinstance(block.get("is_error"), bool) else ""}
        self.rests[-1] = rest_of_block(block, carried, {"content": filled_rests(inner)})

    def _left_of_item(self, item: object) -> dict[str, object]:
        found = columns.fields(item)
        if isinstance(found.get("text"), str):
            return rest_of_block(found, {"text"})
        if image_url(found):
            return _left_of_image(found)
        if item is not None and not isinstance(item, str):
            kind = columns.first_text(found.get("type"))
            self.unknown.append(Record(name=f"block {kind}".strip(), value=item, why=Kept.UNKNOWN))
        return {}

    def _taken_reasoning(self) -> str:
        taken, self._reasoning = "\n\n".join(filter(None, self._reasoning)), []
        return taken


def result(block: Block) -> ToolResult:
    """Return the answer of a tool: text, and images; as JSON if it has neither."""
    content = block.get("content")
    text = columns.content_text(content) if _has_words(content) else columns.as_json(content)
    return ToolResult(
        call_id=columns.first_text(block.get("tool_use_id")),
        text=text,
        images=tuple(_images(content)),
        is_error=block.get("is_error") is True,
    )


def _has_words(content: object) -> bool:
    """Return whether the content of a result is empty, or has a text or an image."""
    return content in (None, "", []) or bool(columns.content_text(content) or _images(content))


def _images(content: object) -> list[str]:
    return [url for block in columns.objects(content) if (url := image_url(block))]


def image_url(block: Block) -> str | None:
    """Return the address of an image, or its data as one; None if it has neither."""
    source = columns.fields(block.get("source"))
    if url := columns.first_text(source.get("url")):
        return url
    data, media = columns.first_text(source.get("data")), columns.first_text(source.get("media_type"))
    return f"data:{media or 'image/png'};base64,{data}" if data else None


def _left_of_image(block: Block) -> dict[str, object]:
    source = columns.fields(block.get("source"))
    used = "url" if columns.first_text(source.get("url")) else "data"
    return rest_of_block(block, (), {"source": rest_of(source, {"type", "media_type", used})})
