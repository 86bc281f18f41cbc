"""An excerpt of a text around the first match, with the matches marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TypedDict

from conversations.search.fulltext.questions import Term
from conversations.search.fulltext.words import Words

# Characters before the first match, and in the whole excerpt.
BEFORE = 60
LENGTH = 240

_BLANKS = re.compile(r"\s+")

Span = tuple[int, int]


class SnippetPart(TypedDict):
    """A part of a snippet; `match` says whether it is a match."""

    text: str
    match: bool


def snippet(words: Words, wanted: Sequence[Term]) -> list[SnippetPart]:
    """Return an excerpt of a text around the first match, with white space collapsed, in parts."""
    text = words.text
    firsts = {term: first for term in wanted if (first := term.first_in(words)) is not None}
    if not firsts:
        return _parts(text, 0, min(len(text), LENGTH), [])
    number = min(firsts.values())
    place = next(words.places(number))[0]
    first, end = _bounds(text, place)
    return _parts(text, first, end, _marks(words, list(firsts), number, end))


def _marks(words: Words, wanted: Sequence[Term], first: int, end: int) -> list[Span]:
    """Return the matches in the text from word number `first` on, in order and without overlaps."""
    places = list(takewhile(lambda place: place[0] < end, words.places(first)))
    last = len(places) - 1
    marks = [
        (begin, places[min(at + len(term.words) - 1, last)][1])
        for at, (begin, _) in enumerate(places)
        for term in wanted
        if term.stands_at(words, first + at)
    ]
    return _apart(sorted(marks))


def _apart(marks: Sequence[Span]) -> list[Span]:
    """Return the marks with adjacent ones joined."""
    apart: list[Span] = []
    for begin, end in marks:
        if apart and begin < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((begin, end))
    return apart


def _bounds(text: str, place: int) -> Span:
    """Return where the excerpt begins and ends: at white space, if there is some nearby."""
    first = max(0, place - BEFORE)
    if first:
        blank = re.compile(r"\s").search(text, first, place)
        first = blank.end() if blank else first
    end = min(len(text), first + LENGTH)
    if end < len(text):
        cut = max(text.rfind(" ", place + 1, end), text.rfind("\n", place + 1, end))
        end = cut if cut > place + (end - place) // 2 else end
    return first, end


def _parts(text: str, first: int, end: int, marks: Sequence[Span]) -> list[SnippetPart]:
    parts: list[SnippetPart] = []
    at = first
    for begins, ends in marks:
        _add(parts, text[at:begins], match=False)
        _add(parts, text[begins : min(ends, end)], match=True)
        at = min(ends, end)
    _add(parts, text[at:end], match=False)
    if first:
        parts.insert(0, {"text": "…", "match": False})
    if end < len(text):
        parts.append({"text": "…", "match": False})
    return list(_joined(parts))


def _add(parts: list[SnippetPart], text: str, *, match: bool) -> None:
    if text:
        parts.append({"text": _BLANKS.sub(" ", text), "match": match})


def _joined(parts: Sequence[SnippetPart]) -> Iterator[SnippetPart]:
    """Yield the parts, with adjacent ones of the same sort joined."""
    waiting: SnippetPart | None = None
    for part in parts:
        if waiting is not None and waiting["match"] == part["match"]:
            waiting = {"text": waiting["text"] + part["text"], "match": part["match"]}
            continue
        if waiting is not None:
            yield waiting
        waiting = part
    if waiting is not None:
        yield waiting
