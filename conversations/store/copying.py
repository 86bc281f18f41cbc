"""Forks of long logs: copied in short transactions, by any process, and hidden until complete."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from conversations import domain_events, live
from conversations.domain_events import DomainEvent
from conversations.log import sql
from conversations.log.reads import PAGE_MAX_BYTES
from conversations.models import Conversation, ConversationRef, Event, EventQuerySet, UnfinishedFork
from conversations.server_log import ids_of, log_on_commit
from conversations.store import purging

# A transaction copies at most this, and PAGE_MAX_BYTES: on SQLite nothing else can write meanwhile.
STEP_EVENTS = 2_000
LEASE_S = 10.0  # any process continues a fork that none has copied for this long
BEGUN = "fork"  # the kind of the hint that a fork waits to be copied
CANCELLED = "Its owner cancelled the fork before it was whole."
SOURCE_GONE = "The source was removed for good while it was copied."


class Progress(NamedTuple):
    copied: int
    events: int


def hide(row: Conversation, *, through: int) -> None:
    """Hide a new conversation until any process has copied the events up to `through`."""
    now = timezone.now()
    Conversation.objects.filter(pk=row.pk).update(deleted_at=now, purged_at=now)
    UnfinishedFork.objects.create(conversation=row, through=through)
    transaction.on_commit(lambda: live.tell_listeners({"kind": BEGUN}), robust=True)


def progress(conversation: ConversationRef) -> Progress | None:
    """Return how far the copy of a fork is; None if it is complete."""
    rows = UnfinishedFork.objects.filter(pk=conversation.pk)
    found = rows.values_list("conversation__next_seq", "through").first()
    return None if found is None else Progress(found[0], found[1] + 1)


def take(held: Collection[int]) -> list[int]:
    """Return the keys of the forks that this process copies: those it holds, and abandoned ones."""
    lease = timedelta(seconds=LEASE_S)
    left = Q(touched_at=None) | Q(touched_at__lte=Now() - lease) | Q(touched_at__gt=Now() + lease)
    rows = UnfinishedFork.objects.order_by("pk")
    found = list(rows.filter(left).exclude(pk__in=held).values_list("pk", flat=True))
    taken = [pk for pk in found if rows.filter(left, pk=pk).update(touched_at=Now())]
    return [*rows.filter(pk__in=held).values_list("pk", flat=True), *taken]


def advance(conversation: ConversationRef, *, seconds: float) -> Progress | None:
    """Copy for about this long at most; return how far the fork is, None once it is complete."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at and step(conversation.pk):
        pass
    return progress(conversation)


def step(pk: int) -> bool:
    """Copy the next events of a fork in a transaction; return whether more are left.

    Several processes may do this at once: each copies what the others have left.
    """
    with transaction.atomic():
        row = Conversation.objects.locked().filter(pk=pk).first()
        fork = UnfinishedFork.objects.filter(pk=pk).first()
        if row is None or fork is None:
            return False
        events = Event.objects.filter(conversation_id=row.forked_from_id or 0)
        through = _end_of_step(events, row.next_seq, fork.through)
        digest = events.with_seqs([through]).values_list("digest", flat=True).first()
        copied = sql.copy_events(row.forked_from_id or 0, pk, after=row.next_seq - 1, through=through)
        if digest is None or copied != through + 1 - row.next_seq:
            _give_up(row, fork, reason=SOURCE_GONE)
            return False
        Conversation.objects.filter(pk=pk).update(next_seq=through + 1, head_digest=digest)
        UnfinishedFork.objects.filter(pk=pk).update(touched_at=Now())
        if through == fork.through:
            _show(row, fork)
    return through < fork.through


def _end_of_step(events: EventQuerySet, first: int, through: int) -> int:
    last = min(first + STEP_EVENTS - 1, through)
    size = 0
    rows = events.filter(seq__gte=first, seq__lte=last).order_by("seq")
    for seq, bytes_of in rows.values_list("seq", "size"):
        size += bytes_of
        if size >= PAGE_MAX_BYTES:
            return int(seq)
    return last


def _show(row: Conversation, fork: UnfinishedFork) -> None:
    """Show a complete fork, as if it had been made at once."""
    fork.delete()
    conversation = row.ref
    now = timezone.now()
    times = {"created_at": now, "updated_at": max(now, row.updated_at), "listed_at": now}
    Conversation.objects.filter(pk=row.pk).update(deleted_at=None, purged_at=None, **times)
    domain_events.record(row.pk, DomainEvent.CREATED)
    log_on_commit("Fork finished", **ids_of(conversation), events=fork.through + 1)
    transaction.on_commit(lambda: live.announce_listed(conversation), robust=True)


def cancel(owner_pk: int, public_id: str, *, requested_by: str) -> bool:
    """Begin to purge an unfinished fork of a user; return False if there is none."""
    with transaction.atomic():
        row = Conversation.objects.locked().filter(public_id=public_id, owner_id=owner_pk).first()
        fork = None if row is None else UnfinishedFork.objects.filter(pk=row.pk).first()
        if row is None or fork is None:
            return False
        _give_up(row, fork, reason=CANCELLED, requested_by=requested_by)
    return True


def give_up_all(owner_pk: int, *, reason: str) -> None:
    """Begin to purge the unfinished forks of a user."""
    for pk in list(
        UnfinishedFork.objects.filter(conversation__owner_id=owner_pk).values_list("pk", flat=True)
    ):
        with transaction.atomic():
            row = Conversation.objects.locked().get(pk=pk)
            fork = UnfinishedFork.objects.filter(pk=pk).first()
            if fork is not None:
                _give_up(row, fork, reason=reason)


def _give_up(
    row: Conversation, fork: UnfinishedFork, *, reason: str, requested_by: str = "the server"
) -> None:
    """Begin to purge a fork that cannot be completed."""
    fork.delete()
    Conversation.objects.filter(pk=row.pk).update(purged_at=None)
    purging.begin(row.ref, among=Conversation.objects.all(), requested_by=requested_by, reason=reason)
