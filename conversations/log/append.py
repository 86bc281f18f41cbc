"""The only way to write to the log: many appends in one transaction, set-based, on both engines.

On PostgreSQL that takes two round trips: lock and look up; insert, move the heads, and commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from django.conf import settings
from django.db import OperationalError, connection
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from conversations import counts
from conversations.counts import Counted
from conversations.cursors import MICROSECOND
from conversations.events import Appended, Dialect, EventEnvelope, Kind, NewEvent
from conversations.exceptions import (
    ConversationBusy,
    ConversationError,
    ConversationNotFound,
    EventConflict,
    InvalidEvent,
    MaskingDeferred,
)
from conversations.log import fence, sql, wakeups
from conversations.models import (
    ENVELOPE_COLUMNS,
    LAST_MESSAGE_MAX_LENGTH,
    Conversation,
    ConversationRef,
    envelope,
)
from conversations.readiness import readiness
from conversations.redaction import masking
from conversations.redaction import secrets as secrecy
from conversations.redaction.masking import NO_MASKS, Masks
from conversations.redaction.secrets import MaskedEvents, MaskingAllowance

# How long an append waits for a conversation that another transaction has locked (PostgreSQL).
LOCK_TIMEOUT_S: float = settings.LOCK_TIMEOUT_S

STAMP_LENGTH = 26


@dataclass(frozen=True, kw_only=True, slots=True)
class AppendRequest:
    """The events that one caller wants stored: all or none."""

    conversation: ConversationRef
    events: Sequence[NewEvent]
    epoch: int | None = None  # the epoch of the writing loop; None for all other callers
    # Run in the same transaction after the events are stored, under the conversation's lock.
    also: Callable[[Sequence[Appended]], None] | None = None
    # Why it is refused, if it is: asked under the lock of a conversation that guards its inputs.
    refusal: Callable[[], ConversationError | None] | None = None
    masked: MaskedEvents | None = None  # the events without secrets, if they were masked before
    # Whether to answer MaskingDeferred instead of masking long events under the lock.
    defers_masking: bool = False


def masked(request: AppendRequest) -> AppendRequest:
    """Return the request with its events masked by the present secrets, before its transaction."""
    ref = request.conversation
    return replace(request, masked=secrecy.masked_beforehand(ref.owner_id, ref.pk, request.events))


@dataclass(frozen=True, slots=True)
class AppendOutcome:
    """The outcome of one request: the places of its events, and the envelopes of the new ones."""

    appended: list[Appended]
    envelopes: list[EventEnvelope]


class _Stored(NamedTuple):
    seq: int
    payload: str


@dataclass(slots=True)
class _Head:
    """The end of one locked log, which moves while a transaction appends."""

    pk: int
    next_seq: int
    head_digest: str
    loop_epoch: int
    asked_through: int
    last_message: str
    last_message_at: datetime | None
    accumulated_cost: float
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    updated_at: datetime
    listed_at: datetime
    deleted_at: datetime | None
    guards_inputs: bool | None
    masks: Masks = NO_MASKS  # the values to mask: the owner's secrets and the conversation's
    is_asked: bool = False  # whether an event of this transaction asks for an answer
    is_deferred: bool = False  # whether an append of this transaction waits until its events are masked
    # By event id: stored events that these requests repeat or refer to, and events added so far.
    stored: dict[str, _Stored] = field(default_factory=dict)
    # By the number that a V0 sender gave an event: its newest seq.
    wire_ids: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NumberedAppends:
    """Requests whose events have their places at the end of locked logs, but are not written yet."""

    requests: Sequence[AppendRequest]
    # Each in the place of its request; they hold once the transaction is committed.
    outcomes: list[AppendOutcome | ConversationError]
    heads: Mapping[int, _Head]
    rows: list[sql.EventRow]

    @property
    def ends_transaction(self) -> bool:
        """Return whether these are the last statements: no request has further work in the transaction."""
        return bool(self.rows) and all(request.also is None for request in self.requests)

    def write(self, *, commits: bool) -> None:
        """Insert the events and move the heads; with `commits` do it as `sql.last_pipeline` does.

        If this raises, the transaction must be rolled back. Raise LostCommit if its outcome is unknown.
        """
        moved = {row.conversation_id for row in self.rows}
        is_copied = not commits and sql.copy_in(self.rows)
        with sql.last_pipeline(commits=commits):
            sql.insert_events(() if is_copied else self.rows)
            sql.move_heads([_moved(self.heads[pk]) for pk in sorted(moved)])
            wakeups.asked([pk for pk in sorted(moved) if self.heads[pk].is_asked])
        for request, outcome in zip(self.requests, self.outcomes, strict=True):
            if request.also is not None and isinstance(outcome, AppendOutcome):
                request.also(outcome.appended)


_HEAD_COLUMNS = (
    "pk",
    "next_seq",
    "head_digest",
    "loop_epoch",
    "asked_through",
    "last_message",
    "last_message_at",
    "accumulated_cost",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "updated_at",
    "listed_at",
    "deleted_at",
    "guards_inputs",
)


_shown_columns = attrgetter(*ENVELOPE_COLUMNS)


def chain(head_digest: str, *, seq: int, event_id: str, payload: str | bytes) -> str:
    """Return the digest of the event that follows `head_digest`: SHA-256 in hex.

    The id is preceded by its length, so that two different logs never hash the same text. A payload in bytes
    is hashed as it is stored.
    """
    name = event_id.encode()
    digest = hashlib.sha256(b"%s %d %d %s" % (head_digest.encode(), seq, len(name), name))
    digest.update(payload.encode() if isinstance(payload, str) else payload)
    return digest.hexdigest()


def number(requests: Sequence[AppendRequest], *, wait: bool) -> NumberedAppends:
    """Lock the requests' logs in the running transaction, and give the events their places at the ends.

    A refused request stores nothing and affects no other. Without `wait`, a conversation that another
    transaction has locked is answered with ConversationBusy at once; with it, after LOCK_TIMEOUT_S. If this
    raises, the transaction must be rolled back. Raise StoreUnavailable if nothing can be stored now.
    """
    readiness.require()
    heads = _locked_heads(requests, wait=wait)
    rows: list[sql.EventRow] = []
    allowance = MaskingAllowance()
    outcomes = [_take(heads, request, rows, allowance, wait=wait) for request in requests]
    return NumberedAppends(requests, outcomes, heads, rows)


def _locked_heads(requests: Sequence[AppendRequest], *, wait: bool) -> dict[int, _Head]:
    """Lock the requests' conversations, and find the stored events that they repeat or refer to.

    The secrets of their owners and their own are found in the same transaction. So a secret that was stored
    before is never written in clear, whichever process stored it.
    """
    # One lock per conversation makes the order of seqs the order of commits: a reader that has seen seq
    # n cannot have missed an n - 1. Locks are taken in the same order everywhere, so that writers
    # cannot deadlock. SQLite has no row locks: its transactions are IMMEDIATE, one at a time.
    pks = sorted({request.conversation.pk for request in requests})
    owners = sorted({request.conversation.owner_id for request in requests})
    ids, wire_ids = _references(requests)
    try:
        with sql.pipeline():  # a later statement sees what was committed before this one got the lock
            rows = _heads_found(pks, wait=wait)
            stored, numbered = sql.events_with_ids(ids), sql.events_with_wire_ids(wire_ids)
            secrets = secrecy.found(owners, pks)
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            counts.add(Counted.LOCK_TIMEOUTS)
            raise ConversationBusy("The conversation is locked by another process. Try again.") from error
        raise
    heads = {row[0]: _Head(*row) for row in rows.rows()}
    if hidden := secrets.rows():
        owned = {request.conversation.pk: request.conversation.owner_id for request in requests}
        for pk, masks in secrecy.masks_for(owned.items(), hidden).items():
            if pk in heads:
                heads[pk].masks = masks
    for pk, event_id, seq, payload in stored.rows():
        if pk in heads:
            heads[pk].stored[event_id] = _Stored(seq, payload)
    for pk, wire_id, seq, dialect in numbered.rows():
        if pk in heads and dialect == Dialect.V0:
            heads[pk].wire_ids[wire_id] = max(seq, heads[pk].wire_ids.get(wire_id, -1))
    return heads


def _heads_found(pks: Sequence[int], *, wait: bool) -> sql.Result:
    if connection.vendor == "postgresql":
        if wait:
            sql.limit_lock_wait(LOCK_TIMEOUT_S)
        return sql.locked_heads(("id", *_HEAD_COLUMNS[1:]), pks, wait=wait)
    rows = Conversation.objects.filter(pk__in=pks).values_list(*_HEAD_COLUMNS)
    return sql.Result(rows)


def _references(requests: Sequence[AppendRequest]) -> tuple[set[tuple[int, str]], set[tuple[int, int]]]:
    """Return the event ids and the senders' numbers to look up, each with its conversation."""
    ids: set[tuple[int, str]] = set()
    wire_ids: set[tuple[int, int]] = set()
    for request in requests:
        pk = request.conversation.pk
        for event in request.events:
            ids.add((pk, event.event_id))
            if event.reading.cause_event_id is not None:
                ids.add((pk, event.reading.cause_event_id))
            if event.cause_seq is None and event.reading.cause_wire_id is not None:
                wire_ids.add((pk, event.reading.cause_wire_id))
    return ids, wire_ids


def _take(
    heads: dict[int, _Head],
    request: AppendRequest,
    rows: list[sql.EventRow],
    allowance: MaskingAllowance,
    *,
    wait: bool,
) -> AppendOutcome | ConversationError:
    """Number the request's events at the end of their log, or return the refusal."""
    head = heads.get(request.conversation.pk)
    if head is None and not wait:
        return ConversationBusy("The conversation is locked by another process.")
    if head is None or head.deleted_at is not None:
        return ConversationNotFound("Conversation not found.")
    if request.epoch is not None and (fenced := fence.broken(request.epoch, head.loop_epoch)):
        return fenced
    events = _masked(head, request, allowance)
    if isinstance(events, ConversationError):
        return events
    if conflict := _conflict(head, request.events, events):
        return conflict
    if refusal := _refusal(head, request):
        return refusal
    new: list[sql.EventRow] = []
    appended = [_number(head, event, request.epoch, new) for event in events]
    rows += new
    return AppendOutcome(appended, [envelope(*_shown_columns(row)) for row in new])


def _masked(
    head: _Head, request: AppendRequest, allowance: MaskingAllowance
) -> Sequence[NewEvent] | InvalidEvent | MaskingDeferred:
    """Return the request's events without secrets, or the refusal."""
    if request.masked is not None and request.masked.masks == head.masks:
        return request.masked.events
    # Later appends of the conversation must be stored after a deferred one, so they are deferred, too.
    if request.defers_masking and (head.is_deferred or not allowance.covers(request.events, head.masks)):
        head.is_deferred = True
        return MaskingDeferred("The conversation's secrets keep changing. Try again.")
    return secrecy.masked_all(request.events, head.masks)


def _refusal(head: _Head, request: AppendRequest) -> ConversationError | None:
    """Return why the conversation refuses the request; stored events may be repeated."""
    if not head.guards_inputs or request.refusal is None:
        return None
    is_repeated = all(event.event_id in head.stored for event in request.events)
    return None if is_repeated else request.refusal()


def _conflict(head: _Head, sent: Sequence[NewEvent], masked: Sequence[NewEvent]) -> EventConflict | None:
    taken: dict[str, str] = {}
    for event, to_store in zip(sent, masked, strict=True):
        stored = head.stored.get(event.event_id)
        earlier = taken.setdefault(event.event_id, stored.payload if stored else to_store.payload)
        if not _same(event, to_store, earlier):
            which = f"Event {stored.seq}" if stored else "Another event of this request"
            return EventConflict(
                f"{which} has the id {event.event_id!r} and other content. "
                "Send the same bytes to repeat it, or use a new id."
            )
    return None


def _same(sent: NewEvent, masked: NewEvent, stored: str) -> bool:
    """Return whether an event was stored before, with the secrets of that time or of now."""
    if masked.stamp_offset is not None:
        start, end = masked.stamp_offset, masked.stamp_offset + STAMP_LENGTH
        stored = stored[:start] + masked.payload[start:end] + stored[end:]
    return stored in (masked.payload, sent.payload) or masking.may_hide(stored, sent.payload)


def _number(head: _Head, event: NewEvent, epoch: int | None, new: list[sql.EventRow]) -> Appended:
    if stored := head.stored.get(event.event_id):
        return Appended(event.event_id, stored.seq, is_new=False)
    now = head.updated_at = max(timezone.now(), head.updated_at + MICROSECOND)
    payload = event.payload
    if (at := event.stamp_offset) is not None:
        stamp = now.replace(tzinfo=None).isoformat(timespec="microseconds")
        payload = payload[:at] + stamp + payload[at + STAMP_LENGTH :]
    seq = head.next_seq
    row = _row(head, event, seq=seq, payload=payload, epoch=epoch, now=now)
    head.next_seq, head.head_digest = seq + 1, row.digest
    head.stored[event.event_id] = _Stored(seq, payload)
    if row.wire_id is not None and row.dialect == Dialect.V0:
        head.wire_ids[row.wire_id] = seq
    _count(head, event, seq=seq, now=now)
    new.append(row)
    return Appended(event.event_id, seq, is_new=True)


def _row(
    head: _Head, event: NewEvent, *, seq: int, payload: str, epoch: int | None, now: datetime
) -> sql.EventRow:
    reading, content = event.reading, payload.encode()
    return sql.EventRow(
        conversation_id=head.pk,
        seq=seq,
        event_id=event.event_id,
        dialect=reading.dialect.value,
        type=reading.type,
        kind=(event.kind or reading.kind).value,
        source=reading.source,
        timestamp=now if event.stamp_offset is not None else reading.timestamp or now,
        cause_seq=_cause(head, event, seq),
        turn_id=event.turn_id,
        epoch=epoch if event.arrival is None else event.arrival.epoch,
        tool_call_id=reading.tool_call_id,
        parent_event_id=reading.parent_event_id,
        sender_id=event.sender_id,
        wire_id=reading.wire_id,
        brings_envelope=reading.brings_envelope,
        hidden=reading.hidden,
        is_input=event.is_input,
        text=reading.text,
        payload=payload,
        size=len(content),
        digest=chain(head.head_digest, seq=seq, event_id=event.event_id, payload=content),
        received_at=now if event.arrival is None else event.arrival.received_at,
    )


def _cause(head: _Head, event: NewEvent, seq: int) -> int | None:
    """Return the seq of the event that this one answers, by any of the wires' references."""
    reading = event.reading
    if event.cause_seq is not None:
        return event.cause_seq
    if reading.cause_event_id is not None:
        stored = head.stored.get(reading.cause_event_id)
        return stored.seq if stored else None
    if reading.cause_wire_id is None:
        return None
    if reading.cause_wire_id in head.wire_ids:
        return head.wire_ids[reading.cause_wire_id]
    # A sender that does not number events refers to what it was shown: the seq.
    return reading.cause_wire_id if reading.wire_id is None and reading.cause_wire_id < seq else None


def _count(head: _Head, event: NewEvent, *, seq: int, now: datetime) -> None:
    if event.is_input and event.asks:
        head.asked_through, head.is_asked = seq, True
    if event.metrics is not None:
        head.accumulated_cost = max(head.accumulated_cost, event.metrics.accumulated_cost)
        head.prompt_tokens = max(head.prompt_tokens, event.metrics.prompt_tokens)
        head.completion_tokens = max(head.completion_tokens, event.metrics.completion_tokens)
        head.total_tokens = max(head.total_tokens, head.prompt_tokens + head.completion_tokens)
    if event.reading.kind is Kind.MESSAGE and not event.reading.hidden:
        head.last_message = event.reading.text[:LAST_MESSAGE_MAX_LENGTH]
        head.last_message_at = now
        # Always a new time: the guard numbers a changed row by it.
        head.listed_at = max(now, head.listed_at + MICROSECOND)


def _moved(head: _Head) -> sql.HeadRow:
    return sql.HeadRow(
        id=head.pk,
        next_seq=head.next_seq,
        head_digest=head.head_digest,
        asked_through=head.asked_through,
        last_message=head.last_message,
        last_message_at=head.last_message_at,
        accumulated_cost=head.accumulated_cost,
        prompt_tokens=head.prompt_tokens,
        completion_tokens=head.completion_tokens,
        total_tokens=head.total_tokens,
        updated_at=head.updated_at,
        listed_at=head.listed_at,
    )
