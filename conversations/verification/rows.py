"""The rows of the log in order, page by page: raw SQL, because it reads all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

from django.db import connection

from conversations.engines.damaged_text import exact_text
from conversations.models import ConversationQuerySet, Purge

PAGE_EVENTS = 2_000
# A payload that is longer than this is read by itself, so that a page has a bounded size.
LARGE_BYTES = 16 * 1024
HEADS = 500  # at most this many conversations are looked at together

PLACE = ("conversation_id", "seq", "id")  # the first columns of every row, and its order
# The last column of a row whose payload is wanted.
SMALL_PAYLOAD = f"CASE WHEN size <= {LARGE_BYTES} THEN payload END"
# The same of a text, which is never longer than its payload.
SMALL_TEXT = f"CASE WHEN size <= {LARGE_BYTES} THEN text END"

# Nothing is certain of the types of its values: what is no text is bytes, or has lone surrogates.
Row = Sequence[Any]

_PAGE = (
    "SELECT {columns} FROM conversations_event WHERE {condition} "
    "ORDER BY conversation_id, seq, id LIMIT {limit}"
)
_FURTHER = "(conversation_id, seq, id) > (%s, %s, %s)"
_OF_ONE = "conversation_id = %s AND seq < %s"
_FROM = f"{_OF_ONE} AND seq >= %s"
_BEYOND = "conversation_id = %s AND seq >= %s"
_NEXT = "SELECT MIN(seq) FROM conversations_event WHERE conversation_id = %s AND seq >= %s"
_VALUE = "SELECT {column} FROM conversations_event WHERE id = %s"


class LogHead(NamedTuple):
    """What a conversation's row says about its log."""

    pk: int
    public_id: str
    next_seq: int
    head_digest: str
    asked_through: int
    answered_through: int
    last_message: str
    is_purged: bool = False  # whether its events were, or are being, removed by a purge

    @property
    def is_long(self) -> bool:
        return self.next_seq > PAGE_EVENTS


_COLUMNS = (
    "pk",
    "public_id",
    "next_seq",
    "head_digest",
    "asked_through",
    "answered_through",
    "last_message",
)


class Batch(NamedTuple):
    """Conversations with consecutive keys."""

    above: int  # the key after which it begins
    through: int
    heads: Sequence[LogHead]

    @classmethod
    def after(cls, pk: int, rows: ConversationQuerySet) -> Self | None:
        """Return the next of these conversations after a key; None if there are none."""
        heads = heads_of(rows.filter(pk__gt=pk).order_by("pk")[:HEADS])
        return cls(pk, heads[-1].pk, heads) if heads else None


def heads_of(rows: ConversationQuerySet) -> list[LogHead]:
    found = list(rows.values_list(*_COLUMNS))
    purged = purged_among([row[0] for row in found])
    return [LogHead(*row)._replace(is_purged=row[0] in purged) for row in found]


def purged_among(pks: Sequence[int]) -> set[int]:
    """Return those of these conversations whose events are, or were, removed by a purge."""
    return set(Purge.objects.filter(conversation_id__in=pks).values_list("conversation_id", flat=True))


def pages(batch: Batch, columns: Sequence[str], *, only_heads: bool = False) -> Iterator[list[Row]]:
    """Yield the rows of the batch's logs with PLACE and these columns, the payload last if requested.

    Rows of missing conversations are included, unless `only_heads`.
    """
    if only_heads:
        for head in batch.heads:
            yield from of_one(head, columns)
        return
    for part in _parts(batch):
        if isinstance(part, LogHead):
            yield from of_one(part, columns)
        else:
            yield from _all_at("conversation_id > %s AND conversation_id <= %s", part, columns)


def _parts(batch: Batch) -> Iterator[LogHead | tuple[int, int]]:
    """Divide a batch into long logs and ranges of keys, the first exclusive, of about a page of events."""
    above, count = batch.above, 0
    for head in batch.heads:
        if head.is_long:
            if above < head.pk - 1:
                yield above, head.pk - 1
            yield head
            above, count = head.pk, 0
            continue
        count += head.next_seq
        if count >= PAGE_EVENTS:
            yield above, head.pk
            above, count = head.pk, 0
    if above < batch.through:
        yield above, batch.through


def of_one(head: LogHead, columns: Sequence[str], *, first: int = 0) -> Iterator[list[Row]]:
    """Yield the rows of one log from a place on, and some of those beyond its head."""
    for at, end in stretches(head, first):
        # The first page has no lower bound: a seq below 0 is damage, too.
        yield from between(head.pk, at, end, columns) if at else _all_at(_OF_ONE, [head.pk, end], columns)
    if beyond := _page(_BEYOND, [head.pk, head.next_seq], columns):
        yield beyond


def stretches(head: LogHead, first: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the parts of a log that are read together: the first place, and the excluded end.

    A gap costs one query, however long it is.
    """
    at: int | None = first
    while at is not None and at < head.next_seq:
        end = min(at + PAGE_EVENTS, head.next_seq)
        yield at, end
        at = None
        if end < head.next_seq:
            with connection.cursor() as cursor:
                cursor.execute(_NEXT, [head.pk, end])
                (seq,) = cursor.fetchone()
            at = None if seq is None else int(seq)


def between(pk: int, first: int, end: int, columns: Sequence[str]) -> Iterator[list[Row]]:
    """Yield the rows of a log from a place up to but not including another."""
    return _all_at(_FROM, [pk, end, first], columns)


def beyond_all(pk: int, columns: Sequence[str]) -> list[Row]:
    """Return rows of conversation keys above all existing ones, at most a page."""
    return _page("conversation_id > %s", [pk], columns)


def is_full(page: Sequence[Row]) -> bool:
    """Return whether there may be more rows than this page has."""
    return len(page) >= _LIMIT


def payload_of(event_pk: int) -> Any:
    """Read one payload; it is empty if the event is gone."""
    return _value_of("payload", event_pk)


def text_of(event_pk: int) -> Any:
    """Read one text; it is empty if the event is gone."""
    return _value_of("text", event_pk)


def _value_of(column: str, event_pk: int) -> Any:
    found = _read(_VALUE.format(column=column), [event_pk])
    return found[0][0] if found else ""


def _all_at(condition: str, values: Sequence[int], columns: Sequence[str]) -> Iterator[list[Row]]:
    """Yield the rows at these places: one page, unless there are more than their heads say."""
    page = _page(condition, values, columns)
    while page:
        yield page
        if not is_full(page):
            return
        page = _page(f"{condition} AND {_FURTHER}", [*values, *page[-1][:3]], columns)


_LIMIT = 2 * PAGE_EVENTS


def _page(condition: str, values: Sequence[int], columns: Sequence[str]) -> list[Row]:
    listed = ", ".join([*PLACE, *columns])
    return _read(_PAGE.format(columns=listed, condition=condition, limit=_LIMIT), values)


def _read(statement: str, values: Sequence[int]) -> list[Row]:
    """Return rows with the stored bytes: SQLite keeps any bytes in a text."""
    with exact_text(), connection.cursor() as cursor:
        cursor.execute(statement, values)
        found: list[Row] = cursor.fetchall()
    return found
