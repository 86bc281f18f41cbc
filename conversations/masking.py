"""Masking secret values in JSON text and in plain text, without changing any other byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from conversations.exceptions import InvalidEvent
from conversations.readings import ESCAPE, Reading, readings

MASK = "<secret_hidden>"

LEFT_ALONE = frozenset(
    {
        *("id", "timestamp", "source", "cause", "action", "observation"),
        *("kind", "parent_id", "action_id", "tool_call_id", "tool_name", "llm_response_id", "key"),
    }
)
"""Members of an event that identify it or name its type: a value that occurs there is not masked."""

SPANS_MAX = 10_000
"""A string with more values than this is masked whole: a value of one letter must not take seconds.

So is every further string that may contain a value, once one event has had this many.
"""
STRINGS_MAX = 50_000
"""An event with more strings that may contain values is refused."""
ESCAPES_MAX = 300_000
"""What follows this many backslashes is masked whole if it contains a value, because mapping it back is slow.
"""
BEGINNINGS_MAX = 1000
"""If the end of a text may be the beginning of a value in more ways than this, the whole text waits."""

_PLAIN = re.compile(r"[ !#-.0-\[\]-~]+")
"""What JSON writes as it is: not the quote, the slash or the backslash."""
_RUN_MIN_CHARS = 8
_CODE_ESCAPE = r"\u00"
_UNUSUAL_ESCAPE = re.compile(r"\\u00(?:[2-7]|0[89aAcCdD])")
"""An escape that needs none or has a short form: hardly any writer uses it, and then all strings are read."""
_LOWER = bytes(range(128)).lower() + bytes(range(128, 256))
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ANY_STRING = re.compile(_STRING, re.DOTALL)
_PARTS = [
    *(re.compile(rf'({_STRING}(?:[^"]*+{_STRING}){{0,{others}}}[^"]*+)', re.DOTALL) for others in (255, 15)),
    re.compile(rf'(?=")(?:{_STRING}[ \t\n\r]*+:[^"]*+)*+({_STRING})?', re.DOTALL),
]
"""The sizes of groups of strings to test: from many, which usually contain no trace, down to a single one."""
_BEFORE_MAX_CHARS = 200
_NAMES = tuple(f'"{name}"' for name in LEFT_ALONE)
_ENDS_OF_NAMES = tuple(f"\\{name}" for name in _NAMES)
_UNFINISHED_ESCAPE = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z"
)


class Span(NamedTuple):
    """A slice of a text."""

    start: int
    end: int


class _Sought(NamedTuple):
    """A value, and its trace: a text in every text with the value, however often written as JSON."""

    value: str
    run: str
    """A trace in the text itself, if there is one that is long enough."""
    folded: bytes
    """A trace in what `_folded` makes of the text."""


class Masks:
    """The values that nobody may see; printing this object shows none."""

    __slots__ = ("_sought",)

    def __init__(self, values: Iterable[str]) -> None:
        """Accept any texts; blank ones, which would be found everywhere, are ignored."""
        self._sought = [_sought(value) for value in sorted(set(values)) if value.strip()]

    def in_event(self, payload: str) -> list[Span]:
        """Return where the strings of an event (JSON text of one object) contain values, in any spelling.

        Names of members, numbers and the members LEFT_ALONE are skipped. A text without a trace of a value
        is not parsed. Raise InvalidEvent for more than STRINGS_MAX strings with one.
        """
        found: list[Span] = []
        escapes_left = ESCAPES_MAX
        for start, end, sought in _strings(payload, _traced(self._sought, payload)):
            string = payload[start:end]
            spans = [Span(0, len(string))]
            if len(found) < SPANS_MAX:
                spans = _spans(sought, string, _unescaped(string), escapes_left)
                escapes_left -= string.count("\\") if spans else 0
            found += [Span(start + span.start, start + span.end) for span in spans]
        return found

    def hide(self, text: str) -> str:
        """Return a plain text without the values, including those in JSON that it quotes."""
        return replaced(text, self._in_text(text))

    def settled(self, text: str) -> int:
        """Return how much of a streamed text can be shown: after that, a value may have begun."""
        if not self._sought:
            return len(text)
        if text.count("\\") > ESCAPES_MAX:
            return 0
        end = min(self._begun(reading) for reading in readings(Reading(text)))
        for span in self._in_text(text):
            if span.start < end < span.end:
                return span.start
        return end

    def _in_text(self, text: str) -> list[Span]:
        sought = _traced(self._sought, text)
        return _spans(sought, text, Reading(text), ESCAPES_MAX) if sought else []

    def _begun(self, reading: Reading) -> int:
        """Return the start of the first value that the end of the text may cut off."""
        unfinished = _UNFINISHED_ESCAPE.search(reading.text)
        text = reading.text[: unfinished.start()] if unfinished else reading.text
        return reading.place(min((_beginning(each.value, text) for each in self._sought), default=len(text)))


def replaced(text: str, spans: Sequence[Span]) -> str:
    """Return the text with the mask in place of each span."""
    if not spans:
        return text
    kept = [text[before.end : after.start] for before, after in pairwise(spans)]
    return MASK.join([text[: spans[0].start], *kept, text[spans[-1].end :]])


def moved(place: int, spans: Iterable[Span]) -> int:
    """Return where a position outside the spans is after these have been replaced."""
    return place + sum(len(MASK) - (span.end - span.start) for span in spans if span.end <= place)


def may_hide(masked: str, clear: str) -> bool:
    """Say whether masked JSON text can have been made from the clear one, whatever the values were.

    A mask replaces a piece of one string, so it never hides where a string ends. If the clear text itself
    has a mask, that mask replaces only itself.
    """
    first, *others = masked.split(MASK)
    if not clear.startswith(first):
        return False
    at = len(first)
    for number, part in enumerate(others, start=1):
        is_last = number == len(others)
        if clear.startswith(MASK, at):
            found = at + len(MASK)
        else:
            found = len(clear) - len(part) if is_last else clear.find(part, at + 1)
        if found <= at or not clear.startswith(part, found) or not _is_inside_a_string(clear[at:found]):
            return False
        at = found + len(part)
    return at == len(clear)


def _is_inside_a_string(piece: str) -> bool:
    return '"' not in ESCAPE.sub("", piece)


def _sought(value: str) -> _Sought:
    run = max(_PLAIN.findall(value), key=len, default="")
    if len(run) >= min(len(value), _RUN_MIN_CHARS):
        return _Sought(value, run, b"")
    return _Sought(value, "", _folded(value)[1:-1])


def _folded(text: str) -> bytes:
    """Return the quoted text in a form that is the same however often it was written as JSON.

    The form is made character by character, so the form of a text contains those of its parts.
    _UNUSUAL_ESCAPE is left out.
    """
    return encode_basestring_ascii(text).encode().translate(_LOWER, b"\\")


def _traced(sought: Sequence[_Sought], text: str) -> Sequence[_Sought]:
    """Return the values that the text may contain."""
    if not sought or (_CODE_ESCAPE in text and _UNUSUAL_ESCAPE.search(text) is not None):
        return sought
    if any(each.folded for each in sought):
        folded = _folded(text)
        return [each for each in sought if each.run in text and each.folded in folded]
    return [each for each in sought if each.run in text]


def _strings(payload: str, sought: Sequence[_Sought]) -> Iterator[tuple[int, int, Sequence[_Sought]]]:
    """Yield the places, without quotes, of strings that may contain values, with these values.

    Raise InvalidEvent for too many.
    """
    if not sought:
        return
    parts: Iterator[tuple[int, int, Sequence[_Sought]]] = iter([(0, len(payload), sought)])
    for pattern in _PARTS:
        parts = _parts(pattern, payload, parts)
    depth = last = 0
    for number, (start, end, held) in enumerate(parts):
        if number == STRINGS_MAX:
            raise InvalidEvent(f"More than {STRINGS_MAX} strings of the event may hold secrets.")
        if _is_named_like_one_left_alone(payload, start):
            depth, last = depth + _depth(payload[last:start]), start
            if depth == 1:
                continue
        yield start + 1, end - 1, held


def _parts(
    pattern: re.Pattern[str], payload: str, parts: Iterator[tuple[int, int, Sequence[_Sought]]]
) -> Iterator[tuple[int, int, Sequence[_Sought]]]:
    for start, end, sought in parts:
        for match in pattern.finditer(payload, start, end):
            part = match[1]
            place = match.span(1)
            if part and (held := sought if place == (start, end) else _traced(sought, part)):
                yield *place, held


def _is_named_like_one_left_alone(payload: str, start: int) -> bool:
    before = payload[max(0, start - _BEFORE_MAX_CHARS) : start].rstrip()
    name = before[:-1].rstrip()
    return before.endswith(":") and name.endswith(_NAMES) and not name.endswith(_ENDS_OF_NAMES)


def _depth(piece: str) -> int:
    """Return how many levels deeper the text after a piece is than the text before it."""
    outside = _ANY_STRING.sub("", piece)
    return outside.count("{") + outside.count("[") - outside.count("}") - outside.count("]")


def _unescaped(string: str) -> Reading:
    """Decode the text between the quotes of a JSON string."""
    first = Reading(string)
    return first.again() if "\\" in string else first


def _spans(sought: Sequence[_Sought], text: str, first: Reading, escapes_max: int) -> list[Span]:
    """Return where the text contains values; `first` is the first decoding to search."""
    whole = [Span(0, len(text))]
    is_far = text.count("\\") > escapes_max
    found: list[Span] = []
    for reading in readings(first):
        if reading is not first:
            sought = _traced(sought, reading.text)
        spans = list(islice(_occurrences(sought, reading.text), SPANS_MAX + 1 - len(found)))
        if len(found) + len(spans) > SPANS_MAX or (spans and is_far):
            return whole
        found += [Span(reading.place(span.start), reading.place(span.end)) for span in spans]
        if not (sought := _traced(sought, reading.text)):
            break
        if is_far and "\\" in reading.text:
            return whole
    return _joined(found)


def _occurrences(sought: Sequence[_Sought], text: str) -> Iterator[Span]:
    """Yield where the values are; a value that is part of the mask's own text is ignored in a mask."""
    beside_masks = (
        text.replace(MASK, "\0" * len(MASK)) if any(each.value in MASK for each in sought) else text
    )
    for value, _, _ in sought:
        yield from _found(value, beside_masks if value in MASK else text)


def _found(value: str, text: str) -> Iterator[Span]:
    at = text.find(value)
    while at >= 0:
        yield Span(at, at + len(value))
        at = text.find(value, at + len(value))


def _beginning(value: str, text: str) -> int:
    """Return where a value may begin that the end of the text cuts off."""
    start = max(0, len(text) - len(value) + 1)
    at = text.find(value[0], start)
    for _ in range(BEGINNINGS_MAX):
        if at < 0:
            return len(text)
        if value.startswith(text[at:]):
            return at
        at = text.find(value[0], at + 1)
    return at if at >= 0 else len(text)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, with overlapping ones joined."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.start < joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


NO_MASKS = Masks(())
"""The masks of an owner without secrets."""
