"""Masking secret values in JSON text and in plain text, without changing any other byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice, pairwise
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.vocabulary import WORDS
from conversations.exceptions import InvalidEvent
from conversations.redaction.decodings import ESCAPE, DecodedText, readings
from conversations.redaction.encodings import written_forms
from conversations.redaction.matching import Matcher, Span, TooMuchWork, TraceMatcher, Work

MASK = "<secret_hidden>"

# Members of an event that name an event. A secret in one is refused, because a mask would be no id.
IDENTIFYING = frozenset({"id", "parent_id", "action_id"})
# Members of an event that say what it is. A secret in one is refused, because a mask would change that.
TYPING = frozenset({"action", "observation", "kind", "source"})
# Members of an event in which values shorter than NAME_MIN_CHARS, words of the wires and times are left, as
# in names of members.
STRUCTURAL = (
    IDENTIFYING | TYPING | {"cause", "timestamp", "tool_call_id", "tool_name", "llm_response_id", "key"}
)
NAME_MIN_CHARS = 8

# A string with more values than this is masked whole: a value of one letter must not take seconds. Once one
# event has had this many, every further string that may contain a value is masked whole, too.
SPANS_MAX = 10_000
STRINGS_MAX = 50_000  # an event with more strings that may contain values is refused
# What follows this many escapes is masked whole if it contains a value, because mapping it back is slow.
ESCAPES_MAX = 300_000
# A string is masked whole if more must be looked at again to find values that overlap.
OVERLAPS_MAX_CHARS = 64 * 1024 * 1024

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ANY_STRING = re.compile(_STRING, re.DOTALL)
# The sizes of groups of strings to test: from many, which usually contain no trace, to few.
_PARTS = [
    re.compile(rf'({_STRING}(?:[^"]*+{_STRING}){{0,{others}}}[^"]*+)', re.DOTALL) for others in (255, 15)
]
_COLON = re.compile(r"[ \t\n\r]*+:")

_NAMES = {f'"{name}"': name for name in STRUCTURAL}
_NAME_BEFORE = re.compile(rf'(?<!\\)("(?:{"|".join(STRUCTURAL)})")[ \t\n\r]*+:[ \t\n\r]*+\Z')
_UNFINISHED_ESCAPE = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z"
)
_UNFINISHED_PERCENT = re.compile(
    r"(?:%[c-fC-F][0-9a-fA-F](?:%[89abAB][0-9a-fA-F]){0,2}(?:%[0-9a-fA-F]?)?|%[0-9a-fA-F]?)\Z"
)


class _Place(NamedTuple):
    """Where a string of an event is, without its quotes."""

    start: int
    end: int
    member: str = ""  # of a value of the event itself: which of the STRUCTURAL members
    is_name: bool = False


class Masks:
    """The secret values of an owner or a conversation; printing this object shows none."""

    def __init__(self, values: Iterable[str]) -> None:
        # Blank values would be found everywhere. The automata are built by the first search.
        self._values = sorted({value for value in values if value.strip()})
        self.size = sum(map(len, self._values))  # the length of all values in characters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Masks) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(self._values))

    def __bool__(self) -> bool:
        return bool(self._values)

    @property
    def is_built(self) -> bool:
        """Return whether the first search, which builds the automata, is over."""
        return "_traces" in self.__dict__

    def may_be_in(self, text: str) -> bool:
        """Return whether a text has a trace of a value; a text without one needs no masking."""
        return bool(self._values) and self._traces.may_hold_any(text)

    def in_event(self, payload: str) -> list[Span]:
        """Return where the strings of an event (JSON text of one object) contain values, in any spelling.

        Skip numbers, and what STRUCTURAL excludes. Do not parse a text without a trace of a value. Raise
        InvalidEvent for more than STRINGS_MAX strings with a trace, and for a value in a member that is
        IDENTIFYING or TYPING.
        """
        if not self.may_be_in(payload):
            return []
        found: list[Span] = []
        budget = _Budget()
        for place in self._places(payload):
            string = payload[place.start : place.end]
            if place.is_name or place.member:
                spans = self._in_structure(place, string, budget)
            elif len(found) < SPANS_MAX:
                spans = self._everywhere.spans(string, _unescaped(string), budget)
            else:
                spans = [Span(0, len(string))]
            found += [Span(place.start + span.start, place.start + span.end) for span in spans]
        return found

    def check_id(self, event_id: str) -> None:
        """Raise InvalidEvent if an event's id contains a value of at least NAME_MIN_CHARS."""
        if self._is_in_structure(event_id):
            raise InvalidEvent("The event's id contains a secret. Use another id.")

    def check_type(self, type_: str) -> None:
        """Raise InvalidEvent if an event's type contains such a value and is no word of the wires."""
        if type_ not in WORDS and self._is_in_structure(type_):
            raise InvalidEvent("The event's type contains a secret. Use another type.")

    def hide(self, text: str) -> str:
        """Return a plain text without the values, including those in JSON that it quotes."""
        return replaced(text, self._in_text(text))

    def settled(self, text: str) -> int:
        """Return how much of a streamed text can be shown: a value may have begun after that."""
        if not self._values:
            return len(text)
        if text.count("\\") + text.count("%") > ESCAPES_MAX:
            return 0
        end = min(self._everywhere.begun(reading) for reading in readings(DecodedText(text)))
        for span in self._in_text(text):
            if span.start < end < span.end:
                return span.start
        return end

    def _forms(self) -> set[str]:
        return {form for value in self._values for form in written_forms(value)}

    @cached_property
    def _traces(self) -> TraceMatcher:
        return TraceMatcher(self._forms())

    @cached_property
    def _everywhere(self) -> _Finder:
        return _Finder(self._forms(), self._traces)

    @cached_property
    def _in_structures(self) -> _Finder:
        long = (value for value in self._values if len(value) >= NAME_MIN_CHARS)
        return _Finder({form for value in long for form in written_forms(value)}, self._traces)

    def _is_in_structure(self, text: str) -> bool:
        return self.may_be_in(text) and bool(self._in_structures.spans(text, DecodedText(text), _Budget()))

    def _in_text(self, text: str) -> list[Span]:
        if not self.may_be_in(text):
            return []
        return self._everywhere.spans(text, DecodedText(text), _Budget())

    def _places(self, payload: str) -> Iterator[_Place]:
        """Yield the strings that may contain values. Raise InvalidEvent for too many."""
        parts: Iterator[Span] = iter([Span(0, len(payload))])
        for pattern in _PARTS:
            parts = self._parts(pattern, payload, parts)
        depth = last = number = 0
        for part in parts:
            for match in _ANY_STRING.finditer(payload, *part):
                if not self._traces.may_hold_any(match[0]):
                    continue
                if (number := number + 1) > STRINGS_MAX:
                    raise InvalidEvent(f"More than {STRINGS_MAX} strings of the event may hold secrets.")
                start, end = match.span()
                member = _member_before(payload, start)
                if member:
                    depth, last = depth + _depth(payload[last:start]), start
                is_name = _COLON.match(payload, end) is not None
                yield _Place(start + 1, end - 1, member if depth == 1 else "", is_name)

    def _parts(self, pattern: re.Pattern[str], payload: str, parts: Iterator[Span]) -> Iterator[Span]:
        for start, end in parts:
            for match in pattern.finditer(payload, start, end):
                place = Span(*match.span(1))
                if place == (start, end) or self._traces.may_hold_any(match[1]):
                    yield place

    def _in_structure(self, place: _Place, string: str, budget: _Budget) -> list[Span]:
        """Find values in a name, or in a structural member. Raise InvalidEvent if that cannot be masked."""
        reading = _unescaped(string)
        is_time = place.member == "timestamp" and columns.instant(reading.text) is not None
        if is_time or reading.text in WORDS:
            return []
        spans = self._in_structures.spans(string, reading, budget)
        if spans and place.member in IDENTIFYING | TYPING:
            raise InvalidEvent(
                f"The event's `{place.member}` contains a secret, and cannot be masked. Use another one."
            )
        return spans


class _Budget:
    """The work that may still be spent on one event."""

    __slots__ = ("escapes_left", "work")

    def __init__(self) -> None:
        self.escapes_left = ESCAPES_MAX
        self.work = Work(OVERLAPS_MAX_CHARS)


class _Finder:
    """Finds some forms of values in decodings of a text."""

    def __init__(self, forms: set[str], traces: TraceMatcher) -> None:
        # `traces` rules out texts without any form; it may know more forms than these.
        self._traces = traces
        self._matcher = Matcher(form for form in forms if form not in MASK)
        self._beside_masks = Matcher(form for form in forms if form in MASK)

    def spans(self, text: str, first: DecodedText, budget: _Budget) -> list[Span]:
        """Return where a text contains values; `first` is the first decoding to search."""
        escapes = text.count("\\") + text.count("%")
        found = self._in_readings(first, budget.work, is_far=escapes > budget.escapes_left)
        if found is None:
            found = [Span(0, len(text))]
        budget.escapes_left -= escapes if found else 0
        return _joined(found)

    def _in_readings(self, first: DecodedText, work: Work, *, is_far: bool) -> list[Span] | None:
        """Return where the decodings contain values; None if they are too many, or too costly to find."""
        found: list[Span] = []
        for reading in readings(first):
            if reading is not first and not self._traces.may_hold_any(reading.text):
                continue
            try:
                spans = list(islice(self._spans(reading.text, work), SPANS_MAX + 1 - len(found)))
            except TooMuchWork:
                return None
            if len(found) + len(spans) > SPANS_MAX or (spans and is_far):
                return None
            found += [Span(reading.place(span.start), reading.place(span.end)) for span in spans]
            is_encoded = "\\" in reading.text or "%" in reading.text
            if is_far and is_encoded and self._traces.may_hold_any(reading.text):
                return None
        return found

    def begun(self, reading: DecodedText) -> int:
        """Return the start of the first value that the end of a decoding may cut off."""
        text = reading.text
        for unfinished in (_UNFINISHED_ESCAPE, _UNFINISHED_PERCENT):
            if match := unfinished.search(text, max(0, len(text) - 20)):
                text = text[: match.start()]
        return reading.place(min(self._matcher.beginning(text), self._beside_masks.beginning(text)))

    def _spans(self, text: str, work: Work) -> Iterator[Span]:
        """Yield where the forms are; ignore a form inside a mask's own text."""
        yield from self._matcher.spans(text, work)
        yield from self._beside_masks.spans(text.replace(MASK, "\0" * len(MASK)), work)


def replaced(text: str, spans: Sequence[Span]) -> str:
    if not spans:
        return text
    kept = [text[before.end : after.start] for before, after in pairwise(spans)]
    return MASK.join([text[: spans[0].start], *kept, text[spans[-1].end :]])


def moved(place: int, spans: Iterable[Span]) -> int:
    """Return where a position outside the spans is after these have been replaced."""
    return place + sum(len(MASK) - (span.end - span.start) for span in spans if span.end <= place)


def may_hide(masked: str, clear: str) -> bool:
    """Return whether masked JSON text can have been made from the clear one, with any values.

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
        if found <= at or not clear.startswith(part, found):
            return False
        if '"' in ESCAPE.sub("", clear[at:found]):  # the end of a string
            return False
        at = found + len(part)
    return at == len(clear)


def _member_before(payload: str, start: int) -> str:
    """Return the name of the member before a value, if it is one of the STRUCTURAL members."""
    # Only in 200 characters, so that the time grows with the length of the payload alone.
    match = _NAME_BEFORE.search(payload, max(0, start - 200), start)
    return _NAMES[match[1]] if match else ""


def _depth(piece: str) -> int:
    """Return how many levels deeper the text after a piece is than the text before it."""
    outside = _ANY_STRING.sub("", piece)
    return outside.count("{") + outside.count("[") - outside.count("}") - outside.count("]")


def _unescaped(string: str) -> DecodedText:
    """Decode the text between the quotes of a JSON string."""
    first = DecodedText(string)
    return first.again() if "\\" in string else first


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, with overlapping ones joined."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.start < joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


NO_MASKS = Masks(())  # the masks of an owner without secrets
