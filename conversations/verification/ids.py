"""Doubled ids that the check of a single short log does not see."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection
from django.db.models import Count, Min

from conversations.models import Conversation, DamageKind, Event
from conversations.verification.damage import PER_CONVERSATION_MAX, Damage
from conversations.verification.rows import LogHead

_DOUBLED = (
    "SELECT event_id FROM conversations_event WHERE conversation_id = %s "
    f"GROUP BY event_id HAVING COUNT(*) > 1 LIMIT {PER_CONVERSATION_MAX}"
)


def doubled_in(head: LogHead) -> Iterator[Damage]:
    """Yield the events of a long log that repeat the id of an earlier event."""
    with connection.cursor() as cursor:
        cursor.execute(_DOUBLED, [head.pk])
        event_ids = [event_id for (event_id,) in cursor.fetchall()]
    for event_id in event_ids:
        rows = Event.objects.of_key(head.pk).filter(event_id=event_id)
        for seq in rows.oldest_first().seqs()[1 : PER_CONVERSATION_MAX + 1]:
            detail = f"Event {seq} has the id {event_id}, which an earlier event has."
            yield Damage(DamageKind.DOUBLED_ID, head.pk, head.public_id, seq, detail)


def doubled_conversations() -> Iterator[Damage]:
    """Yield the conversations that share their id."""
    rows = Conversation.objects.order_by().values("public_id").annotate(count=Count("pk"), first=Min("pk"))
    for row in rows.filter(count__gt=1)[:PER_CONVERSATION_MAX]:
        detail = f"{row['count']} conversations have this id."
        yield Damage(DamageKind.DOUBLED_ID, row["first"], row["public_id"], None, detail)
