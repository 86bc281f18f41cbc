"""The elements of a JSON array that is too large for memory, one at a time.

An element is found by its brackets and quotes, and not decoded here. So a damaged element is found, too, and
does not prevent reading those after it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from conversations.confined.processes import check
from conversations.payloads import bounds
from conversations.transcripts.sources.nodes import HEAD_BYTES, Unreadable

ITEM_MAX_BYTES = 512 * 1024 * 1024
# After this much, `checked_by` is called, and other threads can run.
STEP_BYTES = 64 * 1024
_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before that of UTF-16, with which it begins
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    *((opening.encode(name), name) for opening in "[{" for name in ("utf-16-le", "utf-16-be")),
)
_BLANK = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_INSIDE = rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+"
# Brackets are counted, never matched: so whatever closes one, and many at once as far as that is possible.
_CLOSED = rb"[\[{]" + _INSIDE + rb"[\]}]"
_MARK = rb'([\[{]++|[\]}]++|"|,[, \t\r\n]*+)?'
# Inside of an element: bytes that are irrelevant for its end, and the mark after them.
_NESTED = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb"|" + _CLOSED + rb")*+" + _MARK, re.DOTALL)
# The same around the elements.
_BETWEEN = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb"|" + _CLOSED + rb")*+" + _MARK, re.DOTALL)
# The rest of a string, up to its quote or as far as it is there.
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_VALUE = rb'(?:[^"\[\]{},\s]++|' + _STRING + rb"|" + _CLOSED + rb")"
# An object with an array of conversations, and small members before it.
_WRAPPER = re.compile(
    rb"\{\s*+(?:" + _STRING + rb"\s*+:\s*+" + _VALUE + rb"\s*+,\s*+)*?"
    rb'"(?:conversations|chats|data)"\s*+:\s*+\[',
    re.DOTALL,
)


def items(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the text of each element; the whole text if it is an object without an array of conversations.

    Raise Unreadable, with the name of the file, after the last element before a break, and any error of the
    check of `checked_by`.
    """
    scan = _Scan(name)
    for chunk in _with_head(_as_utf8(_with_head(iter(chunks)))):
        for at in range(0, len(chunk), STEP_BYTES):
            check()
            yield from scan.take(chunk[at : at + STEP_BYTES])
    scan.end()


def _with_head(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes, with at least HEAD_BYTES in the first chunk, if there are as many."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= HEAD_BYTES:
            break
    return chain([head], chunks)


def _as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield UTF-16 and UTF-32 as UTF-8, half a character as U+FFFD, and other bytes unchanged."""
    head = next(chunks)
    encoding = next((name for mark, name in _ENCODINGS if head.startswith(mark)), None)
    if encoding is None:
        return chain([head], chunks)
    texts = codecs.iterdecode(chain([head], chunks), encoding, errors="replace")
    return (text.encode(errors="replace") for text in texts)


class _Scan:
    """Reads a text once, keeping only the present element."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = bytearray()
        self._at = 0  # the next byte to read
        self._start = 0  # the beginning of the present element
        self._depth = 1
        self._outermost = 1  # the depth of the elements: 0 if the whole is the only one
        self._is_begun = self._is_over = self._is_in_string = False
        self._is_wrapped = False  # an object is around the array; what follows the array in it is not read
        self._count = 0

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the elements that end in the next bytes. Raise Unreadable."""
        self._text += chunk
        if self._is_begun or self._begins():
            while not self._is_over and (mark := self._next()):
                yield from self._pass(mark)
        if self._is_over and not self._is_wrapped and self._text[self._at :].strip(_BLANK):
            raise Unreadable(f"{self._name} goes on after its end, after {self._told()}")
        self._forget()
        if len(self._text) > ITEM_MAX_BYTES:
            raise Unreadable(f"{self._name} has no end to what follows {self._told()}")

    def end(self) -> None:
        """Raise Unreadable if the text cannot end here."""
        if not self._is_over:
            raise Unreadable(f"{self._name} breaks off after {self._told()}")

    def _told(self) -> str:
        return f"{self._count} conversation{'' if self._count == 1 else 's'}"

    def _begins(self) -> bool:
        """Go to the first relevant byte, and return whether it is there yet. Raise Unreadable."""
        if _BYTE_ORDER_MARK.startswith(self._text[:3]) and len(self._text) < 3:
            return False
        text = self._text.removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANK)
        if not text:
            del self._text[len(_BYTE_ORDER_MARK) :]  # enough to know whether the mark was there
            return False
        if not text.startswith((b"[", b"{")):
            raise Unreadable(f"{self._name} is not an array of conversations in JSON")
        self._text, self._is_begun = text, True
        self._at = 1
        if text[:1] == b"[":
            self._start = 1
        elif wrapper := _WRAPPER.match(text, 0, HEAD_BYTES):
            self._start = self._at = wrapper.end()
            self._is_wrapped = True
        else:
            self._outermost = 0
        return True

    def _next(self) -> bytes:
        """Return the next brackets, or commas between elements; nothing if they have not arrived."""
        while self._at < len(self._text):
            if self._is_in_string and not self._leaves_string():
                return b""
            pattern = _BETWEEN if self._depth == self._outermost else _NESTED
            found = pattern.match(self._text, self._at)
            assert found  # noqa: S101 - it matches nothing, too
            self._at, mark = found.end(), found[1]
            if mark != b'"':
                return mark or b""
            self._is_in_string = True
        return b""

    def _leaves_string(self) -> bool:
        found = _IN_STRING.match(self._text, self._at)
        self._at = found.end() if found else self._at
        if self._text[self._at : self._at + 1] != b'"':
            return False
        self._at += 1
        self._is_in_string = False
        return True

    def _pass(self, mark: bytes) -> Iterator[bytes]:
        """Yield the element that ends with brackets or commas, if one does. Raise Unreadable."""
        if mark[0] in b"[{":
            self._depth += len(mark)
            # Counting millions of open brackets takes long, and nothing deeper could be decoded.
            if self._depth > bounds.DEPTH_MAX:
                raise Unreadable(f"{self._name} is nested too deeply after {self._told()}")
        elif mark[0] in b",":
            yield from self._ended(self._at - len(mark))
        elif len(mark) < self._depth:
            self._depth -= len(mark)
        else:
            self._at -= len(mark) - self._depth
            yield from self._close(mark[self._depth - 1 : self._depth])

    def _close(self, mark: bytes) -> Iterator[bytes]:
        if self._outermost == 1 and mark != b"]":
            raise Unreadable(f"{self._name} is damaged after {self._told()}")
        self._is_over = True
        yield from self._ended(self._at - self._outermost)

    def _ended(self, end: int) -> Iterator[bytes]:
        text = bytes(self._text[self._start : end]).strip(_BLANK)
        self._start = self._at
        if text:
            self._count += 1
            yield text

    def _forget(self) -> None:
        if self._is_over:
            self._start = self._at = len(self._text)  # nothing but blanks follows
        if self._start:
            del self._text[: self._start]
            self._at -= self._start
            self._start = 0
