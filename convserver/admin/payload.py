"""Payloads made readable: indented as text, so that every number and string stays as it was received."""

from __future__ import annotations

import re
from collections.abc import Iterator

# The part of a payload that a page reads; the whole payload can be downloaded.
READ_MAX_CHARACTERS = 100_000
# The bound after indenting, which makes long texts of deep nesting.
SHOWN_MAX_CHARACTERS = 200_000

# A string may be cut off, where the beginning of a payload ends inside it.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def indented(text: str) -> str:
    """Return JSON text, or the beginning of one, a member a line; bounded by SHOWN_MAX_CHARACTERS."""
    pieces: list[str] = []
    size = 0
    for piece in _pieces(text):
        size += len(piece)
        if size > SHOWN_MAX_CHARACTERS:
            pieces.append("\n…")
            break
        pieces.append(piece)
    return "".join(pieces)


def _pieces(text: str) -> Iterator[str]:
    depth, opened = 0, False
    for piece in (match.group() for match in _TOKEN.finditer(text)):
        if piece in "]}":  # an empty list or object stays on its line
            depth -= 1
            yield piece if opened else _line(depth) + piece
            opened = False
            continue
        if opened:
            yield _line(depth)
        opened = piece in "[{"
        depth += opened
        match piece:
            case ",":
                yield "," + _line(depth)
            case ":":
                yield ": "
            case _:
                yield piece


def _line(depth: int) -> str:
    indent_max = 20
    return "\n" + "  " * max(0, min(depth, indent_max))
