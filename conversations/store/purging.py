"""Purges: a deleted conversation is removed for good, in bounded steps; a tombstone and a record stay.

`begin` cannot be undone: it empties the row, so the conversation can never be restored. Its parts are then
removed in steps of one transaction each, so a purge may be interrupted anywhere and any process can continue
it. This module removes rows of the durable tables; other tables have their own
(`sessions_app.retention`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import DateTimeField, F, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from conversations.log.locks import lock
from conversations.log.reads import STEP_BYTES, STEP_EVENTS
from conversations.models import (
    Conversation,
    ConversationQuerySet,
    ConversationRef,
    CreationParameters,
    Event,
    Purge,
)
from conversations.search import titles
from conversations.server_log import ids_of, log_on_commit
from conversations.storage import stored_bytes
from conversations.store import chosen

# The columns of a conversation that a purge empties.
EMPTY: dict[str, Any] = {
    "title": None,
    "repository": None,
    "branch": None,
    "provider": None,
    "trigger": None,
    "pr_number": [],
    "llm_model": None,
    "parent": None,
    "tags": {},
    "forked_from": None,
    "forked_at": None,
    "head_digest": "",
    "guards_inputs": None,
    "damage": None,
    "last_message": "",
    "last_message_at": None,
}

# The columns of a tombstone: numbers and times, and whose it was.
KEPT = frozenset(
    {
        "id",
        "public_id",  # so that the id is never used again
        "owner",  # the id stays theirs
        "version",
        "accumulated_cost",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "next_seq",  # a guard: it never falls
        "loop_epoch",  # a guard: it never falls, and a purge raises it
        "asked_through",
        "answered_through",
        "created_at",
        "updated_at",
        "listed_at",
        "listed_in",
        "deleted_at",
        "purged_at",
        "expires_at",  # so that no list hears of it
    }
)


_REMOVING = (
    "DELETE FROM conversations_event WHERE conversation_id = %s AND seq > %s AND seq <= %s RETURNING id, size"
)


class PurgeStep(NamedTuple):
    events: int
    bytes: int
    is_last: bool  # no event is left


def begin(
    conversation: ConversationRef, *, among: ConversationQuerySet, requested_by: str, reason: str
) -> Purge | None:
    """Empty the row of a conversation, and record that the rest is to be removed.

    Delete the conversation first if it is not deleted. `among`, which must not be a slice, has the
    conversations that may be purged: it is queried under the lock, so what was restored, used or pinned
    meanwhile stays. Return None if the conversation is not one of them, or its purge has begun. Raise
    ConversationBusy if it stays locked elsewhere.
    """
    with transaction.atomic():
        row = lock(Conversation.objects.unpurged(), conversation)
        # A separate statement: one that waits for a lock sees other tables as they were before it.
        if row is None or not among.filter(pk=row.pk).exists():
            return None
        if row.deleted_at is None:
            chosen.delete(conversation)
        purge = Purge.objects.create(
            conversation=row, requested_by=requested_by, reason=reason, last_digest=row.head_digest
        )
        now = timezone.now()
        # A running loop is of an older epoch from now on, so nothing of it is stored any more.
        Conversation.objects.filter(pk=row.pk).update(
            **EMPTY,
            loop_epoch=row.loop_epoch + 1,
            answered_through=row.asked_through,
            # Another store (CONVSERVER_STORE) may not have set it.
            deleted_at=Coalesce(F("deleted_at"), Value(now, DateTimeField())),
            purged_at=now,
            listed_at=now,
        )
        log_on_commit("Purge begun", **ids_of(conversation), by=requested_by, reason=reason)
    return purge


def remove_events(purge: Purge) -> PurgeStep:
    """Remove the next events of a purge whose row is locked by the running transaction."""
    columns = Conversation.objects.values_list("owner_id", "next_seq")
    owner_pk, next_seq = columns.get(pk=purge.conversation_id)
    last = next_seq - 1
    if purge.through >= last:
        return PurgeStep(0, 0, is_last=True)
    # Bounded by seqs: where many rows were removed just now, the engine would read all of them for a LIMIT.
    rows = Event.objects.filter(conversation_id=purge.conversation_id, seq__gt=purge.through)
    found = rows.filter(seq__lte=purge.through + STEP_EVENTS).order_by("seq").values_list("seq", "size")
    through, size_so_far = min(purge.through + STEP_EVENTS, last), 0
    for seq, size in found:
        size_so_far += size
        if size_so_far >= STEP_BYTES:
            through = seq
            break
    with connection.cursor() as cursor:
        cursor.execute(_REMOVING, [purge.conversation_id, purge.through, through])
        removed: list[tuple[int, int]] = list(cursor.fetchall())
    stored_bytes.discount(owner_pk, removed)
    purge.through = through
    return PurgeStep(len(removed), sum(size for _, size in removed), is_last=through >= last)


def remove_beside_events(conversation_pk: int) -> None:
    """Remove the other rows of a purged conversation in the durable tables."""
    CreationParameters.objects.filter(conversation_id=conversation_pk).delete()


def forget_titles() -> None:
    while titles.step():
        pass
