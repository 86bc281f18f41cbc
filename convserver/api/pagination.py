"""One page of a list by keyset: what stands comes once, whatever is created or deleted meanwhile."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models import QuerySet

from conversations.cursors import ListCursor

PAGE_MAX = 100


class Page(NamedTuple):
    """The keys of one page's rows, and where the next one begins; None on the last page."""

    pks: list[int]
    next_page_id: str | None


def first_page(rows: QuerySet[Any], limit: int) -> Page:
    """Return the first `limit` of the rows, which are ordered by `created_at` and key, by one query."""
    places = list(rows.values_list("created_at", "pk")[: limit + 1])
    page = places[:limit]
    more = len(places) > len(page)
    return Page([pk for _, pk in page], ListCursor(*page[-1]).encode() if more else None)
