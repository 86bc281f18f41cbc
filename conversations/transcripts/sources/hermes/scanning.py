"""Finding the values of a large JSON document without holding it, even behind damaged places.

The document is an object; the elements of some of its lists are found one by one. It is written with an
indentation of two, so after damage the next element, or the next member, is recognised by its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from conversations.confined.processes import check
from conversations.dialects import columns
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.lines import Damaged
from conversations.transcripts.sources.nodes import LINE_MAX_BYTES, Unreadable

# The members that are lists whose elements are found one by one.
LISTS = frozenset({"messages", "context_messages", "tool_calls"})
CUT = "the file ends too early"
NAME_MAX_BYTES = 1024
CHUNK_BYTES = 64 * 1024
FIRST_BYTES = 16 * 1024  # read at first where a search begins
LOOKED_AT_TIMES = 20
# All searches of a damaged document together read at most its size times this, or this number of bytes.
LOOKED_AT_MIN_BYTES = 16 * 1024 * 1024

_OUTSIDE = re.compile(rb'["{}\[\],]')
_INSIDE = re.compile(rb'["\\]')
_LIST_OPENS = re.compile(rb'\s*"(\w+)"\s*:\s*')
_NEXT_ELEMENT = re.compile(rb'\n    (?=\{)|\n  (?=[\]"])')
_NEXT_MEMBER = re.compile(rb'\n  (?=")')


class Found(NamedTuple):
    """A member of the document, an element of one of its lists, or bytes that are neither."""

    name: str  # of the member; empty for bytes that are damaged outside of the lists
    start: int
    end: int
    value: object = None
    is_element: bool = False
    is_list: bool = False  # a list begins here, whose elements follow
    damage: str = ""  # the fault of these bytes


class _Broken(Exception):
    """The document cannot be followed from `start` on, inside of the list if it has a name."""

    def __init__(self, why: str, start: int, list_name: str) -> None:
        super().__init__(why)
        self.start, self.list_name = start, list_name


def found(path: Path) -> Iterator[Found]:
    """Yield what is in the document, in its order; damaged bytes as one each. Raise Unreadable."""
    try:
        if path.is_symlink() or not path.is_file():
            raise Unreadable(f"{path.name} is not a regular file")
        with path.open("rb") as ahead, path.open("rb") as file:
            yield from _Search(ahead, file).found()
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error


def bytes_at(path: Path, start: int, end: int) -> bytes:
    """Return these bytes, at most as many as a line may have. Raise Unreadable."""
    try:
        with path.open("rb") as file:
            return _read(file, start, min(end, start + LINE_MAX_BYTES))
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error


def value(text: bytes) -> object:
    """Return a value in a storable form. Raise Damaged."""
    return lines.storable(lines.parsed(text))


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


class _Start(NamedTuple):
    at: int = 0
    depth: int = 0
    list_name: str = ""
    is_after_list: bool = False


class _Search:
    def __init__(self, ahead: BinaryIO, file: BinaryIO) -> None:
        self._ahead = ahead
        self._file = file
        # The bytes that may still be searched; after that, the rest behind a damaged place counts as damaged.
        self._left = max(LOOKED_AT_MIN_BYTES, LOOKED_AT_TIMES * file.seek(0, 2))

    def found(self) -> Iterator[Found]:
        """Yield the values of the document, continuing behind damaged places."""
        start: _Start | None = _Start()
        while start is not None:
            try:
                yield from self._followed(start)
                return
            except _Broken as broken:
                start = self._next_start(broken) if self._left > 0 else None
                end = start.at if start else self._file.seek(0, 2)
                if end > broken.start:
                    yield Found(broken.list_name, broken.start, end, damage=str(broken))

    def _followed(self, begin: _Start) -> Iterator[Found]:
        start, depth, list_name, is_after_list = begin
        is_first = depth != 1
        for mark, at in self._marks(start, FIRST_BYTES):
            if mark in b"{[":
                if depth == 0:
                    self._check(mark == ord("{") and self._is_blank(start, at), start)
                    start = at + 1
                elif depth == 1 and mark == ord("[") and (name := self._list(start, at)):
                    yield Found(name, at, at + 1, is_list=True)
                    list_name, start, is_first = name, at + 1, True
                depth += 1
                continue
            level, is_end = depth, mark != ord(",")
            depth -= is_end
            if level == 2 and list_name:
                if not (is_end and is_first and self._is_blank(start, at)):
                    yield self._element(list_name, start, at)
                start, is_first = at + 1, False
                if is_end:
                    self._check(mark == ord("]"), at)
                    list_name, is_after_list = "", True
            elif level < 2:
                self._check(level == 1 and mark in b",}", start)
                if is_after_list:
                    self._check(self._is_blank(start, at), start)
                elif not (is_end and is_first and self._is_blank(start, at)):
                    yield from self._member(start, at)
                start, is_first, is_after_list = at + 1, False, False
                if is_end:
                    self._check(self._is_blank(start, self._file.seek(0, 2)), start)
                    return
        raise _Broken(CUT, start, list_name)

    def _marks(self, start: int, chunk_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield each brace, bracket and comma outside of strings, with its offset."""
        at, is_inside = 0, False
        self._ahead.seek(start)
        while chunk := self._ahead.read(chunk_bytes):
            check()
            self._left -= len(chunk)
            while match := (_INSIDE if is_inside else _OUTSIDE).search(chunk, at):
                at = match.end()
                mark = chunk[at - 1]
                if mark == ord('"'):
                    is_inside = not is_inside
                elif is_inside:
                    at += 1  # what follows a backslash, even if it is in the next chunk
                else:
                    yield mark, start + at - 1
            start += len(chunk)
            at = max(at - len(chunk), 0)
            chunk_bytes = min(chunk_bytes * 2, CHUNK_BYTES)

    def _element(self, list_name: str, start: int, end: int) -> Found:
        try:
            told = value(_read(self._file, start, end))
        except Damaged as error:
            raise _Broken(str(error), start, list_name) from error
        return Found(list_name, start, end, value=told, is_element=True)

    def _member(self, start: int, end: int) -> Iterator[Found]:
        try:
            member = value(b"{" + _read(self._file, start, end) + b"}")
        except Damaged as error:
            raise _Broken(str(error), start, "") from error
        self._check(bool(member), start)
        for name, told in columns.fields(member).items():
            yield Found(name, start, end, value=told)

    def _list(self, start: int, end: int) -> str:
        """Return the name of the list that opens, if its elements are found one by one."""
        opens = _LIST_OPENS.fullmatch(_read(self._file, start, end)) if end - start < NAME_MAX_BYTES else None
        name = opens[1].decode() if opens else ""
        return name if name in LISTS else ""

    def _is_blank(self, start: int, end: int) -> bool:
        return not _read(self._file, start, end).strip(b" \t\r\n")

    def _check(self, is_right: bool, start: int) -> None:
        if not is_right:
            raise _Broken("it is not valid JSON", start, "")

    def _next_start(self, broken: _Broken) -> _Start | None:
        """Return the place from which the document can be followed again."""
        starts = _NEXT_ELEMENT if broken.list_name else _NEXT_MEMBER
        at, tail, size = broken.start + 1, b"", FIRST_BYTES
        self._file.seek(at)
        longest_start = 8
        while chunk := self._file.read(size):
            check()
            self._left -= len(chunk)
            text = tail + chunk
            # The pattern's lookahead may need the next chunk.
            if match := starts.search(text):
                start, mark = at - len(tail) + match.end(), text[match.end()]
                if mark == ord("{"):
                    return _Start(start, 2, broken.list_name)
                is_list_end = mark == ord("]")
                return _Start(start + is_list_end, 1, "", is_list_end)
            at += len(chunk)
            tail, size = text[-longest_start:], CHUNK_BYTES
        return None
