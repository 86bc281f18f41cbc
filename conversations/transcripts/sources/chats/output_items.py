"""Answers of newer releases of Open WebUI: a list of output items, read as blocks like `details`.

Members of an item that its block does not carry are the block's member `item`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources.chats import details
from conversations.transcripts.sources.nodes import rest_of

CODE_ITEM = "open_webui:code_interpreter"


def blocks_of(items: Sequence[object], node_id: str) -> Iterator[object]:
    """Yield the blocks of an answer's output items; an item of an unknown type unchanged."""
    call_id = ""
    for number, value in enumerate(items):
        item = columns.fields(value)
        kind = columns.first_text(item.get("type"))
        named = columns.first_text(item.get("call_id"))
        if kind in ("function_call", CODE_ITEM):
            call_id = named or columns.first_text(item.get("id")) or f"{node_id}/{number}"
            yield from _called(item, call_id) if kind == "function_call" else _ran(item, call_id)
        elif kind == "function_call_output":
            yield _returned(item, named or call_id or f"{node_id}/{number}")
        elif kind == "message" and isinstance(item.get("content"), list):
            yield from _said(item)
        elif kind == "reasoning":
            yield _thought(item)
        else:
            yield value


def _left(item: Fields, *carried: str, inner: Fields | None = None) -> dict[str, object]:
    rest = rest_of(item, {"type", *carried}, inner)
    return {"item": rest} if rest else {}


def _said(item: Fields) -> Iterator[object]:
    content = item.get("content")
    first, *others = content if isinstance(content, list) and content else [{"text": ""}]
    block = details.content_part(first)
    yield {**columns.fields(block), **_left(item, "content")} if columns.fields(block) else block
    yield from map(details.content_part, others)


def _thought(item: Fields) -> Fields:
    for name in ("summary", "content"):
        if text := columns.content_text(item.get(name)):
            return {**details.thinking(text), **_left(item, name if _is_plain(item.get(name)) else "")}
    return {**item, "type": "redacted_thinking"}


def _called(item: Fields, call_id: str) -> Iterator[Fields]:
    given = details.arguments(item.get("arguments"))
    called = details.use(call_id, columns.first_text(item.get("name")), given)
    yield {**called, **_left(item, "call_id", "name", "arguments")}


def _ran(item: Fields, call_id: str) -> Iterator[Fields]:
    given = {"language": columns.first_text(item.get("lang")), "code": columns.first_text(item.get("code"))}
    output = item.get("output")
    inner: Fields = {}
    if isinstance(output, Mapping) and any(output.get(name) is not None for name in details.PRINTED):
        inner = {"output": rest_of(output, details.PRINTED)}
    used = "call_id" if item.get("call_id") == call_id else "id"
    yield {
        **details.use(call_id, details.CODE_TOOL, given),
        **_left(item, used, "lang", "code", "output", inner=inner),
    }
    if output is not None:
        yield details.result(call_id, details.printed(output))


def _returned(item: Fields, call_id: str) -> Fields:
    output, files = item.get("output"), item.get("files")
    images = [url for part in columns.objects(output) if (url := details.image_url(part))]
    text = columns.content_text(output)
    carried = ["call_id", "output" if _is_plain(output) else ""]
    if not text and not images and output not in (None, "", []):
        text = columns.as_json(output)
        carried.append("output")
    shown = details.shown_images(files)
    if isinstance(files, list) and files == shown:
        carried.append("files")
    return {**details.result(call_id, text, [*images, *shown]), **_left(item, *carried)}


def _is_plain(content: object) -> bool:
    """Return whether a content has only text."""
    parts = content if isinstance(content, list) else [content]
    return all(isinstance(part, str) or set(columns.fields(part)) == {"type", "text"} for part in parts)
