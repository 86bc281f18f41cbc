"""The log's table, its pages, and events as they leave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import reduce
from inspect import signature
from operator import or_
from types import MappingProxyType
from typing import Any, ClassVar, Self

from django.db import connection, models
from django.db.models import Case, Exists, F, Min, OuterRef, Q, Subquery, Sum, When, Window
from django.db.models.expressions import Combinable, RawSQL

from conversations.cursors import fingerprint
from conversations.engines import case_insensitive
from conversations.events import (
    ConversationRef,
    DeferredEvent,
    Dialect,
    EventEnvelope,
    EventFilter,
    EventMatch,
    Kind,
    SomeEvents,
)
from conversations.models.conversations import (
    SOURCE_TAG,
    Conversation,
    ConversationQuerySet,
)

_PAGE_BOUND = """
    (SELECT {bound}(seq) FROM (
        SELECT seq, SUM(size) OVER (ORDER BY seq {order}) - size AS bytes_before FROM (
            SELECT seq, size FROM conversations_event
            WHERE conversation_id = %s AND seq BETWEEN %s AND %s ORDER BY seq {order}
        ) AS candidates
    ) AS summed WHERE bytes_before < %s)
"""
_PAGE_END = _PAGE_BOUND.format(bound="MAX", order="ASC")
_PAGE_START = _PAGE_BOUND.format(bound="MIN", order="DESC")


class EventQuerySet(models.QuerySet["Event"]):
    def of(self, conversation: ConversationRef | Conversation) -> Self:
        return self.filter(conversation_id=conversation.pk)

    def of_one(self, conversations: ConversationQuerySet) -> Self:
        """Return the log of the one conversation that these are; none if there is none."""
        # Not a join, after which PostgreSQL sorts the whole log.
        return self.filter(conversation_id=Subquery(conversations.values("pk")))

    def of_key(self, conversation_pk: int | Combinable) -> Self:
        return self.filter(conversation_id=conversation_pk)

    def after(self, seq: int) -> Self:
        """Return those after this cursor."""
        return self.filter(seq__gt=seq)

    def before(self, seq: int) -> Self:
        return self.filter(seq__lt=seq)

    def through(self, seq: int) -> Self:
        """Return those up to and including it."""
        return self.filter(seq__lte=seq)

    def marked_repeated(self, among: ConversationQuerySet) -> Self:
        """Annotate `is_repeated`: an imported copy repeats an event of the conversation that it left.

        It counts only if that conversation is in `among`.
        """
        is_among = Exists(among.filter(pk=OuterRef("conversation_id")).order_by())
        left = Event.objects.of_key(OuterRef("conversation__forked_from_id"))
        same = left.filter(is_among, event_id=OuterRef("event_id"), text=OuterRef("text"), hidden=False)
        is_copy = Q(conversation__tags__has_key=SOURCE_TAG, conversation__forked_from__isnull=False)
        return self.annotate(is_repeated=Case(When(is_copy, then=Exists(same)), default=False))

    def oldest_first(self) -> Self:
        return self.order_by("seq")

    def newest_first(self) -> Self:
        return self.order_by("-seq")

    def seqs(self) -> models.QuerySet[Event, int]:
        return self.values_list("seq", flat=True)

    # LIMIT would do instead of a second bound, but PostgreSQL, where its statistics know too few events of
    # a conversation, reads and sorts all that follow, for each page again.

    def page(self, conversation: ConversationRef, *, after: int, limit: int, max_bytes: int) -> Self:
        """Return the events of the next `limit` seqs, oldest first, and none once `max_bytes` are reached."""
        through = min(after + limit, models.BigIntegerField.MAX_BIGINT)
        end = RawSQL(_PAGE_END, [conversation.pk, min(after + 1, through), through, max_bytes])
        return self.of(conversation).after(after).filter(seq__lte=end).oldest_first()

    def page_before(self, conversation: ConversationRef, *, before: int, limit: int, max_bytes: int) -> Self:
        """Return the events of the `limit` seqs before `before`, oldest first, limited like `page`."""
        start = RawSQL(_PAGE_START, [conversation.pk, before - limit, before - 1, max_bytes])
        return self.of(conversation).before(before).filter(seq__gte=start).oldest_first()

    def between(self, first: int | Combinable, last: int | Combinable | None) -> Self:
        """Return those from `first` through `last`; if `last` is None, to the end."""
        rows = self.filter(seq__gte=first)
        return rows if last is None else rows.filter(seq__lte=last)

    def since(self, moment: datetime) -> Self:
        """Return those of this time or later, wherever they are: not every log is in the order of time."""
        return self.filter(timestamp__gte=moment)

    def matching(self, wanted: EventFilter) -> Self:
        """Return those that meet all conditions."""
        rows = self
        if wanted.exclude_hidden:
            rows = rows.filter(hidden=False)
        if wanted.types:
            rows = rows.filter(type__in=wanted.types)
        if wanted.any_of:
            rows = rows.filter(reduce(or_, map(_having, wanted.any_of)))
        if wanted.exclude_types:
            rows = rows.exclude(type__in=wanted.exclude_types)
        if wanted.text:
            rows = rows.filter(case_insensitive.holds("text", wanted.text))
        if wanted.source is not None:
            rows = rows.filter(source=wanted.source)
        if wanted.since is not None:
            rows = rows.filter(timestamp__gte=wanted.since)
        if wanted.until is not None:
            rows = rows.filter(timestamp__lte=wanted.until)
        return rows

    def of_any(self, conversations: ConversationQuerySet) -> Self:
        return self.filter(conversation__in=conversations)

    def beyond(self, conversation_pk: int, seq: int, *, newest_first: bool) -> Self:
        """Return those after this position, where logs follow one another by their creation."""
        side = "lt" if newest_first else "gt"
        further = Q(**{f"conversation_id__{side}": conversation_pk})
        return self.filter(further | Q(conversation_id=conversation_pk, **{f"seq__{side}": seq}))

    def log_by_log(self, *, newest_first: bool) -> Self:
        """Order by the creation of the conversations, and within one as appended."""
        return self.order_by(*(["-conversation_id", "-seq"] if newest_first else ["conversation_id", "seq"]))

    def with_event_ids(self, event_ids: Iterable[str], *, dialect: Dialect) -> Self:
        return self.filter(event_id__in=list(event_ids), dialect=dialect)

    def oldest_copies(self) -> Self:
        """Of events with the same id, which forks share, return the one that was stored first."""
        oldest = self.order_by().values("event_id").annotate(oldest=Min("pk")).values("oldest")
        return self.filter(pk__in=oldest)

    def with_pks(self, pks: Iterable[int]) -> Self:
        return self.filter(pk__in=list(pks))

    def of_permanent(self) -> Self:
        """Return those of conversations that are not temporary."""
        return self.filter(conversation__expires_at__isnull=True)

    def with_seqs(self, seqs: Iterable[int]) -> Self:
        return self.filter(seq__in=list(seqs))

    def known_as(self, event_ids: Iterable[str], seqs: Iterable[int]) -> Self:
        return self.filter(Q(event_id__in=list(event_ids)) | Q(seq__in=list(seqs)))

    def of_turn(self, turn_id: str) -> Self:
        return self.filter(turn_id=turn_id)

    def inputs(self) -> Self:
        """Return those that asked the agent for an answer."""
        return self.filter(is_input=True)

    def open_calls(self) -> Self:
        """Return the tool calls that no event of the same turn answers, by its cause or the call's id."""
        answers = Event.objects.filter(
            Q(cause_seq=OuterRef("seq")) | Q(tool_call_id=OuterRef("tool_call_id")),
            conversation_id=OuterRef("conversation_id"),
            turn_id=OuterRef("turn_id"),
            kind__in=[Kind.TOOL_RESULT, Kind.ERROR],
        )
        return self.filter(~Exists(answers), kind=Kind.TOOL_CALL)

    def envelopes(self) -> list[EventEnvelope]:
        """Read the rows as their readers see them, payloads untouched."""
        return [envelope(*row) for row in self.envelope_rows()]

    def portion(self, *, max_bytes: int) -> SomeEvents:
        """Read the rows with one query, payloads only until `max_bytes` are reached; at least one."""
        before = Window(Sum("size"), order_by="seq") - F("size")
        loaded = self.annotate(bytes_before=before).filter(bytes_before__lt=max_bytes)
        end = Subquery(loaded.newest_first().values("seq")[:1])
        texts = {name: Case(When(seq__lte=end, then=F(name))) for name in ("text", "payload")}
        rows = list(self.envelope_rows(texts))
        return SomeEvents(
            [envelope(*row) for row in rows if row[-1] is not None],
            [DeferredEvent(*row[:3]) for row in rows if row[-1] is None],
        )

    def bytes_by_owner(self) -> Iterable[tuple[int, int]]:
        """Return the owner of each conversation and the bytes of these events of theirs."""
        rows = self.order_by().values_list("conversation__owner_id")
        return rows.annotate(bytes=Sum("size"))

    def envelope_rows(self, others: Mapping[str, Case] = MappingProxyType({})) -> models.QuerySet[Event, Any]:
        """Return the query for ENVELOPE_COLUMNS of the rows, some replaced by `others`."""
        columns: dict[str, Any] = {name: name for name in ENVELOPE_COLUMNS} | dict(others)
        if connection.vendor == "postgresql":  # the database formats the time for readers
            columns["timestamp"] = _SHOWN_TIMESTAMP
        return self.values_list(*columns.values())


def _having(match: EventMatch) -> Q:
    """Return the condition that an event meets all conditions of a match."""
    facts = Q(dialect=match.dialect) & ~Q(type__in=match.exclude_types) & ~Q(source__in=match.exclude_sources)
    if match.types:
        facts &= Q(type__in=match.types)
    if match.kinds:
        facts &= Q(kind__in=match.kinds)
    if match.sources:
        facts &= Q(source__in=match.sources)
    if match.is_answer is not None:
        facts &= Q(cause_seq__isnull=not match.is_answer)
    if match.is_hidden is not None:
        facts &= Q(hidden=match.is_hidden)
    return facts


_SHOWN_TIMESTAMP = RawSQL(
    """to_char(timestamp AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""",
    [],
    output_field=models.TextField(),
)


class Event(models.Model):
    """One entry of a log; written once, never changed, and removed only by a purge (`guards`)."""

    # The index of `event_seq_once` begins with it.
    conversation = models.ForeignKey(Conversation, models.PROTECT, db_index=False)
    seq = models.BigIntegerField()
    event_id = models.TextField()
    dialect = models.CharField(max_length=20, choices=[(dialect.value, dialect.value) for dialect in Dialect])
    type = models.TextField()
    kind = models.CharField(max_length=20, choices=[(kind.value, kind.value) for kind in Kind])
    source = models.TextField()
    timestamp = models.DateTimeField()
    cause_seq = models.BigIntegerField(null=True)
    turn_id = models.TextField(null=True)
    epoch = models.BigIntegerField(null=True)
    tool_call_id = models.TextField(null=True)
    # V1: the event that this one follows, if the history branches.
    parent_event_id = models.TextField(null=True)
    # The user who sent it: a number instead of a reference, because it outlives the account.
    sender_id = models.BigIntegerField(null=True)
    # V0: the number in the payload itself, to which `cause` refers. V1: its index in the imported files.
    # There may be gaps.
    wire_id = models.BigIntegerField(null=True)
    brings_envelope = models.BooleanField(default=False)
    hidden = models.BooleanField(default=False)
    is_input = models.BooleanField(default=False)
    size = models.IntegerField()  # bytes of the payload, so that a page can be limited before it is read
    digest = models.CharField(max_length=64)
    received_at = models.DateTimeField()
    # Last, because SQLite reads a row from its beginning: reading only the size then skips the payload.
    text = models.TextField(default="")
    payload = models.TextField()

    objects = models.Manager.from_queryset(EventQuerySet)()

    class Meta:
        # What appends promise under the conversation's lock, repeated where no mistake of theirs can pass.
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "seq"], name="event_seq_once"),
            models.UniqueConstraint(fields=["conversation", "event_id"], name="event_id_once"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["conversation", "wire_id"],
                name="event_wire_id",
                condition=Q(wire_id__isnull=False),
            ),
            models.Index(
                fields=["conversation", "turn_id"], name="event_turn", condition=Q(turn_id__isnull=False)
            ),
            models.Index(fields=["conversation", "timestamp", "seq"], name="event_time"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.seq}"


def envelope(
    seq: int,
    event_id: str,
    dialect: str,
    type: str,
    kind: str,
    source: str,
    timestamp: datetime | str,
    cause_seq: int | None,
    turn_id: str | None,
    tool_call_id: str | None,
    brings_envelope: bool,
    hidden: bool,
    digest: str,
    text: str,
    payload: str,
) -> EventEnvelope:
    """Return one event for its readers, of ENVELOPE_COLUMNS; a time as text has their form already."""
    if not isinstance(timestamp, str):
        timestamp = timestamp.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {
        "seq": seq,
        "fingerprint": fingerprint(digest),
        "id": event_id,
        "dialect": dialect,
        "type": type,
        "kind": kind,
        "source": source,
        "timestamp": timestamp,
        "cause": cause_seq,
        "turn": turn_id,
        "tool_call_id": tool_call_id,
        "hidden": hidden,
        "brings_envelope": brings_envelope,
        "text": text,
        "payload": payload,
    }


ENVELOPE_COLUMNS = tuple(signature(envelope).parameters)  # the columns that `envelope` takes, in its order
