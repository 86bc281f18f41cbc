"""Finding any of many texts at once, in a time that does not depend on how many there are (Aho-Corasick)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from json.encoder import encode_basestring_ascii
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from ahocorasick_rs import AhoCorasick, BytesAhoCorasick, Implementation, MatchKind

T = TypeVar("T", str, bytes)

SLICE_CHARS = 64 * 1024  # searched by one call, which blocks the other threads of the process
AUTOMATON_MAX_CHARS = 256 * 1024  # more text takes several automata: building one blocks other threads, too
_HEAD_CHARS = 4

PERCENT = re.compile(r"%[0-9a-fA-F]{2}")
_CODE_ESCAPE = r"\u00"
# An escape that needs none or has a short form: hardly any writer uses it, and then all strings are read.
_UNUSUAL_ESCAPE = re.compile(r"\\u00(?:[2-7]|0[89aAcCdD])")
_LOWER = bytes(range(128)).lower() + bytes(range(128, 256))
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Span(NamedTuple):
    start: int
    end: int


class TooMuchWork(Exception):
    """Too many texts overlap to find all of them in bounded time."""


class Work:
    """The characters that may still be searched again."""

    __slots__ = ("left",)

    def __init__(self, characters: int) -> None:
        self.left = characters

    def spend(self, characters: int) -> None:
        """Count characters. Raise TooMuchWork if there are too many."""
        self.left -= characters
        if self.left < 0:
            raise TooMuchWork


class Matcher:
    """Finds texts of at least one character; printing it shows none of them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted({_SURROGATE.sub("\ufffd", text) for text in texts})

    def spans(self, text: str, work: Work) -> Iterator[Span]:
        """Yield where the texts are, those that overlap joined; in order for each automaton.

        Of one text, only places that do not overlap count, from the left. Raise TooMuchWork.
        """
        if _SURROGATE.search(text):
            text = _SURROGATE.sub("\ufffd", text)
        for automaton in self._automata:
            yield from automaton.spans(text, work)

    def beginning(self, text: str) -> int:
        """Return where the first text that the end of `text` cuts off may begin; its length if none does."""
        tried = 0
        # At most this many possible beginnings are tried at the end of a text; the next one counts as one.
        beginnings_max = 1000
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[at : at + _HEAD_CHARS] not in self._heads:
                continue
            end = text[at:]
            following = bisect_right(self._texts, end)
            tried += 1
            is_cut_off = following < len(self._texts) and self._texts[following].startswith(end)
            if is_cut_off or tried > beginnings_max:
                return at
        return len(text)

    @cached_property
    def _automata(self) -> list[_Automaton]:
        return [_Automaton(group) for group in _groups(self._texts)]

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._texts), default=0)

    @cached_property
    def _heads(self) -> frozenset[str]:
        """Return all beginnings of the texts, up to _HEAD_CHARS."""
        return frozenset(text[:length] for text in self._texts for length in range(1, _HEAD_CHARS + 1))


class _Automaton:
    """Finds the longest of the leftmost of some texts."""

    __slots__ = ("_automaton", "_longest")

    def __init__(self, texts: Sequence[str]) -> None:
        self._longest = max(map(len, texts))
        self._automaton = AhoCorasick(
            texts,
            matchkind=MatchKind.LeftmostLongest,
            store_patterns=False,
            implementation=Implementation.ContiguousNFA,
        )

    def spans(self, text: str, work: Work) -> Iterator[Span]:
        at = 0
        while at < len(text):
            at = yield from self._spans_of_slice(text, at, work)

    def _spans_of_slice(self, text: str, at: int, work: Work) -> Generator[Span, None, int]:
        """Yield the spans that begin in one slice; return where to continue."""
        # What is searched ends so far behind the slice that no text that begins in it is cut off.
        limit = at + max(SLICE_CHARS, self._longest)
        covered = at
        for which, start, end in self._matches(text, at, limit + self._longest - 1):
            if start >= limit:
                break
            if start >= covered:
                covered = self._end_of_overlapping(text, which, Span(start, end), work)
                yield Span(start, covered)
            elif end > covered:  # another text may begin in the rest of this one, which does not count
                work.spend(limit + self._longest - covered)
                return covered
        return max(limit, covered)

    def _end_of_overlapping(self, text: str, which: int, first: Span, work: Work) -> int:
        """Return where the last of the texts ends that overlap in a row, from the first one on."""
        end, ends = first.end, {which: first.end}
        at = first.start + 1
        while at < end:
            limit = min(len(text), end - 1 + self._longest)
            work.spend(limit - at)
            which, start, last = next(iter(self._matches(text, at, limit)), (0, limit, limit))
            if start >= end:
                break
            if start >= ends.get(which, 0):
                ends[which] = last
                end = max(end, last)
            at = start + 1
        return end

    def _matches(self, text: str, at: int, limit: int) -> Iterator[tuple[int, int, int]]:
        for which, start, end in self._automaton.find_matches_as_indexes(text[at:limit]):
            yield which, at + start, at + end


class TraceMatcher:
    """Finds out whether a text may contain any of some texts, however often it was written as JSON.

    The answer yes may be wrong; the answer no is not.
    """

    __slots__ = ("_automata", "_is_everywhere", "_longest")

    def __init__(self, texts: Iterable[str]) -> None:
        traces = sorted({_folded(text) for text in texts})
        self._is_everywhere = b"" in traces  # backslashes leave no trace
        self._longest = max(map(len, traces), default=0)
        self._automata = [
            BytesAhoCorasick(group, implementation=Implementation.ContiguousNFA)
            for group in _groups(filter(None, traces))
        ]

    def may_hold_any(self, text: str) -> bool:
        """Return whether the text, JSON or not, may contain any of the texts in any spelling."""
        if self._is_everywhere or not self._automata:
            return self._is_everywhere
        if _CODE_ESCAPE in text and _UNUSUAL_ESCAPE.search(text) is not None:
            return True
        if self._holds_trace(text):
            return True
        return "%" in text and PERCENT.search(text) is not None and self._holds_trace(unquote(text))

    def _holds_trace(self, text: str) -> bool:
        # Each character of the text is at least one of the trace, if any, so an overlap as long as the
        # longest trace cuts none off; backslashes are dropped, and may be between any two characters.
        if len(text) <= SLICE_CHARS:
            return self._is_in(_folded(text))
        before = b""
        for at in range(0, len(text), SLICE_CHARS):
            slice_ = before + _folded(text[at : at + SLICE_CHARS])
            if self._is_in(slice_):
                return True
            before = slice_[max(0, len(slice_) - self._longest + 1) :]
        return False

    def _is_in(self, folded: bytes) -> bool:
        return any(automaton.find_matches_as_indexes(folded) for automaton in self._automata)


def _folded(text: str) -> bytes:
    """Return the text in a form that is the same however often it was written as JSON.

    The form is made character by character, so the form of a text contains those of its parts.
    _UNUSUAL_ESCAPE is left out.
    """
    return encode_basestring_ascii(text)[1:-1].encode().translate(_LOWER, b"\\")


def _groups(texts: Iterable[T]) -> Iterator[list[T]]:
    """Yield the texts in groups of at most AUTOMATON_MAX_CHARS, or of one text."""
    group: list[T] = []
    size = 0
    for text in texts:
        if group and size + len(text) > AUTOMATON_MAX_CHARS:
            yield group
            group, size = [], 0
        group.append(text)
        size += len(text)
    if group:
        yield group
