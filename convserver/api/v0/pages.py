"""Page ids of lists: keyset cursors, and two older forms that clients may still have (spec V0 §4.4)."""

from __future__ import annotations

import base64
import binascii
import json

from pydantic import BaseModel, Field

from conversations.cursors import InvalidCursor, ListCursor
from conversations.models import ConversationQuerySet
from convserver.pagination import PAGE_DEFAULT, PAGE_MAX, Page, first_page


class V0PageQuery(BaseModel):
    """Which page of a list to return."""

    page_id: str | None = None
    limit: int = Field(default=PAGE_DEFAULT, ge=1, le=PAGE_MAX)


def place_of(query: V0PageQuery) -> tuple[str | None, int]:
    """Return the page id for a store, and how many conversations to skip, which an older page id says."""
    offset = old_offset(query.page_id) if query.page_id else 0
    return (query.page_id, 0) if offset is None else (None, offset)


def page_of(rows: ConversationQuerySet, query: V0PageQuery) -> Page:
    """Return one page of ordered rows with one query. Raise InvalidCursor."""
    return first_page(rows_from(rows, query.page_id), query.limit)


def rows_from(rows: ConversationQuerySet, page_id: str | None) -> ConversationQuerySet:
    """Return the rows after the previous page. Raise InvalidCursor."""
    if not page_id:
        return rows
    offset = old_offset(page_id)
    if offset is not None:
        return rows[offset:]
    return rows.older_than(*ListCursor.decode(page_id))


def old_offset(page_id: str) -> int | None:
    """Return the number of conversations before the page if its id is of an older form; otherwise None.

    Those forms are base64 of a decimal number, and of {"v0": <such a page id>, "v1": <a number as text>}.
    """
    try:
        text = base64.b64decode(page_id, validate=True).decode()
        if not text.startswith("{"):
            return _bounded(int(text))
        places = json.loads(text)
        # The list of the reference had a place in the list of each version.
        v0, v1 = (_text_or_none(places.get(name)) for name in ("v0", "v1"))
        inner = base64.b64decode(v0, validate=True).decode() if v0 else "0"
        return _bounded(int(inner) + int(v1 or "0"))
    # A text of thousands of brackets is a RecursionError.
    except (UnicodeError, binascii.Error, ValueError, RecursionError):
        return None


def _text_or_none(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError("a place is a text or null")
    return value


def _bounded(offset: int) -> int:
    # No list is this long, and no database takes larger numbers than 2**63 as an offset.
    offset_max = 1_000_000_000
    if not 0 <= offset <= offset_max:
        raise InvalidCursor("This is not a page id of this list: use next_page_id of the page before.")
    return offset
