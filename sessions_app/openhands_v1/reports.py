"""Events that are reported from elsewhere, repeatedly and in any order, and stored once (R12)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import transaction

from conversations.events import NewEvent
from conversations.exceptions import ConversationNotFound
from conversations.log import reads, writes
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef
from conversations.redaction import masking
from conversations.store import importing

logger = logging.getLogger(__name__)


def store_once(conversation: ConversationRef, events: Sequence[NewEvent]) -> None:
    """Append those that are not stored yet, all or none; the first event under an id stays.

    Raise ConversationNotFound or ConversationBusy.
    """
    _tell_of_other_content(conversation, events)
    with transaction.atomic():
        # Stored events cannot change between this query and the append. Under the lock no payload is read,
        # because the stored ones may be many and long.
        if lock(Conversation.objects.active(), conversation) is None:
            raise ConversationNotFound("Conversation not found.")
        if new := importing.missing(conversation, events):
            writes.append(conversation, new)


def _tell_of_other_content(conversation: ConversationRef, events: Sequence[NewEvent]) -> None:
    """Log which events are stored with other content, as far as one page of those can be read."""
    first = {event.event_id: event.payload for event in reversed(events)}  # the first of an id wins
    for stored in reads.read_portion(conversation, event_ids=list(first)).events:
        sent = first[stored["id"]]
        # The stored text has masks where the report still has the secrets.
        if stored["payload"] != sent and not masking.may_hide(stored["payload"], sent):
            logger.warning(
                "Conversation %s: event %r was reported again with other content; the first stays.",
                conversation.public_id,
                stored["id"],
            )
