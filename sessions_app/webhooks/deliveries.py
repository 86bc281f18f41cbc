"""The outbox as rows: endpoints are notified of everything in order, at least once, despite failures.

An append writes nothing here: the log itself shows what is pending. Changes beside the log are recorded
here. `gather` finds what is new for an endpoint, `next_step` its next notification. Only the holder of a
conversation's claim moves its cursor.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_never
from uuid import uuid4

from django.db import connection, transaction
from django.db.models import DurationField, Exists, ExpressionWrapper, F, Max, Min, OuterRef, Q, Value
from django.db.models.functions import Greatest, Now
from django.utils import timezone

from conversations import dialects, live
from conversations.dialects import AgentState
from conversations.domain_events import DomainEvent
from conversations.events import ConversationRef, EventEnvelope, Kind
from conversations.exceptions import ConversationError
from conversations.log import reads
from sessions_app.models import (
    DELIVERY_LEASE_S,
    Delivery,
    DeliveryQuerySet,
    Endpoint,
    EndpointQuerySet,
    RecordedChange,
    RecordedChangeQuerySet,
)
from sessions_app.openhands_v1.information import information_of
from sessions_app.processes import Process, is_gone
from sessions_app.shared_clock import ahead
from sessions_app.webhooks import gathering
from sessions_app.webhooks.notifications import Notification, NotificationKind

LEASE_S = DELIVERY_LEASE_S
# The conversations of one endpoint that are delivered at a time, so that a slow endpoint delays no other.
PER_ENDPOINT = 4
RETRY_FIRST_S = 2.0
RETRY_MAX_S = 600.0
HELD_DAYS = 7
"""Recorded changes are kept this long for disabled endpoints."""
CHANGED = "outbox"
"""The kind of the hint that endpoints or their due times were changed."""

_PAUSES = frozenset({"PauseEvent", "InterruptEvent"})
# The states that end a run.
_RESTING = frozenset(
    {AgentState.PAUSED, AgentState.STOPPED, AgentState.FINISHED, AgentState.STUCK, AgentState.ERROR}
)

# Without an endpoint for the owner it inserts nothing, so that most servers pay for one look-up only.
_RECORD = """
    INSERT INTO sessions_app_recordedchange (conversation_id, kind, seq, recorded_at)
    SELECT id, %s, next_seq, %s FROM conversations_conversation WHERE id = %s AND EXISTS (
        SELECT 1 FROM sessions_app_endpoint AS endpoint
        WHERE endpoint.owner_id IS NULL OR endpoint.owner_id = conversations_conversation.owner_id)
"""


class InvalidReplay(ConversationError):
    """This endpoint gets no notifications of this conversation."""

    code = "invalid_replay"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to notify one endpoint of one conversation, until another process takes it."""

    delivery: int
    endpoint: int
    token: str


@dataclass(frozen=True, slots=True)
class NotificationStep:
    """The next notification of an endpoint, and its position after that."""

    notification: Notification
    moved: Mapping[str, Any]


def record(conversation_pk: int, event: DomainEvent) -> None:
    """Record a change if there is an endpoint for it, with one statement: `domain_events.record`."""
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, [event.value, now, conversation_pk])


def begin(endpoint: Endpoint) -> Endpoint:
    """Store a new endpoint, which is notified of everything from now on.

    Raise ConversationBusy if the beginning cannot be determined in time.
    """
    newest = gathering.settled_now()
    endpoint.begins_after = endpoint.event_position = newest.event
    endpoint.change_position = newest.change
    endpoint.save(force_insert=True)
    announce()
    return endpoint


def claim(endpoint: int, process: Process, *, limit: int, lease_s: float = LEASE_S) -> list[Claim]:
    """Claim the due, unclaimed deliveries of one endpoint, at most `limit`."""
    due = Delivery.objects.filter(endpoint_id=endpoint).due()
    if limit <= 0 or not due.exists():  # without a transaction: on SQLite that would hold up who writes
        return []
    token = uuid4().hex
    with transaction.atomic():
        pks = [row.pk for row in due.select_for_update(no_key=True, skip_locked=True)[:limit]]
        Delivery.objects.filter(pk__in=pks).update(
            claim=token,
            held_until=ahead(lease_s),
            owner_host=process.host,
            owner_pid=process.pid,
            owner_started=process.started,
        )
    return [Claim(pk, endpoint, token) for pk in pks]


def renew(claims: Collection[Claim], *, lease_s: float = LEASE_S) -> None:
    """Extend these claims, as far as they are still held."""
    for token in {each.token for each in claims}:
        pks = [each.delivery for each in claims if each.token == token]
        Delivery.objects.filter(pk__in=pks, claim=token).update(held_until=ahead(lease_s))


def release(claims: Collection[Claim]) -> None:
    for token in {each.token for each in claims}:
        pks = [each.delivery for each in claims if each.token == token]
        Delivery.objects.filter(pk__in=pks, claim=token).update(claim="", held_until=None)


def release_abandoned() -> None:
    """Release the claims of dead processes; those of other hosts expire by themselves."""
    columns = ("owner_host", "owner_pid", "owner_started")
    held = Delivery.objects.filter(held_until__isnull=False)
    for owner in set(held.values_list(*columns)):
        if is_gone(Process(*owner)):
            held.filter(**dict(zip(columns, owner, strict=True))).update(claim="", held_until=None)


def next_due(endpoints: Collection[int]) -> timedelta | None:
    """Return how long it is until the next unclaimed delivery of one of these endpoints is due."""
    rows = Delivery.objects.pending().free().filter(endpoint_id__in=endpoints)
    due_in = ExpressionWrapper(F("due_at") - Now(), DurationField())
    found: timedelta | None = rows.aggregate(next=Min(due_in))["next"]
    return found


def next_step(held: Claim) -> NotificationStep | None:
    """Return the next notification; None if there is none for now, or the claim was lost."""
    row = _held(held).select_related("endpoint", "conversation").timed().first()
    if row is None:
        return None
    if not row.endpoint.enabled:
        release([held])
        return None
    # The run has ended: clients of the wire read the status right after its last events.
    if row.owes_status:
        return NotificationStep(_informing(row, NotificationKind.STATUS), {"owes_status": False})
    # Events first: a change that was recorded before one of these is there by now, so none is passed over.
    events = _events_after(row)
    change = RecordedChange.objects.after(row.through_change).of(row.conversation, row.endpoint).first()
    if not events and change is not None and change.seq > row.through + 1:
        events = _events_after(row)  # they came between the two reads, or were purged
    events = _batch(events, change)
    if change is not None and (change.seq <= row.through + 1 or not events):
        return _step_of_change(row, change)
    if not events:
        _rest(row, due_at=None, through=max(row.through, row.known))  # or they were purged
        return None
    flush_at = row.since + timedelta(seconds=row.endpoint.flush_delay_s)
    is_cut = change is not None or ends_a_run(events[-1]) or events[-1]["seq"] < row.known
    if not is_cut and len(events) < row.endpoint.event_buffer_size and row.read_at < flush_at:
        _rest(row, due_at=flush_at, known=max(row.known, events[-1]["seq"]))
        return None
    appended = Notification(kind=NotificationKind.APPENDED, conversation=row.conversation.ref, events=events)
    return NotificationStep(appended, {"through": events[-1]["seq"], "owes_status": ends_a_run(events[-1])})


def _events_after(row: Delivery) -> list[EventEnvelope]:
    return reads.read_after(row.conversation.ref, row.through, limit=row.endpoint.event_buffer_size)


def delivered(held: Claim, step: NotificationStep) -> bool:
    """Record a successful delivery; return whether the claim is still held."""
    moved = dict(step.moved)
    # What was gathered during the delivery stays known.
    if "through" in moved:
        moved["known"] = Greatest("known", Value(moved["through"]))
    if "through_change" in moved:
        moved["known_change"] = Greatest("known_change", Value(moved["through_change"]))
    return bool(
        _held(held).update(**moved, tries=0, last_error="", failed_at=None, since=Now(), delivered_at=Now())
    )


def failed(held: Claim, error: str) -> None:
    """Record why a delivery failed, and when to retry: later after every failure, up to a limit."""
    tries = _held(held).values_list("tries", flat=True).first()
    error_max_characters = 200
    if tries is not None:
        _held(held).update(
            tries=tries + 1,
            last_error=error[:error_max_characters],
            failed_at=Now(),
            due_at=ahead(retry_delay_s(tries)),
            claim="",
            held_until=None,
        )


def retry_delay_s(tries: int) -> float:
    """Return the wait after this many failures."""
    # Random, because conversations whose endpoint failed at one moment would all retry at another.
    whole: float = min(RETRY_FIRST_S * 2 ** min(tries, 30), RETRY_MAX_S)
    return whole * random.uniform(0.5, 1.0)  # noqa: S311 - nothing is to be guessed here


def announce() -> None:
    """Wake this process's dispatcher at once; others find the change when they look next."""
    transaction.on_commit(lambda: live.announce("outbox", {"kind": CHANGED}), robust=True)


def try_again(deliveries: DeliveryQuerySet) -> int:
    """Make these due at once; return how many have something pending."""
    count = deliveries.pending().update(due_at=Now())
    announce()
    return count


def replay(endpoint: Endpoint, conversation: ConversationRef, *, first: int) -> Delivery:
    """Resend all events from seq `first` on to the endpoint, in order. Raise InvalidReplay.

    A process that is delivering now loses its claim, so it cannot move the cursor.
    """
    last_seq = last_replayable(endpoint, conversation, first=first)
    values: dict[str, Any] = {
        "through": first - 1,
        "known": last_seq,
        "since": ahead(-endpoint.flush_delay_s),
        "due_at": Now(),
        "tries": 0,
        # A process that is just delivering loses its claim, so it does not move the position again.
        "claim": "",
        "held_until": None,
    }
    position = {"through_change": endpoint.change_position, "known_change": endpoint.change_position}
    row, _ = Delivery.objects.update_or_create(
        endpoint=endpoint,
        conversation_id=conversation.pk,
        defaults=values,
        create_defaults={**values, **position},
    )
    announce()
    return row


def last_replayable(endpoint: Endpoint, conversation: ConversationRef, *, first: int) -> int:
    """Return the seq of the newest event. Raise InvalidReplay if it may not be told all from `first` on."""
    if endpoint.owner_id not in (None, conversation.owner_id):
        raise InvalidReplay("The endpoint is notified of another user's conversations only.")
    last_seq = reads.last_seq(conversation)
    if not 0 <= first <= last_seq:
        raise InvalidReplay(f"The newest event of the conversation has the number {last_seq}.")
    return last_seq


def prune(*, now: datetime | None = None) -> int:
    """Remove changes that every endpoint has got; return how many, a bounded number.

    For a disabled endpoint they are kept HELD_DAYS; it keeps its place in all logs, and is marked.
    """
    pks = _first_keys(_delivered_to(Endpoint.objects.all()))
    if not pks:
        held_since = (now or timezone.now()) - timedelta(days=HELD_DAYS)
        held = _delivered_to(Endpoint.objects.filter(enabled=True)).filter(recorded_at__lte=held_since)
        pks = _first_keys(held)
        _mark_skipped(pks)
    return RecordedChange.objects.filter(pk__in=pks).delete()[0] if pks else 0


def _delivered_to(endpoints: EndpointQuerySet) -> RecordedChangeQuerySet:
    """Return the changes that all of these endpoints have got."""
    # Read before the endpoints: changes for an endpoint that begins meanwhile come later.
    newest = RecordedChange.objects.aggregate(newest=Max("pk"))["newest"] or 0
    gathered = endpoints.aggregate(least=Min("change_position"))["least"]
    rows = RecordedChange.objects.filter(pk__lte=newest if gathered is None else gathered)
    left = Delivery.objects.filter(
        endpoint__in=endpoints,
        conversation_id=OuterRef("conversation_id"),
        through_change__lt=OuterRef("pk"),
        known_change__gte=OuterRef("pk"),
    )
    return rows.filter(~Exists(left))


def _first_keys(changes: RecordedChangeQuerySet) -> list[int]:
    prune_max_changes = 1_000
    return list(changes.order_by("pk").values_list("pk", flat=True)[:prune_max_changes])


def _mark_skipped(pks: Sequence[int]) -> None:
    """Record until when disabled endpoints, for which these changes were kept, may lack some."""
    until = RecordedChange.objects.filter(pk__in=pks).aggregate(newest=Max("recorded_at"))["newest"]
    if until is not None:
        left = Delivery.objects.filter(
            endpoint_id=OuterRef("pk"),
            through_change__lt=pks[-1],
            known_change__gte=pks[0],
            known_change__gt=F("through_change"),
        )
        lacking = Q(change_position__lt=pks[-1]) | Exists(left)
        Endpoint.objects.filter(lacking, enabled=False).update(skipped_until=until)


def _held(held: Claim) -> DeliveryQuerySet:
    return Delivery.objects.filter(pk=held.delivery, claim=held.token)


def _rest(row: Delivery, *, due_at: datetime | None, **moved: Any) -> None:
    """Release the claim until `due_at`, unless more has become known since the row was read."""
    mine = Delivery.objects.filter(pk=row.pk, claim=row.claim)
    as_read = mine.filter(known=row.known, known_change=row.known_change)
    free: dict[str, Any] = {"claim": "", "held_until": None}
    if due_at is None:  # nothing is left that could fail; a failed row waits for its own retry
        moved |= {"tries": 0, "last_error": "", "failed_at": None}
    if not as_read.update(due_at=due_at, **moved, **free):
        mine.update(due_at=Now(), **free)


def _batch(events: Sequence[EventEnvelope], change: RecordedChange | None) -> list[EventEnvelope]:
    """Return the events that go together: up to the next change, and up to the end of a run."""
    # A receiver is notified in the order of what happened; a status follows each end of a run.
    before = [event for event in events if change is None or event["seq"] < change.seq]
    ends = (place for place, event in enumerate(before, 1) if ends_a_run(event))
    return before[: next(ends, len(before))]


def ends_a_run(event: EventEnvelope) -> bool:
    if event["kind"] == Kind.TURN:
        return True
    is_rest = event["type"] in _PAUSES or dialects.state_of(event) in _RESTING
    return event["kind"] == Kind.STATE and is_rest


def _step_of_change(row: Delivery, change: RecordedChange) -> NotificationStep:
    event = DomainEvent(change.kind)
    match event:
        case DomainEvent.CREATED:
            kind = NotificationKind.CREATED
        case DomainEvent.DELETED:
            kind = NotificationKind.DELETED
        case DomainEvent.RETITLED | DomainEvent.RESTORED | DomainEvent.LOOP:
            kind = NotificationKind.STATUS
        case _:
            assert_never(event)
    return NotificationStep(_informing(row, kind), {"through_change": change.pk})


def _informing(row: Delivery, kind: NotificationKind) -> Notification:
    information = information_of([row.conversation_id], deleted=True)
    return Notification(
        kind=kind,
        conversation=row.conversation.ref,
        information=information.get(row.conversation_id),
    )
