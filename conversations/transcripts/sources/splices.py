"""Finding the complete records in a line that is not one record, after crashes or with several writers.

A line may have several records, one after a record that was cut off, the end of one whose beginning is lost,
and NUL bytes or byte order marks anywhere. For a reader of JSON, a record that was cut off continues with the
record after it: in a string up to its first quote, or as the value of a member. So the text is read as JSON
as far as it is JSON, and the next record is searched for from the last token before that.

This takes time linear in the length of the line: no token is read more than twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from conversations.confined.processes import check

DEPTH_MAX = 100  # an object that is nested more deeply is no record
STARTS_MAX = 100_000  # places of a line that are tried; the rest of the line stays unread
_START = re.compile(rb'\{[ \t\r\n]*+"')
_PADDING = re.compile(rb"(?:[\x00 \t\r\n\v\f]|\xef\xbb\xbf)*+")
_INSIDE = re.compile(rb"[ \t\r\n]*+[\]},:]")  # what follows a part of a record
_STRING = rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"'
_LITERAL = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null|NaN|-?Infinity"
_TOKEN = re.compile(rb"[ \t\r\n]*+(?:([{\[])|([}\]])|(:)|(,)|(" + _STRING + rb")|(" + _LITERAL + rb"))?")
_NOTHING, _OPEN, _CLOSE, _COLON, _COMMA, _TEXT, _OTHER = range(7)  # no token, or the group that it is
_VALUE, _FIRST_ITEM, _KEY, _FIRST_KEY, _AFTER_KEY, _AFTER_VALUE = range(6)  # what is expected next
# By what was expected and what came: what is expected next, apart from brackets and commas.
_EXPECTED = {
    (_AFTER_KEY, _COLON): _VALUE,
    (_KEY, _TEXT): _AFTER_KEY,
    (_FIRST_KEY, _TEXT): _AFTER_KEY,
    **{(before, kind): _AFTER_VALUE for before in (_VALUE, _FIRST_ITEM) for kind in (_TEXT, _OTHER)},
}


class SplicedObject(NamedTuple):
    start: int
    end: int
    is_sure: bool  # whether it is no part of a damaged record: it begins the line, or is beside a whole one


class _Scan(NamedTuple):
    """How far a text is JSON."""

    start: int
    end: int  # where the object that ended last is; no end if something came after it
    is_whole: bool  # whether this is all of the text's object, and not a part of one that was cut off
    goes_on: int  # where the record may begin that cut this one off


def objects(text: bytes, *, is_cut: bool = False) -> Iterator[SplicedObject]:
    """Yield the objects in a line that may be records, in order.

    With `is_cut` the line is incomplete: an object that is open at its end does not count.
    """
    at = end = 0
    for _ in range(STARTS_MAX):
        check()
        if (found := _START.search(text, at)) is None:
            return
        scan = _scan(text, found.start())
        at = scan.goes_on
        if scan.end and (scan.is_whole or not is_cut or at < len(text)):
            before = text[end : scan.start]
            # NUL bytes may be a hole, in which the beginning of a record was.
            is_space = is_padding(before) and b"\0" not in before
            is_sure = is_space and _INSIDE.match(text, scan.end) is None
            yield SplicedObject(scan.start, scan.end, scan.is_whole and is_sure)
            at = max(at, scan.end)
            end = scan.end


def is_padding(text: bytes) -> bool:
    """Return whether a text has only NUL bytes, byte order marks and space."""
    return _PADDING.fullmatch(text) is not None


def trimmed(text: bytes) -> tuple[int, int]:
    """Return the bounds of the text between the padding."""
    found = _PADDING.match(text)
    start, end = found.end() if found else 0, len(text)
    while end > start and (text[end - 1] in b"\0 \t\r\n\v\f" or text.endswith(b"\xef\xbb\xbf", start, end)):
        end -= 3 if text[end - 1] == 0xBF else 1
    return start, end


def _scan(text: bytes, start: int) -> _Scan:
    """Read the object that begins here, as far as the text is JSON."""
    opened: list[int] = []
    expected = _VALUE
    last, last_kind, closed, at = start, _NOTHING, start, start
    while True:
        check()
        token = _TOKEN.match(text, at)
        kind = (token.lastindex if token else None) or _NOTHING
        begin = token.start(kind) if token and kind else at
        after = _next(text[begin : begin + 1], kind, expected, text[opened[-1]] if opened else 0)
        if after is None or len(opened) == DEPTH_MAX + 1:
            # A record that was cut off inside of a string takes the first quote of the next one.
            goes_on = last if last_kind == _TEXT else max(begin, start + 1)
            return _Scan(
                closed, at if last_kind == _CLOSE and text[closed] == ord("{") else 0, False, goes_on
            )
        if kind == _OPEN:
            opened.append(begin)
        elif kind == _CLOSE:
            closed = opened.pop()
        last, last_kind, expected, at = begin, kind, after, token.end() if token else at
        if not opened:
            return _Scan(start, at, True, at)


def _next(mark: bytes, kind: int, expected: int, inside: int) -> int | None:
    """Return what is expected after a token; None if the token cannot be there."""
    if kind == _OPEN and expected in (_VALUE, _FIRST_ITEM):
        return _FIRST_KEY if mark == b"{" else _FIRST_ITEM
    if kind == _CLOSE and expected in (_AFTER_VALUE, _FIRST_KEY if mark == b"}" else _FIRST_ITEM):
        return _AFTER_VALUE if inside == (ord("{") if mark == b"}" else ord("[")) else None
    if kind == _COMMA and expected == _AFTER_VALUE:
        return _KEY if inside == ord("{") else _VALUE
    return _EXPECTED.get((expected, kind))
