"""Writing to a log: events at its end, within the quotas, and the hint to its readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db import transaction

from conversations import live
from conversations.events import Appended, ConversationRef, NewEvent
from conversations.exceptions import ConversationError, QuotaExceeded
from conversations.log import reads
from conversations.log.append import AppendOutcome, AppendRequest
from conversations.log.commits import committed, masked_and_committed
from conversations.storage import quotas


def append(
    conversation: ConversationRef,
    events: Sequence[NewEvent],
    *,
    epoch: int | None = None,
    also: Callable[[Sequence[Appended]], None] | None = None,
) -> list[Appended]:
    """Add events at the end of the log, all or none, and return the place of each.

    Repeating an event with the same bytes returns its first place and adds nothing. `epoch` is that of
    the writing loop. `also` runs in the same transaction after the events are stored. Return after the
    commit; inside another transaction, before it. Raise OutcomeUnknown if the events may be stored. After any
    other error, none is stored. Raise EventConflict, Fenced, ConversationNotFound or ConversationBusy.
    """
    try:
        quotas.admit_events(conversation.owner_id, events)
    except QuotaExceeded as error:
        if not error.is_about_room or not reads.has_events(conversation, events):
            raise
    request = AppendRequest(conversation=conversation, events=events, epoch=epoch, also=also)
    (outcome,) = masked_and_committed(request)
    if isinstance(outcome, ConversationError):
        raise outcome
    if envelopes := outcome.envelopes:
        transaction.on_commit(lambda: live.announce_appended(conversation, envelopes), robust=True)
    return outcome.appended


def append_many(
    requests: Sequence[AppendRequest], *, wait: bool = False
) -> list[AppendOutcome | ConversationError]:
    """Store independent requests together and return each outcome in its place; nothing is announced.

    Without `wait`, ConversationBusy means that another transaction holds the lock: append it alone.
    Raise OutcomeUnknown if they may be stored. After any other error, none is stored.
    """
    return committed(requests, wait=wait)
