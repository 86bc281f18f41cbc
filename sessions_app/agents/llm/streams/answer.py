"""The common part of the answers of all wires: their ends, their calls, and their reader."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar

from conversations.dialects import columns
from sessions_app.agents.llm.streams.events import EVENT_MAX_BYTES, EventParser, UnreadableAnswer

DONE = "[DONE]"
CALLS_MAX = 200
# Of the text and the reasoning of an answer, and as many of the arguments of all its calls.
ANSWER_MAX_CHARS = 1_000_000


class End(Enum):
    """The end of an answer."""

    NONE = auto()
    """No end: the server closed the connection."""
    WHOLE = auto()
    """The model's own end."""
    LENGTH = auto()
    """The model's limit of length."""
    FILTERED = auto()
    """The provider's filter, or the model refused to go on."""
    PAUSED = auto()
    """A pause of the server: the model continues at the next request."""
    MALFORMED = auto()
    """A call that the model could not write."""
    FAILED = auto()
    """A failure of the server."""


# The reasons of servers, in small letters; any other is the model's own end.
ENDS: Mapping[str, End] = {
    **dict.fromkeys(("length", "max_tokens", "model_length", "max_output_tokens", "max_length"), End.LENGTH),
    **dict.fromkeys(("model_context_window_exceeded", "truncated", "incomplete"), End.LENGTH),
    **dict.fromkeys(("content_filter", "content_filtered", "refusal", "sensitive", "safety"), End.FILTERED),
    **dict.fromkeys(("guardrail_intervened", "recitation", "blocklist", "prohibited_content"), End.FILTERED),
    **dict.fromkeys(("spii", "image_safety", "image_prohibited_content", "language"), End.FILTERED),
    "pause_turn": End.PAUSED,
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call"), End.MALFORMED),
    **dict.fromkeys(("malformed_response", "missing_thought_signature"), End.MALFORMED),
    **dict.fromkeys(("error", "abort", "network_error", "insufficient_system_resource"), End.FAILED),
    "finish_reason_unspecified": End.NONE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadCall:
    """A call of an answer that has ended."""

    name: str
    arguments: str
    """The model's text, which should be a JSON object."""
    is_complete: bool
    """Whether the wire says that it is complete."""
    opaque: Mapping[str, Any] = field(default_factory=dict)
    """Data to return to the server with the call; only it can read them."""


class TooManyCalls(Exception):
    """An answer has more or longer calls than allowed."""


class CallBudget:
    """Counts an answer's calls and their characters."""

    def __init__(self) -> None:
        self._calls = 0
        self._chars = 0

    def take(self, *, calls: int = 0, chars: int = 0) -> None:
        """Add to the counts. Raise TooManyCalls."""
        self._calls += calls
        self._chars += chars
        if self._calls > CALLS_MAX or self._chars > ANSWER_MAX_CHARS:
            raise TooManyCalls


class AnswerStream(ABC):
    """Reads one answer: takes the server's bytes, and returns bytes for the wire's library.

    The library gets text and reasoning only: it would join and complete calls that must be told apart and
    refused.
    """

    REST_S: ClassVar[float | None] = 10.0
    """The time to wait for data after the reason of the end; None if the answer may continue."""

    def __init__(self) -> None:
        self._parser = EventParser()
        self._whole: list[bytes] | None = None
        """The body of an unstreamed answer."""
        self._size = 0
        self._has_begun = False
        self._has_failed = False
        self.reason = ""
        """The server's reason of the end."""
        self.is_over = False
        """Whether the wire's mark of the end was read; all after it is ignored."""

    def feed(self, part: bytes) -> bytes:
        """Return the library's part of a piece. Raise UnreadableAnswer and TooManyCalls."""
        if not self._has_begun and part.strip():
            self._has_begun = True
            # No event begins like this: the answer is not streamed.
            if part.lstrip().removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
                self._whole = []
        if self._whole is None:
            return b"".join(part for data in self._parser.feed(part) for part in self._read(data))
        self._size += len(part)
        if self._size > EVENT_MAX_BYTES:
            raise UnreadableAnswer("The answer is too long.")
        self._whole.append(part)
        return b""

    def close(self) -> bytes:
        """Return the rest for the library, at the end of the body."""
        parts: list[bytes] = []
        if self._whole is not None:
            parts += self._read_whole(b"".join(self._whole))
        with suppress(UnreadableAnswer):  # the last event may be cut
            parts += [part for data in self._parser.close() for part in self._read(data)]
        return b"".join([*parts, *self._rest()])

    @property
    def end(self) -> End:
        """Return the end of the answer, as far as it is read."""
        if self._has_failed:
            return End.FAILED
        found = _end_of(self.reason)
        return End.WHOLE if found is End.NONE and self.is_over else found

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended the answer: only its usage may follow."""
        return self.end is not End.NONE

    @property
    @abstractmethod
    def calls(self) -> list[ReadCall]:
        """Return the calls in the order in which they began."""

    @property
    def opaque(self) -> list[Mapping[str, Any]]:
        """Return the thoughts to return to the server with the calls; only it can read them."""
        return []

    @abstractmethod
    def _event(self, fields: dict[str, Any]) -> Iterator[bytes]:
        """Yield the library's part of an event."""

    def _take_reason(self, value: object) -> None:
        # The model's own end does not replace an early one: a proxy may add it after a cut.
        reason = text_of(value)
        is_early = _end_of(self.reason) not in (End.NONE, End.WHOLE)
        if reason and not (is_early and _end_of(reason) is End.WHOLE):
            self.reason = reason

    def _unstreamed(self, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events of an unstreamed answer."""
        yield fields

    def _rest(self) -> Iterator[bytes]:
        """Yield the library's part at the end."""
        return iter(())

    def _read(self, data: str) -> Iterator[bytes]:
        if self.is_over:
            return
        if data.strip() == DONE:
            self.is_over = True
            return
        if fields := fields_of(_value(data)):
            yield from self._event(fields)

    def _read_whole(self, body: bytes) -> Iterator[bytes]:
        text = body.decode("utf-8-sig", "replace")
        found = _value(text)
        for fields in found if isinstance(found, list) else [found]:
            if not isinstance(fields, dict):
                raise UnreadableAnswer("The answer is no JSON object.")
            if fields.get("error"):
                yield from self._event(fields)
                continue
            for event in self._unstreamed(fields):
                yield from self._event(event)


def sent(fields: Mapping[str, Any], name: str = "") -> bytes:
    """Return an event as bytes."""
    head = f"event: {name}\n" if name else ""
    # All ASCII: some libraries end lines at Unicode's separators.
    return f"{head}data: {json.dumps(fields)}\n\n".encode()


def fields_of(value: object) -> dict[str, Any]:
    """Return a JSON object, or an empty one."""
    return dict(columns.fields(value))


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def arguments_text(value: object) -> str:
    """Return arguments, or a piece of them, as text."""
    if value is None:
        return ""
    # Some servers send the object itself.
    return value if isinstance(value, str) else json.dumps(value)


def _end_of(reason: str) -> End:
    return ENDS.get(reason.lower(), End.WHOLE) if reason else End.NONE


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableAnswer("The answer is no JSON.") from error


class ObjectScan:
    """Checks whether a text in pieces is exactly one JSON object."""

    _MARKS = re.compile(r'["\\{}\[\]]|[^\s"\\{}\[\]]+')

    def __init__(self) -> None:
        self._depth = 0
        self._is_in_text = False
        self._is_escaped = False
        self._has_begun = False
        self.has_ended = False
        """Whether the object is complete, and only white space followed."""
        self.is_empty = True
        """Whether only white space was read."""

    def add(self, piece: str) -> None:
        for mark in self._MARKS.findall(piece):
            self.is_empty = False
            if self._is_escaped:
                self._is_escaped = False
            elif self._is_in_text:
                self._is_escaped = mark == "\\"
                self._is_in_text = mark != '"'
            else:
                self._add(mark)

    def _add(self, mark: str) -> None:
        if self.has_ended or not (self._has_begun or mark == "{"):
            self.has_ended, self._depth = False, -1  # it cannot become an object
        self._has_begun = True
        if self._depth < 0:
            return
        if mark == '"':
            self._is_in_text = True
        elif mark in "{[":
            self._depth += 1
        elif mark in "}]":
            self._depth -= 1
            self.has_ended = self._depth == 0
