"""Opaque positions in a list: where the last page ended, whatever was created or deleted since."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

from conversations.exceptions import ConversationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_KEY_END = 2**63
# Python refuses to read a number of thousands of digits, so longer ones are rejected first.
_KEY = re.compile(r"[0-9]{1,19}")
_PLACE = re.compile(r"(-?[0-9]{1,19})\.([0-9]{1,19})")


class InvalidCursor(ConversationError):
    """The text is not a cursor that this server has returned."""

    code = "invalid_cursor"


_REFUSAL = "This is not a cursor of this list: use next_page_id of the page before, unchanged."


class KeyCursor(NamedTuple):
    """A position in a list that is ordered by one key only."""

    key: int

    def encode(self) -> str:
        """Return the cursor as URL-safe text."""
        return base64.urlsafe_b64encode(str(self.key).encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the position that `encode` wrote. Raise InvalidCursor for any other text."""
        cursor = _decoded(text)
        if not _KEY.fullmatch(cursor):
            raise InvalidCursor(_REFUSAL)
        return cls(_key(cursor))


class ListCursor(NamedTuple):
    """The position of a conversation in a list that shows the newest first."""

    created_at: datetime
    pk: int

    def encode(self) -> str:
        """Return the cursor as URL-safe text."""
        microseconds = (self.created_at - _EPOCH) // _MICROSECOND
        return base64.urlsafe_b64encode(f"{microseconds}.{self.pk}".encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the position that `encode` wrote. Raise InvalidCursor for any other text."""
        place = _PLACE.fullmatch(_decoded(text))
        if place is None:
            raise InvalidCursor(_REFUSAL)
        try:
            return cls(_EPOCH + int(place[1]) * _MICROSECOND, _key(place[2]))
        except OverflowError as error:
            raise InvalidCursor(_REFUSAL) from error


def _key(digits: str) -> int:
    key = int(digits)
    if key >= _KEY_END:
        raise InvalidCursor(_REFUSAL)
    return key


def _decoded(text: str) -> str:
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (UnicodeError, binascii.Error, ValueError) as error:
        raise InvalidCursor(_REFUSAL) from error
