"""Access to conversations: the only source of rows for views and sockets.

A deleted conversation, another user's and a nonexistent one look the same, except that the owner learns
that a conversation was deleted.
"""

from __future__ import annotations

from typing import cast

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction
from django.utils.module_loading import import_string

from conversations import domain_events
from conversations.exceptions import ConversationDeleted, ConversationNotFound, ForkUnfinished
from conversations.models import Conversation, ConversationRef, UnfinishedFork, Version, normal_id
from conversations.payloads.limits import limits_of
from conversations.server_log import ids_of, log_on_commit
from conversations.storage import quotas

Visitor = AbstractBaseUser | AnonymousUser

DELETED = "The conversation was deleted. You can restore it."


def readable(user: Visitor, conversation_id: str) -> ConversationRef:
    """Return the conversation if the user may read it; raise ConversationNotFound otherwise."""
    return readable_row(user, conversation_id).ref


def readable_row(user: Visitor, conversation_id: str) -> Conversation:
    """Return the whole row if the user may read it; raise ConversationNotFound otherwise."""
    public_id = normal_id(conversation_id)
    row = Conversation.objects.open_to(user).with_public_ids([public_id]).first()
    if row is None:
        _tell_owner(user, Conversation.objects.deleted().with_public_ids([public_id]).first())
        _tell_of_fork(user, public_id)
    return _found(row)


def writable(user: Visitor, conversation_id: str) -> ConversationRef:
    """Return the conversation if the user may add to it; raise ConversationNotFound otherwise."""
    return readable(user, conversation_id)


def restorable(user: Visitor, conversation_id: str) -> ConversationRef:
    """Return a conversation of the user, deleted or not; raise ConversationNotFound otherwise.

    A purged one does not exist.
    """
    public_id = normal_id(conversation_id)
    rows = Conversation.objects.unpurged().owned_by(pk_of(user))
    row = _found(rows.with_public_ids([public_id]).first())
    return within_limits(user, row.ref)


def _found(row: Conversation | None) -> Conversation:
    if row is None:
        raise ConversationNotFound("Conversation not found.")
    return row


def _tell_owner(user: Visitor, row: Conversation | None) -> None:
    """Raise ConversationDeleted if the row is deleted, the user's, and within this visitor's limits."""
    if row is None or row.deleted_at is None or row.owner_id != user.pk:
        return
    if limits_of(user).only in (None, row.pk):
        raise ConversationDeleted(DELETED)


def _tell_of_fork(user: Visitor, public_id: str) -> None:
    """Raise ForkUnfinished if the conversation is the user's and is still being copied."""
    row = Conversation.objects.filter(public_id=public_id, owner_id=user.pk, purged_at__isnull=False).first()
    if row is None or limits_of(user).only not in (None, row.pk):
        return
    through = UnfinishedFork.objects.filter(pk=row.pk).values_list("through", flat=True).first()
    if through is not None:
        raise ForkUnfinished(row.next_seq, through + 1)


def within_limits(user: Visitor, conversation: ConversationRef) -> ConversationRef:
    """Return the user's conversation; raise ConversationNotFound if the visitor may reach only another."""
    if limits_of(user).only not in (None, conversation.pk):
        raise ConversationNotFound("Conversation not found.")
    return conversation


def pk_of(user: Visitor) -> int:
    """Return the key of an authenticated user. Raise ConversationNotFound for an anonymous one."""
    if user.pk is None:
        raise ConversationNotFound("Conversation not found.")
    return int(user.pk)


class ConversationValidator:
    """Decides who may join, and creates what is joined: a seam, chosen by CONVSERVER_VALIDATOR."""

    def validate(
        self, user: Visitor, conversation_id: str, *, version: Version = Version.V0
    ) -> tuple[ConversationRef, bool]:
        """Return the conversation to join, and whether this join created it.

        An existing row is never changed. Raise ConversationNotFound if it is deleted or another user's,
        QuotaExceeded if the user has made too many.
        """
        public_id = normal_id(conversation_id)
        row, is_new = Conversation.objects.with_public_ids([public_id]).first(), False
        if row is None:
            if not limits_of(user).may_create:
                _found(None)
            row, is_new = self._made(user, public_id, version)
        if row.owner_id != user.pk or row.deleted_at is not None:
            _tell_of_fork(user, public_id)
            _tell_owner(user, row)
            _found(None)
        return within_limits(user, row.ref), is_new

    def _made(self, user: Visitor, public_id: str, version: Version) -> tuple[Conversation, bool]:
        quotas.admit_conversation(pk_of(user))
        with transaction.atomic():
            row, is_new = Conversation.objects.get_or_create(
                public_id=public_id, defaults={"owner_id": pk_of(user), "version": version}
            )
            if is_new:
                domain_events.record(row.pk, domain_events.DomainEvent.CREATED)
                log_on_commit("Conversation created", **ids_of(row.ref), version=row.version)
        return row, is_new


def validator() -> ConversationValidator:
    """Return the validator that the settings name."""
    return cast(ConversationValidator, import_string(settings.CONVERSATION_VALIDATOR)())
