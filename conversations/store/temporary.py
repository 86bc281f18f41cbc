"""Temporary conversations: in no list, search or export of everything, purged when left or after a day.

A branch of a temporary conversation is temporary as well, and what is done to one is done to all that
share its beginning: a user who repeats a message goes from one to the next, and means one conversation.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import transaction
from django.db.models import Value
from django.db.models.functions import Least
from django.utils import timezone

from conversations import domain_events, live
from conversations.domain_events import DomainEvent
from conversations.exceptions import ConversationError
from conversations.log.locks import lock
from conversations.log.reads import STEP_EVENTS
from conversations.models import Conversation, ConversationQuerySet, ConversationRef, TitleChange
from conversations.search.fulltext import indexing
from conversations.server_log import ids_of, log_on_commit


class TemporaryConversation(ConversationError):
    """A temporary conversation has nothing that lists show."""

    code: ClassVar[str] = "temporary"


NO_LABELS = "A temporary conversation has no labels, because no list shows it. Keep it first."


def expiry(*, is_temporary: bool) -> datetime | None:
    """Return the column of a new conversation."""
    return end_of(timezone.now()) if is_temporary else None


def end_of(began: datetime) -> datetime:
    """Return when a conversation that began then is purged, whether or not anybody has left it."""
    # A browser may die, and a program says nothing.
    return began + timedelta(days=1)


def refuse_labels(rows: Iterable[Conversation]) -> None:
    """Raise TemporaryConversation if one of these is temporary: the lists of labels would show its own."""
    if any(row.expires_at is not None for row in rows):
        raise TemporaryConversation(NO_LABELS)


def leave(conversation: ConversationRef) -> None:
    """Note that the last page may have been left: it is purged soon, unless it is opened again."""
    # A page that is loaded again comes back within this time.
    soon = timezone.now() + timedelta(minutes=1)
    family(conversation).update(expires_at=Least("expires_at", Value(soon)))


def come_back(conversation: ConversationRef) -> None:
    """Note that it is open: it has its whole day, counted from its beginning."""
    for row in family(conversation):
        Conversation.objects.temporary().filter(pk=row.pk).update(expires_at=end_of(row.created_at))


def due(now: datetime) -> ConversationQuerySet:
    """Return the temporary conversations whose time is over, also those in the trash."""
    return Conversation.objects.temporary().filter(expires_at__lte=now)


def keep(conversation: ConversationRef) -> None:
    """Make it permanent, with its branches: lists, search and webhooks get them now, with the whole log.

    Nothing happens to one that is permanent. Raise ConversationBusy if it stays locked elsewhere.
    """
    kept = set[int]()
    # Again: a branch may have been made meanwhile.
    while rows := list(family(conversation).active().exclude(pk__in=kept)):
        kept.update(row.pk for row in rows)
        for row in rows:
            through = row.next_seq - 1
            # Before the row is locked, step by step: appends must not wait for words.
            for first in range(0, row.next_seq, STEP_EVENTS):
                indexing.take_up(row.ref, first=first, last=min(first + STEP_EVENTS - 1, through))
            _keep(row.ref, indexed_through=through)


@transaction.atomic
def _keep(conversation: ConversationRef, *, indexed_through: int) -> None:
    row = lock(Conversation.objects.active(), conversation)
    if row is None or row.expires_at is None:
        return
    # The rest under the lock: what is appended later finds the conversation permanent.
    indexing.take_up(conversation, first=indexed_through + 1, last=row.next_seq - 1)
    now = timezone.now()
    Conversation.objects.filter(pk=row.pk).update(expires_at=None, listed_at=now)
    if row.title is not None:
        TitleChange.objects.get_or_create(conversation_id=row.pk)
    # As of a new conversation: to lists and endpoints it is one.
    domain_events.record(row.pk, DomainEvent.CREATED)
    log_on_commit("Temporary conversation kept", **ids_of(conversation))
    transaction.on_commit(lambda: live.announce_listed(conversation), robust=True)


def family(conversation: ConversationRef) -> ConversationQuerySet:
    """Return the temporary conversations that share the beginning of this one, and itself if temporary.

    Who changes them by it changes none that was kept meanwhile.
    """
    # All of the owner are read: they are those of one day.
    rows = Conversation.objects.temporary().owned_by(conversation.owner_id)
    sources = dict(rows.values_list("pk", "forked_from_id"))
    found, news = set[int](), {conversation.pk}
    while news:
        found |= news
        beside = {pk for pk, source in sources.items() if source in news}
        beside |= {source for pk in news if (source := sources.get(pk)) is not None}
        news = beside - found
    return Conversation.objects.temporary().with_pks(found)
