"""Verifying all logs, or some, against their heads: batch by batch, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from django.db import connection

from conversations.engines import guards
from conversations.models import Conversation, ConversationQuerySet, DamageKind
from conversations.verification import ids, logs
from conversations.verification.damage import PER_CONVERSATION_MAX, Damage
from conversations.verification.logs import LogCheck
from conversations.verification.rows import (
    Batch,
    LogHead,
    Row,
    beyond_all,
    heads_of,
    is_full,
    pages,
)


class VerificationStep(NamedTuple):
    """A step of a verification: how much of the log it has read, and what it found."""

    conversations: int = 0  # each is counted once, by the check that reads every log
    events: int = 0
    found: Sequence[Damage] = ()
    is_cut_short: bool = False  # whether its check ends before it has looked at everything


class _Reading:
    """The check of the logs of one batch, read one after another."""

    def __init__(self, batch: Batch) -> None:
        self._unread = {head.pk: head for head in batch.heads}
        self._at: int | None = None
        self._check: LogCheck | None = None
        self._orphans: dict[int, int] = {}
        self._found: list[Damage] = []
        self.is_cut_short = False

    def take(self, page: Sequence[Row]) -> None:
        for row in page:
            if row[0] != self._at:
                self._go_on_to(row)
            if self._check is not None:
                self._check.take(row)

    def finish(self) -> list[Damage]:
        self._end()
        for head in self._unread.values():
            self._found += LogCheck(head).finish()
        return [*self._found, *orphans(self._orphans)]

    def _go_on_to(self, row: Row) -> None:
        self._end()
        self._at = row[0]
        head = self._unread.pop(row[0], None)
        if head is None:
            self._orphans.setdefault(row[0], row[1])
            return
        self._check = LogCheck(head)
        if head.is_long and not head.is_purged:
            doubled = list(ids.doubled_in(head))
            self._found += doubled
            self.is_cut_short = self.is_cut_short or len(doubled) >= PER_CONVERSATION_MAX

    def _end(self) -> None:
        if self._check is not None:
            self._found += self._check.finish()
            self._check = None


def steps(rows: ConversationQuerySet | None = None) -> Iterator[VerificationStep]:
    """Verify the logs of these conversations, or of all, and then what they have in common.

    Nothing stays open between two steps, so each may run in another thread.
    """
    chosen = Conversation.objects.all() if rows is None else rows
    above = 0
    while (batch := Batch.after(above, chosen)) is not None:
        reading = _Reading(batch)
        for page in pages(batch, logs.COLUMNS, only_heads=rows is not None):
            reading.take(page)
            yield VerificationStep(events=len(page))
        found = confirmed(reading.finish(), batch.heads)
        above = batch.through
        yield VerificationStep(conversations=len(batch.heads), found=found, is_cut_short=reading.is_cut_short)
    if rows is None:
        page = beyond_all(above, ())
        rest = {row[0]: row[1] for row in reversed(page)}
        doubled = list(ids.doubled_conversations())
        found = [*orphans(rest), *doubled, *lost_guards()]
        is_cut_short = is_full(page) or len(doubled) >= PER_CONVERSATION_MAX
        yield VerificationStep(found=found, is_cut_short=is_cut_short)


def orphans(seqs: dict[int, int]) -> list[Damage]:
    """Return the damage of events whose conversation has no row; one place by each missing key."""
    there = set(Conversation.objects.filter(pk__in=seqs).values_list("pk", flat=True))
    return [
        Damage.of_none(
            DamageKind.ORPHAN,
            f"Events from {seq} on are of conversation row {pk}, which is gone.",
            seq=seq,
        )
        for pk, seq in sorted(seqs.items())
        if pk not in there
    ]


def lost_guards() -> list[Damage]:
    return [
        Damage.of_none(DamageKind.GUARD, f"The guard {name} is missing: run `convserver manage migrate`.")
        for name in sorted(guards.missing(connection))
    ]


def confirmed(found: Sequence[Damage], heads: Sequence[LogHead]) -> list[Damage]:
    """Return the damage that no append or purge between reading the heads and the logs explains."""
    pks = {damage.conversation_pk for damage in found if damage.conversation_pk is not None}
    if not pks:
        return list(found)
    before = {head.pk: head for head in heads}
    now = {head.pk: head for head in heads_of(Conversation.objects.filter(pk__in=pks))}
    return [damage for damage in found if _holds(damage, before, now)]


def _holds(damage: Damage, before: Mapping[int, LogHead], now: Mapping[int, LogHead]) -> bool:
    pk = damage.conversation_pk
    if pk is None:
        return True
    if pk not in now or now[pk].is_purged:
        return False
    return damage.problem is not DamageKind.COUNTER or now[pk].next_seq == before[pk].next_seq


def newest_event() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COALESCE(MAX(id), 0) FROM conversations_event")
        (pk,) = cursor.fetchone()
    return int(pk)
