"""Hiding secret values in JSON text and in plain text, without changing a byte beside them."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

MASK = "<secret_hidden>"

LEFT_ALONE = frozenset(
    {
        *("id", "timestamp", "source", "cause", "action", "observation"),
        *("kind", "parent_id", "action_id", "tool_call_id", "tool_name", "llm_response_id", "key"),
    }
)
"""Members of an event that say which one it is and of what type: a value that occurs there hides nothing."""

READINGS = 3
"""A string is looked at as it stands, as JSON text that it may be, and as JSON text inside that."""
SPANS_MAX = 10_000
"""A string with more values than this is hidden whole, as is all that follows so many in one event: a value
of one letter must not take seconds."""

_PLAIN = re.compile(r"[ !#-.0-\[\]-~]+")
"""What JSON writes as it is: not the quote, the slash or the backslash."""
_PLAIN_ESCAPE = r"\u00"
_ESCAPED_PLAIN = re.compile(r"\\u00[2-7]")
"""Hardly any writer escapes what needs it not; the strings of one who does are all read."""
_RUN_MIN_CHARS = 8
_PATTERN_MAX_CHARS = 64
_TOKEN = re.compile(r'"((?:[^"\\]++|\\.)*+)"([ \t\n\r]*+:)?|[{}\[\]]', re.DOTALL)
"""What tells where strings of JSON stand: strings, those before a colon being names, and brackets."""
_PAIR = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf'\\(?:{_PAIR}|u[0-9a-fA-F]{{4}}|["\\/bfnrt])')
_UNFINISHED_ESCAPE = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z"
)
_SHORT = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


class Span(NamedTuple):
    """A piece of a text."""

    start: int
    end: int


class Masks:
    """The values that nobody may be shown; printing this shows none."""

    __slots__ = ("_runs", "_spellings", "_values")

    def __init__(self, values: Iterable[str]) -> None:
        """Take any texts; blank ones, which would be found everywhere, are none."""
        self._values = sorted({value for value in values if value.strip()})
        self._runs, self._spellings = _traces_of(self._values)

    def in_event(self, payload: str) -> list[Span]:
        """Return where the strings of an event (JSON text of one object) hold values, in any spelling.

        Names of members, numbers, and the members LEFT_ALONE are passed over. A text without a trace
        of a value is not taken apart.
        """
        if not self._has_trace(payload):
            return []
        found: list[Span] = []
        for start, end in _strings(payload):
            string = payload[start:end]
            if not self._has_trace(string):
                continue
            whole = Span(0, len(string))
            spans = self._spans(_unescaped(string)) if len(found) < SPANS_MAX else [whole]
            found += [Span(start + span.start, start + span.end) for span in spans]
        return found

    def hide(self, text: str) -> str:
        """Return a plain text without the values, also without those in JSON that it quotes."""
        return replaced(text, self._in_text(text))

    def settled(self, text: str) -> int:
        """Return how much of a text that goes on can be shown: beyond it a value may have begun."""
        if not self._values:
            return len(text)
        end = min(self._begun(reading) for reading in _readings(_Reading.of(text)))
        for span in self._in_text(text):
            if span.start < end < span.end:
                return span.start
        return end

    def _in_text(self, text: str) -> list[Span]:
        return self._spans(_Reading.of(text)) if self._has_trace(text) else []

    def _has_trace(self, text: str) -> bool:
        """Say whether the text may hold a value, however often it was written as JSON."""
        if not self._values:
            return False
        return (
            any(run in text for run in self._runs)
            or (_PLAIN_ESCAPE in text and _ESCAPED_PLAIN.search(text) is not None)
            or (self._spellings is not None and self._spellings.search(text) is not None)
        )

    def _spans(self, first: _Reading) -> list[Span]:
        occurrences = (
            Span(reading.place(span.start), reading.place(span.end))
            for reading in _readings(first)
            for span in self._occurrences(reading.text)
        )
        found = list(islice(occurrences, SPANS_MAX + 1))
        if len(found) > SPANS_MAX:
            return [Span(0, first.place(len(first.text)))]
        return _joined(found)

    def _occurrences(self, text: str) -> Iterator[Span]:
        for value in self._values:
            for span in _found(value, text):
                if not _is_in_a_mask(value, text, span.start):
                    yield span

    def _begun(self, reading: _Reading) -> int:
        """Return where the first value may begin that the end of the text cuts."""
        unfinished = _UNFINISHED_ESCAPE.search(reading.text)
        text = reading.text[: unfinished.start()] if unfinished else reading.text
        first = len(text)
        for value in self._values:
            at = text.find(value[0], max(0, len(text) - len(value) + 1))
            while 0 <= at < first:
                if value.startswith(text[at:]):
                    first = at
                at = text.find(value[0], at + 1)
        return reading.place(first)


def replaced(text: str, spans: Sequence[Span]) -> str:
    """Return the text with the mask in the place of each span."""
    if not spans:
        return text
    kept = [text[before.end : after.start] for before, after in pairwise(spans)]
    return MASK.join([text[: spans[0].start], *kept, text[spans[-1].end :]])


def moved(place: int, spans: Iterable[Span]) -> int:
    """Return where a place of a text is, which is in none of the spans, once these are replaced."""
    return place + sum(len(MASK) - (span.end - span.start) for span in spans if span.end <= place)


def may_hide(masked: str, clear: str) -> bool:
    """Say whether masked JSON text can have been made of the clear one, whatever the values were.

    A mask stands for a piece of one string, so it never hides where a string ends.
    """
    first, *others = masked.split(MASK)
    if not clear.startswith(first):
        return False
    at = len(first)
    for number, part in enumerate(others, start=1):
        is_last = number == len(others)
        found = len(clear) - len(part) if is_last else clear.find(part, at + 1)
        if found <= at or not clear.startswith(part, found) or not _is_inside_a_string(clear[at:found]):
            return False
        at = found + len(part)
    return at == len(clear)


def _is_inside_a_string(piece: str) -> bool:
    return '"' not in _ESCAPE.sub("", piece)


class _Reading:
    """A text with its escapes read, and the way back to where each character of it stands."""

    __slots__ = ("_back", "_reads_at", "_stands_at", "text")

    def __init__(self, text: str, reads_at: list[int], stands_at: list[int], back: _Reading | None) -> None:
        """After each escape, `reads_at` is its place here, and `stands_at` its place in what was read."""
        self.text = text
        self._reads_at = reads_at
        self._stands_at = stands_at
        self._back = back

    @classmethod
    def of(cls, text: str) -> _Reading:
        """Return the text as it stands."""
        return cls(text, [0], [0], None)

    def place(self, at: int) -> int:
        """Return where a character stands in the text that was read first."""
        last = bisect_right(self._reads_at, at) - 1
        stands_at = self._stands_at[last] + at - self._reads_at[last]
        return self._back.place(stands_at) if self._back else stands_at

    def again(self) -> _Reading:
        """Return the text with its escapes read once more."""
        pieces: list[str] = []
        reads_at, stands_at = [0], [0]
        length = end = 0
        for escape in _ESCAPE.finditer(self.text):
            pieces += self.text[end : escape.start()], _character(escape[0])
            length += escape.start() - end + 1
            end = escape.end()
            reads_at.append(length)
            stands_at.append(end)
        return _Reading("".join([*pieces, self.text[end:]]), reads_at, stands_at, self)


@lru_cache(maxsize=1024)
def _character(escape: str) -> str:
    return str(json.loads(f'"{escape}"'))


def _unescaped(string: str) -> _Reading:
    """Read what stands between the quotes of a JSON string."""
    first = _Reading.of(string)
    return first.again() if "\\" in string else first


def _readings(first: _Reading) -> Iterator[_Reading]:
    reading = first
    yield reading
    for _ in range(READINGS - 1):
        if "\\" not in reading.text:
            return
        reading = reading.again()
        yield reading


def _strings(payload: str) -> Iterator[Span]:
    """Yield the places of all strings that are values and not LEFT_ALONE, without their quotes."""
    depth, name = 0, ""
    for token in _TOKEN.finditer(payload):
        if token[1] is None:
            depth += 1 if token[0] in "{[" else -1
        elif token[2] is None:
            if depth > 1 or name not in LEFT_ALONE:
                yield Span(*token.span(1))
        elif depth == 1:
            name = json.loads(f'"{token[1]}"')


def _found(value: str, text: str) -> Iterator[Span]:
    at = text.find(value)
    while at >= 0:
        yield Span(at, at + len(value))
        at = text.find(value, at + len(value))


def _is_in_a_mask(value: str, text: str, at: int) -> bool:
    """Say whether a value that is part of the mask's own text stands in one, where it hides nothing."""
    return any(at >= start and text.startswith(MASK, at - start) for start, _ in _found(value, MASK))


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in order, those that overlap as one."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.start < joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def _traces_of(values: Iterable[str]) -> tuple[list[str], re.Pattern[str] | None]:
    """Return what is found in every text that holds a value, however often it was written as JSON.

    That is a run of characters that JSON writes as they are, or a pattern of spellings where there is
    no such run of some length; unless a writer has escaped what needs it not (_ESCAPED_PLAIN).
    """
    runs, patterns = set(), set()
    for value in values:
        run = max(_PLAIN.findall(value), key=len, default="")
        if len(run) >= min(len(value), _RUN_MIN_CHARS):
            runs.add(run)
        else:
            patterns.add("".join(map(_spellings, value[:_PATTERN_MAX_CHARS])))
    return sorted(runs), re.compile("|".join(sorted(patterns))) if patterns else None


def _spellings(character: str) -> str:
    if character == "\\":
        return r"\\+"
    if character in '"/':
        return rf"\\*{character}"
    if " " <= character <= "\x7f":
        return re.escape(character)
    units = character.encode("utf-16-be", errors="surrogatepass").hex()
    escaped = "".join(rf"\\+u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    short = rf"|\\+{_SHORT[character]}" if character in _SHORT else ""
    return f"(?:{re.escape(character)}|{escaped}{short})"


NO_MASKS = Masks(())
"""Of an owner without secrets."""
