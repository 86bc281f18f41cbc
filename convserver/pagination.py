"""One page of a list by keyset: what stands comes once, whatever is created or deleted meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import QuerySet, Value
from django.db.models.expressions import Combinable

from conversations.cursors import ListCursor, OrderedCursor
from conversations.log.reads import take_bytes
from conversations.models import Conversation, ConversationQuerySet, LabelQuerySet, ListOrder

PAGE_DEFAULT = 20
PAGE_MAX = 100
COUNTED_MAX = 10_000  # to count rows takes as long as to read them; above this, a page says "more than"
# If a filter leaves at most this many conversations, they are sorted; of more, an order's index is read.
SORTED_MAX = 200


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


def list_page(
    rows: ConversationQuerySet,
    limit: int,
    *,
    order: ListOrder,
    page_id: str | None,
    label: LabelQuerySet | None,
    is_narrow: bool,
) -> Page:
    """Return a page of conversations in the order that the reader has chosen.

    A conversation that is used between two pages moves to the front of a list by last use: no page brings it
    twice, and one that was not read yet is on the first page then. `is_narrow` says that few rows may match:
    these are found as in the list by creation, where each filter has its index, and sorted.
    """
    if order is ListOrder.CREATED:
        after = ListCursor.decode(page_id) if page_id else None
        return newest_page(rows, limit, after=after, label=label)
    place = OrderedCursor.decode(page_id, order) if page_id else None
    if is_narrow or label is not None:
        # The index of an order has no filter: few matches would be looked for through all rows.
        few = newest_page(rows, SORTED_MAX, after=None, label=label)
        if few.next_page_id is None:
            rows = Conversation.objects.with_pks(few.pks)
    keyed: QuerySet[Any] = rows.listed_by(order)
    if place is not None:
        keyed = keyed.filter(order.beyond(*place))
    found = list(keyed.values_list("list_key", "pk")[: limit + 1])
    more = OrderedCursor(*found[limit - 1]).encode(order) if len(found) > limit else None
    return Page([pk for _, pk in found[:limit]], more)


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
    # A page is bounded in bytes, too: a hundred of the longest rows do not fit into an answer.
    pks = take_bytes((pk, size_of_one) for _, pk, size_of_one in places[:limit])
    more = len(places) > len(pks)
    return Page(pks, ListCursor(*places[len(pks) - 1][:2]).encode() if more else None)
