"""Page ids of lists: keyset cursors, and the two older forms that clients may still hold (spec V0 §4.4)."""

from __future__ import annotations

import base64
import binascii
import json
from typing import NamedTuple

from pydantic import BaseModel, Field

from conversations.cursors import InvalidCursor, ListCursor
from conversations.models import ConversationQuerySet

PAGE_MAX = 100
_OFFSET_MAX = 1_000_000_000


class PageQuery(BaseModel):
    """Which page of a list."""

    page_id: str | None = None
    limit: int = Field(default=20, ge=1, le=PAGE_MAX)


class Page(NamedTuple):
    """The keys of one page's conversations, and where the next one begins."""

    pks: list[int]
    next_page_id: str | None


def page_of(rows: ConversationQuerySet, query: PageQuery) -> Page:
    """Return one page of ordered rows by one query. Raise InvalidCursor."""
    places = list(rows_from(rows, query.page_id).values_list("created_at", "pk")[: query.limit + 1])
    page = places[: query.limit]
    more = len(places) > len(page)
    return Page([pk for _, pk in page], ListCursor(*page[-1]).encode() if more else None)


def rows_from(rows: ConversationQuerySet, page_id: str | None) -> ConversationQuerySet:
    """Return the rows from where the page before ended. Raise InvalidCursor."""
    if not page_id:
        return rows
    offset = _old_offset(page_id)
    if offset is not None:
        return rows[offset:]
    return rows.older_than(*ListCursor.decode(page_id))


def _old_offset(page_id: str) -> int | None:
    """Return how many conversations came before, if the page id is of an older form; else None.

    Those forms are base64 of a decimal number, and of {"v0": <such a page id>, "v1": <a number as text>}.
    """
    try:
        text = base64.b64decode(page_id, validate=True).decode()
        if not text.startswith("{"):
            return _bounded(int(text))
        places = json.loads(text)
        v0, v1 = (_text_or_none(places.get(name)) for name in ("v0", "v1"))
        inner = base64.b64decode(v0, validate=True).decode() if v0 else "0"
        return _bounded(int(inner) + int(v1 or "0"))
    except (UnicodeError, binascii.Error, ValueError, RecursionError):
        return None


def _text_or_none(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError("a place is a text or null")
    return value


def _bounded(offset: int) -> int:
    if not 0 <= offset <= _OFFSET_MAX:
        raise InvalidCursor("This is not a page id of this list: use next_page_id of the page before.")
    return offset
