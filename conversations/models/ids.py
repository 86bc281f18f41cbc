"""The ids of conversations as clients write them and as they are stored, and the titles made of them."""

from __future__ import annotations

import re
from uuid import uuid4

from conversations.exceptions import InvalidConversationId

PUBLIC_ID_MAX_LENGTH = 100
RESERVED_IDS = frozenset({"search", "count"})
# A default title shows at most this many characters of a chosen id, an ellipsis included.
CHOSEN_ID_SHOWN = 40
_UUID = re.compile(
    r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", re.ASCII | re.IGNORECASE
)


def normal_id(text: str) -> str:
    """Return the form in which an id is stored: a UUID of any spelling as 32 hex digits.

    Raise InvalidConversationId, with the texts and in the order of spec V0 §0.2.
    """
    if len(text) > PUBLIC_ID_MAX_LENGTH:
        raise InvalidConversationId("Conversation ID is too long")
    if "\0" in text:
        raise InvalidConversationId("Conversation ID contains invalid characters")
    if ".." in text or "/" in text or "\\" in text:
        raise InvalidConversationId("Conversation ID contains invalid path characters")
    if any(character < " " for character in text):
        raise InvalidConversationId("Conversation ID contains control characters")
    if not text or text in RESERVED_IDS or not text.isprintable():
        raise InvalidConversationId(f"Conversation ID cannot be {text!r}")
    return _hex_of_uuid(text) or text


def _hex_of_uuid(text: str) -> str | None:
    return text.replace("-", "").lower() if _UUID.fullmatch(text) else None


def shown_title(title: str | None, public_id: str) -> str:
    """Return the title, or the default one, which shows a readable part of an id that a client chose."""
    if title:
        return title
    if _hex_of_uuid(public_id):
        return f"Conversation {public_id[:5]}"  # as in spec V0 §4.5
    is_long = len(public_id) > CHOSEN_ID_SHOWN
    return f"Conversation {public_id[: CHOSEN_ID_SHOWN - 1]}…" if is_long else f"Conversation {public_id}"


def new_public_id() -> str:
    return uuid4().hex
