"""Positions to continue from in lists and logs, and their texts on all wires.

They stay valid when conversations or events are created or deleted.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

from conversations import opaque
from conversations.events import SEQ_MAX
from conversations.exceptions import ConversationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
# Python refuses to read a number of thousands of digits, so longer ones are rejected first.
_KEY = re.compile(r"[0-9]{1,19}")
_PLACE = re.compile(r"(-?[0-9]{1,19})\.([0-9]{1,19})")

# A cursor for one sort of list is invalid for another.
KEYS, PLACES, ORDERED = "cursor of keys", "cursor of places", "cursor of places by "
# Hex digits of a digest in a cursor: too many for two histories to share them by accident.
FINGERPRINT_LENGTH = 16
_DIRECTED = re.compile(r"([ad])([0-9]{1,19})")
_LOG_PLACE = re.compile(rf"([0-9]{{1,19}})(?:\.([0-9a-f]{{{FINGERPRINT_LENGTH}}}))?")


class InvalidCursor(ConversationError):
    """The text is not a cursor that this server has returned."""

    code = "invalid_cursor"


_LOG_REFUSAL = "This is not a cursor of a log: use the `cursor` or the `seq` of an event, or -1."
_REFUSAL = "This is not a cursor of this list: use next_page_id of the page before, unchanged."
_LIST_ORDER_REFUSAL = (
    "This is not a cursor of this list in this order: use next_page_id of the page before, unchanged, "
    "and the same order."
)
_EVENTS_REFUSAL = "This is not a page id of these events: use next_page_id of the page before, unchanged."
_ORDER_REFUSAL = (
    "This is not a page id of these events in this order: use next_page_id of the page before, unchanged."
)


class KeyCursor(NamedTuple):
    """A position in a list that is ordered by one key only.

    The texts of all cursors of lists hide keys and counts.
    """

    key: int

    def encode(self) -> str:
        return opaque.conceal(str(self.key), KEYS)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the position that `encode` wrote. Raise InvalidCursor for any other text."""
        cursor = _decoded(text, KEYS)
        if not _KEY.fullmatch(cursor):
            raise InvalidCursor(_REFUSAL)
        return cls(_key(cursor))


class ListCursor(NamedTuple):
    """The position of a conversation in a list that shows the newest first."""

    created_at: datetime
    pk: int

    def encode(self) -> str:
        microseconds = (self.created_at - _EPOCH) // MICROSECOND
        return opaque.conceal(f"{microseconds}.{self.pk}", PLACES)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the position that `encode` wrote. Raise InvalidCursor for any other text."""
        place = _PLACE.fullmatch(_decoded(text, PLACES))
        if place is None:
            raise InvalidCursor(_REFUSAL)
        try:
            return cls(_EPOCH + int(place[1]) * MICROSECOND, _key(place[2]))
        except OverflowError as error:
            raise InvalidCursor(_REFUSAL) from error


class OrderedCursor(NamedTuple):
    """The position of a conversation in a list with one of several orders."""

    value: datetime | str  # the value that orders the list, in the last row of a page
    pk: int

    def encode(self, order: str) -> str:
        """Return the text of the cursor of a list in this order."""
        is_moment = isinstance(self.value, datetime)
        value = (self.value - _EPOCH) // MICROSECOND if isinstance(self.value, datetime) else self.value
        return opaque.conceal(json.dumps([is_moment, value, self.pk]), ORDERED + order)

    @classmethod
    def decode(cls, text: str, order: str) -> Self:
        """Return the place that `encode` wrote for this order. Raise InvalidCursor for any other text."""
        try:
            is_moment, value, pk = json.loads(opaque.reveal(text, ORDERED + order))
        except opaque.NotOpaque as error:
            raise InvalidCursor(_LIST_ORDER_REFUSAL) from error
        return cls(_EPOCH + value * MICROSECOND if is_moment else value, pk)


class DirectedCursor(NamedTuple):
    """The seq in one log where a page ended, and the direction of the pages."""

    seq: int
    newest_first: bool

    def encode(self) -> str:
        return opaque.text_of(f"{'d' if self.newest_first else 'a'}{self.seq}".encode())

    @classmethod
    def decode(cls, text: str, *, newest_first: bool) -> Self:
        """Return the place that `encode` wrote for this direction. Raise InvalidCursor for any other text."""
        place = _DIRECTED.fullmatch(_plain(text, _ORDER_REFUSAL))
        if place is None or (place[1] == "d") is not newest_first:
            raise InvalidCursor(_ORDER_REFUSAL)
        seq = int(place[2])
        if seq + 1 > SEQ_MAX:
            raise InvalidCursor(_ORDER_REFUSAL)
        return cls(seq, newest_first)


class PlaceCursor(NamedTuple):
    """The place of one event among many logs."""

    conversation_pk: int
    seq: int

    def encode(self) -> str:
        return opaque.text_of(f"{self.conversation_pk}.{self.seq}".encode())

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the place that `encode` wrote. Raise InvalidCursor for any other text."""
        place = _PLACE.fullmatch(_plain(text, _EVENTS_REFUSAL))
        if place is None:
            raise InvalidCursor(_EVENTS_REFUSAL)
        cursor = cls(int(place[1]), int(place[2]))
        if not (0 <= cursor.conversation_pk <= SEQ_MAX and cursor.seq <= SEQ_MAX):
            raise InvalidCursor(_EVENTS_REFUSAL)
        return cursor


class EventCursor(NamedTuple):
    """How far a reader has come in one log, and in which history of it."""

    seq: int  # of the last event that the reader has; -1 for none
    # That event's (`fingerprint`); None for a reader that names the place alone.
    fingerprint: str | None = None

    def encode(self) -> str:
        """Return the cursor as URL-safe text: `41.9c1e0f5a22b7d310`, or `41` without a fingerprint."""
        return f"{self.seq}.{self.fingerprint}" if self.fingerprint else str(self.seq)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the cursor of a text that `encode` could have written. Raise InvalidCursor for any other."""
        if text == "-1":
            return cls(-1)
        place = _LOG_PLACE.fullmatch(text)
        if place is None:
            raise InvalidCursor(_LOG_REFUSAL)
        seq = int(place[1])
        if seq > SEQ_MAX:
            raise InvalidCursor(_LOG_REFUSAL)
        return cls(seq, place[2])


def fingerprint(digest: str) -> str:
    """Return the part of an event's digest that identifies the log up to it.

    A digest depends on the one before, so it differs if any event up to it differs.
    """
    return digest[:FINGERPRINT_LENGTH]


def _key(digits: str) -> int:
    key = int(digits)
    if key > SEQ_MAX:
        raise InvalidCursor(_REFUSAL)
    return key


def _decoded(text: str, purpose: str) -> str:
    try:
        return opaque.reveal(text, purpose)
    except opaque.NotOpaque as error:
        raise InvalidCursor(_REFUSAL) from error


def _plain(text: str, refusal: str) -> str:
    try:
        return opaque.bytes_of(text).decode("ascii")
    except (opaque.NotOpaque, UnicodeError) as error:
        raise InvalidCursor(refusal) from error
