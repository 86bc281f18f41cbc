"""Page ids of the app face: where the previous page ended, whatever was created or deleted since (R7)."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple, Self

from conversations.cursors import InvalidCursor

_MAX = 2**63


class EventCursor(NamedTuple):
    """The place of one event: its log, and its place in it."""

    conversation_pk: int
    seq: int

    def encode(self) -> str:
        """Return the cursor as URL-safe text."""
        return base64.urlsafe_b64encode(f"{self.conversation_pk}.{self.seq}".encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the place that `encode` wrote. Raise InvalidCursor for any other text."""
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            decoded = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
            conversation_pk, _, seq = decoded.partition(".")
            cursor = cls(int(conversation_pk), int(seq))
        except (UnicodeError, binascii.Error, ValueError) as error:
            raise _not_ours() from error
        if not (0 <= cursor.conversation_pk < _MAX and 0 <= cursor.seq < _MAX):
            raise _not_ours()
        return cursor


def _not_ours() -> InvalidCursor:
    return InvalidCursor(
        "This is not a page id of these events: use next_page_id of the page before, unchanged."
    )
