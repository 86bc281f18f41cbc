"""Deleting and restoring conversations: the row stays with its log, as a tombstone that can be restored."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from conversations import domain_events, live
from conversations.domain_events import DomainEvent
from conversations.models import Conversation, ConversationRef
from conversations.server_log import ids_of, log_on_commit


def soft_delete(conversation: ConversationRef) -> None:
    """Hide a conversation from all users until it is restored; keep all events."""
    now = timezone.now()
    rows = Conversation.objects.active().filter(pk=conversation.pk)
    with transaction.atomic():
        if rows.update(deleted_at=now, listed_at=now):
            _tell(conversation, DomainEvent.DELETED, "Conversation deleted")


def restore(conversation: ConversationRef) -> None:
    """Restore a deleted conversation with its whole log; leave any other unchanged."""
    rows = Conversation.objects.deleted().filter(pk=conversation.pk)
    with transaction.atomic():
        if rows.update(deleted_at=None, listed_at=timezone.now()):
            _tell(conversation, DomainEvent.RESTORED, "Conversation restored")


def _tell(conversation: ConversationRef, event: DomainEvent, act: str) -> None:
    domain_events.record(conversation.pk, event)
    log_on_commit(act, **ids_of(conversation))
    transaction.on_commit(lambda: live.announce_changed(conversation), robust=True)
