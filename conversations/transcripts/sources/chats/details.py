"""Answers in the form of Open WebUI: Markdown with `<details>` blocks.

They are read as blocks like those of Anthropic's messages, which `blocks` reads.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import blocks, lines
from conversations.transcripts.sources.lines import Damaged
from conversations.transcripts.sources.nodes import Author, ToolCall, rest_of

CODE_TOOL = "code_interpreter"  # the program's tool for code that the model writes to be run
# The types of the program's own blocks; any other block is the author's.
KINDS = frozenset({"reasoning", "tool_calls", CODE_TOOL})
PRINTED = ("stdout", "stderr", "result")  # the outputs of running code

# The beginnings of addresses of images that can be seen without the program.
SHOWN = ("data:", "http://", "https://")

_OPENING = re.compile(r'<details((?:\s+[A-Za-z_-]+="[^"]*")*)\s*>')
_ATTRIBUTE = re.compile(r'([A-Za-z_-]+)="([^"]*)"')
_CLOSING = "</details>"
_CLOSING_LINE = re.compile(r"^(?!>|&gt;)[^\n]*?" + _CLOSING, re.MULTILINE)
_SUMMARY = re.compile(r"\s*<summary>(.*?)</summary>", re.DOTALL)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_CODE = re.compile(r"\s*(`{3,})([^\n`]*)\n(.*?)\n?\1\s*", re.DOTALL)
_THINK = re.compile(r"\s*<(think|thinking)>(.*?)</\1>", re.DOTALL)


class _Details(NamedTuple):
    kind: str
    attributes: Mapping[str, str]
    body: str  # without the summary
    summary: str  # its text on the screen while it is folded

    def left(self, *carried: str) -> dict[str, object]:
        """Return the members that the blocks made of it do not carry, as a member of the first of them."""
        told = {"summary": self.summary, **self.attributes}
        rest = {name: text for name, text in told.items() if text and name not in ("type", "done", *carried)}
        return {"details": rest} if rest else {}


def read(found: Sequence[object], author: Author) -> blocks.BlockContent:
    """Divide blocks into parts and the rest; arguments that are no object stay texts."""
    content = blocks.read(list(found), author)
    uses = [columns.fields(block) for block in found if columns.fields(block).get("type") == "tool_use"]
    given = iter([use.get("input") for use in uses if isinstance(use.get("id"), str)])
    parts = (
        replace(part, arguments=text)
        if isinstance(part, ToolCall) and isinstance(text := next(given, None), str)
        else part
        for part in content.parts
    )
    return content._replace(parts=tuple(parts))


def of_text(text: str, node_id: str) -> Iterator[Fields]:
    """Yield the blocks of an answer in Markdown; calls without an id are numbered after `node_id`."""
    if begins := _THINK.match(text):
        yield thinking(begins[2].strip())
        text = text[begins.end() :]
    for number, piece in enumerate(_pieces(text)):
        if isinstance(piece, str):
            if piece.strip():
                yield blocks.text_block(piece.strip("\n"))
        elif piece.kind == "reasoning":
            yield {**thinking(_unquoted(piece.body)), **piece.left()}
        else:
            read = _tool_call if piece.kind == "tool_calls" else _code_run
            yield from read(piece, piece.attributes.get("id") or f"{node_id}/{number}")


def shown_images(files: object) -> list[str]:
    """Return the addresses of the images in a list of files that are visible without the program."""
    found = [columns.first_text(file, columns.fields(file).get("url")) for file in columns.items(files)]
    return [url for url in found if url.startswith(SHOWN)]


def said(found: Sequence[object]) -> str:
    """Return the words of blocks without the space between them, for comparing."""
    texts = [columns.fields(block) for block in found]
    return "".join("".join(_words(block).split()) for block in texts if block.get("type") == "text")


def image(url: str) -> dict[str, object]:
    return {"type": "image", "source": {"url": url}}


def _words(block: Fields) -> str:
    return columns.first_text(block.get("text"))


def thinking(text: str) -> dict[str, object]:
    return {"type": "thinking", "thinking": text}


def result(call_id: str, text: str, images: Sequence[str] = ()) -> dict[str, object]:
    content = [blocks.text_block(text), *map(image, images)]
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def use(call_id: str, tool: str, given: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": given}


def _pieces(text: str) -> Iterator[str | _Details]:
    """Yield the program's blocks and the text between them; a block quoted as code is text."""
    at = start = 0
    fence, has_more = "", True
    while at < len(text):
        opening = _OPENING.match(text, at) if not fence and has_more else None
        if opening is not None and _attributes(opening).get("type") in KINDS:
            closing = _closing(text, opening.end())
            has_more = closing >= 0  # where this one has no end, none after it has one
            if has_more:
                yield text[start:at]
                yield _details(opening, text[opening.end() : closing])
                start = at = closing + len(_CLOSING)
                continue
        end = text.find("\n", at) + 1 or len(text)
        fence = _fence_after(text[at:end], fence)
        at = end
    yield text[start:]


def _fence_after(line: str, fence: str) -> str:
    """Return the fence of the code around the next line; an empty text outside of code."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found[1]
    is_end = found[1].startswith(fence) and not found[2].strip()
    return "" if is_end else fence


def _attributes(opening: re.Match[str]) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(opening[1])}


def _details(opening: re.Match[str], body: str) -> _Details:
    attributes = _attributes(opening)
    summary = _SUMMARY.match(body)
    body = body[summary.end() if summary else 0 :].strip("\n")
    return _Details(attributes["type"], attributes, body, summary[1] if summary else "")


def _closing(text: str, at: int) -> int:
    """Return the end of a block, -1 if it has none; ends in quoted lines do not count."""
    line_end = text.find("\n", at)
    line_end = len(text) if line_end < 0 else line_end
    if (found := text.find(_CLOSING, at, line_end)) >= 0:
        return found
    line = _CLOSING_LINE.search(text, line_end)
    return line.end() - len(_CLOSING) if line else -1


def _unquoted(body: str) -> str:
    """Return reasoning without the marks of quotation; newer releases escape it after setting them."""
    if body.lstrip().startswith("&gt;"):
        body = html.unescape(body)
    return "\n".join(line.removeprefix(">").removeprefix(" ") for line in body.split("\n")).strip()


def _tool_call(found: _Details, call_id: str) -> Iterator[Fields]:
    attributes = found.attributes
    called = use(call_id, attributes.get("name", ""), arguments(attributes.get("arguments", "")))
    text = _decoded(attributes.get("result", "")) or html.unescape(found.body)
    images = shown_images(_json(attributes.get("files", "")))
    left = found.left("id", "name", "arguments", "result", "files" if images else "")
    if found.body and text != html.unescape(found.body):
        left["body"] = found.body
    yield {**called, **left}
    if text or images or attributes.get("done") == "true":
        yield result(call_id, columns.clean(text), images)


def _code_run(found: _Details, call_id: str) -> Iterator[Fields]:
    code = _CODE.fullmatch(found.body)
    language, text = (code[2].strip(), code[3]) if code else ("", found.body)
    yield {**use(call_id, CODE_TOOL, {"language": language, "code": text}), **found.left("id", "output")}
    output = found.attributes.get("output", "")
    if output or found.attributes.get("done") == "true":
        value = _json(output)
        yield result(call_id, printed(output if value is None else value))


def content_part(value: object) -> object:
    """Return a part of a message as a block, with its further members."""
    part = columns.fields(value)
    if isinstance(part.get("text"), str):
        return {**part, "type": "text"}
    url = image_url(part)
    inner = rest_of(columns.fields(part.get("image_url")), {"url"})
    return rest_of(part, {"type"}, {"image_url": inner}) | image(url) if url else value


def image_url(part: Fields) -> str:
    """Return the address of an image in a part of content; an empty one if it is none."""
    given = part.get("image_url")
    return columns.first_text(given, columns.fields(given).get("url"))


def content_blocks(content: object) -> list[object]:
    """Return the blocks of a message's content: a text, or a list of parts in the form of OpenAI's API."""
    if isinstance(content, list):
        return [blocks.text_block(part) if isinstance(part, str) else content_part(part) for part in content]
    if isinstance(content, str):
        return [blocks.text_block(content)] if content.strip() else []
    return [] if content is None else [content]


def printed(output: object) -> str:
    """Return the output of a program, and its result."""
    if isinstance(output, Mapping):
        told = [output.get(name) for name in PRINTED]
        texts = [_as_text(each) for each in told if each is not None]
        return "\n".join(filter(None, texts)) if texts else columns.as_json(output)
    return _as_text(output)


def _as_text(value: object) -> str:
    return columns.clean(value) if isinstance(value, str) else columns.as_json(value)


def arguments(given: object) -> Fields | str:
    """Return the arguments of a call: an object if they contain one, in any text."""
    for _ in range(3):  # an object, a JSON text of it, or a JSON text of such a text
        found = lines.arguments(given)
        given = _json(found) if isinstance(found, str) else None
        if not isinstance(given, str):
            return columns.clean(found) if isinstance(found, str) else found
    return _as_text(given)


def _decoded(text: str) -> str:
    """Return the value of a JSON text; any other text unchanged."""
    value = _json(text)
    return value if isinstance(value, str) else text


def _json(text: str) -> object:
    """Return the value of a JSON text in a storable form; None for any other text."""
    with suppress(Damaged):
        return lines.storable(lines.parsed(text))
    return None
