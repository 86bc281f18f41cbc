"""Receipts: which message the agent saw in which turn, and the newest event at that time."""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.utils import timezone

from conversations import live
from conversations.events import ConversationRef
from conversations.log import reads
from sessions_app.models import InputReceipt

# Messages in one hint, so that it stays small, however many have waited.
ANNOUNCED_MAX = 500


def record(conversation: ConversationRef, *, after: int, through: int, seen_seq: int, turn_id: str) -> None:
    """Record in the running transaction that a turn shows these messages to the agent, and announce it.

    They are the inputs with seq from `after` + 1 through `through`; `seen_seq` is the newest event by
    then.
    """
    seqs = reads.input_seqs(conversation, after=after, through=through)
    if not seqs:
        return
    seen_at = timezone.now()
    InputReceipt.objects.bulk_create(
        [
            InputReceipt(
                conversation_id=conversation.pk, seq=seq, seen_seq=seen_seq, turn_id=turn_id, seen_at=seen_at
            )
            for seq in seqs
        ],
        update_conflicts=True,  # a message that an earlier turn left unanswered has a receipt already
        unique_fields=["conversation", "seq"],
        update_fields=["seen_seq", "turn_id", "seen_at"],
    )
    for start in range(0, len(seqs), ANNOUNCED_MAX):
        seen = partial(
            live.announce_seen,
            conversation,
            seqs[start : start + ANNOUNCED_MAX],
            seen_seq=seen_seq,
            turn_id=turn_id,
        )
        transaction.on_commit(seen, robust=True)
