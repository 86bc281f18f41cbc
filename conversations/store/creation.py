"""New conversations: created by a user, or by the first client that joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db import transaction
from django.utils import timezone

from conversations import access, domain_events, live
from conversations.access import Visitor
from conversations.domain_events import DomainEvent
from conversations.events import NewEvent
from conversations.exceptions import ConversationError
from conversations.log import writes
from conversations.models import (
    Conversation,
    ConversationRef,
    CreationParameters,
    UnfinishedFork,
    Version,
    new_public_id,
    normal_id,
)
from conversations.redaction import secrets
from conversations.server_log import ids_of, log_on_commit
from conversations.storage import quotas


class ConversationExists(ConversationError):
    """The id is taken, by this user or another, even if deleted."""

    code: ClassVar[str] = "conversation_exists"


def create(
    user: Visitor,
    *,
    conversation_id: str | None = None,
    version: Version = Version.V0,
    parameters: dict[str, Any] | None = None,
    events: Sequence[NewEvent] = (),
    **facts: Any,
) -> ConversationRef:
    """Create a conversation of the user that begins with `events`; `facts` are columns.

    Raise ConversationExists for a taken id. When this raises, nothing was stored.
    """
    public_id = normal_id(conversation_id) if conversation_id else new_public_id()
    owner_id = access.pk_of(user)
    quotas.admit_conversation(owner_id)
    with transaction.atomic():
        shown = secrets.masked_columns(owner_id, None, facts)
        row = insert(public_id=public_id, owner_id=owner_id, version=version, **shown)
        if parameters:
            CreationParameters.objects.create(conversation=row, parameters=parameters)
        if events:
            writes.append(row.ref, events)
    return row.ref


def join(user: Visitor, conversation_id: str, *, version: Version = Version.V0) -> ConversationRef:
    """Return the conversation; create it if it does not exist, and leave an existing one unchanged.

    The validator decides. Raise ConversationNotFound if it is deleted or another user's.
    """
    conversation, is_new = access.validator().validate(user, conversation_id, version=version)
    if is_new:
        transaction.on_commit(lambda: live.announce_listed(conversation), robust=True)
    return conversation


def insert(*, public_id: str, owner_id: int, **columns: Any) -> Conversation:
    """Insert a conversation and announce it. Raise ConversationExists for a taken id."""
    row = insert_hidden(public_id=public_id, owner_id=owner_id, **columns)
    conversation = row.ref
    domain_events.record(row.pk, DomainEvent.CREATED)
    log_on_commit("Conversation created", **ids_of(conversation), version=row.version)
    transaction.on_commit(lambda: live.announce_listed(conversation), robust=True)
    return row


def insert_hidden(*, public_id: str, owner_id: int, **columns: Any) -> Conversation:
    """Insert a conversation that the transaction hides or announces. Raise ConversationExists."""
    now = timezone.now()
    times = {"created_at": now, "updated_at": now, "listed_at": now}
    row, is_new = Conversation.objects.get_or_create(
        public_id=public_id, defaults={**times, "owner_id": owner_id, **columns}
    )
    if not is_new:
        raise ConversationExists(_why_taken(row, owner_id))
    return row


def _why_taken(row: Conversation, user_pk: int) -> str:
    """Return why the user cannot have the id of this row; reveal nothing about other users."""
    if row.owner_id == user_pk and UnfinishedFork.objects.filter(pk=row.pk).exists():
        return f"The conversation {row.public_id} is still being copied. Use it when it is whole."
    if row.owner_id == user_pk and row.purged_at is not None:
        return f"The conversation {row.public_id} was removed for good. Choose another id."
    if row.owner_id == user_pk and row.deleted_at is not None:
        return f"You have deleted the conversation {row.public_id}. Restore it, or choose another id."
    if row.owner_id == user_pk:
        return f"You already have a conversation {row.public_id}. Use it, or choose another id."
    return f"The conversation id {row.public_id} is taken."
