"""Events that are reported from elsewhere: again and again, in any order, and stored once (R12)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import transaction

from conversations.events import NewEvent
from conversations.exceptions import ConversationNotFound
from conversations.locks import lock
from conversations.models import Conversation, ConversationRef
from conversations.store import store

logger = logging.getLogger(__name__)


@transaction.atomic
def store_once(conversation: ConversationRef, events: Sequence[NewEvent]) -> None:
    """Append those that are not stored yet, all or none; under one id the first that came stays.

    Raise ConversationNotFound or ConversationBusy.
    """
    # What is stored cannot change between the look at it and the append.
    if lock(Conversation.objects.standing(), conversation) is None:
        raise ConversationNotFound("There is no such conversation.")
    first = {event.event_id: event for event in reversed(events)}
    stored = store().read_some(conversation, event_ids=list(first))
    for event in stored:
        if first.pop(event["id"]).payload != event["payload"]:
            logger.warning(
                "Conversation %s: event %r was reported again with other content; the first stays.",
                conversation.public_id,
                event["id"],
            )
    new = [event for event in events if first.get(event.event_id) is event]
    if new:
        store().append(conversation, new)
