"""One page of a list by keyset: what stands comes once, whatever is created or deleted meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import QuerySet, Value
from django.db.models.expressions import Combinable

from conversations.cursors import ListCursor
from conversations.log.reads import take_bytes
from conversations.models import ConversationQuerySet, LabelQuerySet

PAGE_MAX = 100


class Page(NamedTuple):
    """The keys of one page's rows, and where the next one begins; None on the last page."""

    pks: list[int]
    next_page_id: str | None


NO_SIZE = Value(0)


def first_page(
    rows: QuerySet[Any],
    limit: int,
    *,
    column: str = "created_at",
    key: str = "pk",
    size: Combinable = NO_SIZE,
) -> Page:
    """Return the first `limit` of the rows, which are ordered by this column and key, by one query.

    `key` is the column of their keys. `size` says how long each is; where they are long a page has fewer.
    """
    return page_of_places(list(places(rows, limit, column=column, key=key, size=size)), limit)


def newest_page(
    rows: ConversationQuerySet, limit: int, *, after: ListCursor | None, label: LabelQuerySet | None
) -> Page:
    """Return a page of conversations, the newest first, by one query.

    `label` has the rows of the index for a label that all of them have: it is read in the order of the list,
    so that a page costs the same however few or many have the label. None for a list without labels.
    """
    if label is None:
        rows = rows.newest_first()
        return first_page(rows if after is None else rows.older_than(*after), limit)
    found = label.leading_to(rows)
    found = found if after is None else found.older_than(*after)
    return first_page(found, limit, key="conversation_id")


def places(
    rows: QuerySet[Any],
    limit: int,
    *,
    column: str = "created_at",
    key: str = "pk",
    size: Combinable = NO_SIZE,
) -> QuerySet[Any, tuple[Any, ...]]:
    """Return the query for `page_of_places`."""
    return rows.values_list(column, key, size)[: limit + 1]


def page_of_places(places: Sequence[Sequence[Any]], limit: int) -> Page:
    """Return the first page of ordered places: of each the moment, the key and the size."""
    pks = take_bytes((pk, size_of_one) for _, pk, size_of_one in places[:limit])
    more = len(places) > len(pks)
    return Page(pks, ListCursor(*places[len(pks) - 1][:2]).encode() if more else None)
