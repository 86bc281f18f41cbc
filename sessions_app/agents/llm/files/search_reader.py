"""Runs in a confined process: prints the lines of texts that match a regular expression.

The expression is a stranger's, and may take hours or gigabytes: the process has limits, and nothing of it is
compiled elsewhere. It uses only the standard library.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Iterator

# A text on the way to this process: its number and its length, and then its bytes.
HEADER = struct.Struct("!II")


def read(pattern: str, ignores_case: bool, matches_max: int) -> None:
    """Print each matching line as JSON: the number of its text, its own number, and the line.

    Raise ValueError for an expression that is invalid.
    """
    try:
        wanted = re.compile(pattern, re.IGNORECASE if ignores_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"it is no regular expression of Python: {error}") from error
    left, searched_chars = matches_max, 20_000
    for number, text in _texts():
        for line_number, line in enumerate(text.split("\n"), 1):
            if left and (found := wanted.search(line[:searched_chars])):
                print(json.dumps([number, line_number, _shown(line.rstrip("\r"), found.start())]))
                left -= 1
        if not left:
            return


def _texts() -> Iterator[tuple[int, str]]:
    while header := sys.stdin.buffer.read(HEADER.size):
        number, length = HEADER.unpack(header)
        yield number, sys.stdin.buffer.read(length).decode("utf-8", "replace")


def _shown(line: str, at: int, most: int = 300) -> str:
    """Return a line, or the part of a long one around the match."""
    if len(line) <= most:
        return line
    first = max(0, at - most // 3)
    before, after = "…" if first else "", "…" if first + most < len(line) else ""
    return f"{before}{line[first : first + most]}{after}"
