"""The execution of purges: steps of one transaction each; any process may continue an unfinished purge."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import NamedTuple

from django.db import transaction
from django.utils import timezone

from conversations.engines.residues import Rest, rested
from conversations.models import Conversation, Purge
from conversations.server_log import ids_of, log_on_commit
from conversations.store import purging
from sessions_app.retention import places
from sessions_app.retention.failures import RetentionFailures


class Removed(NamedTuple):
    """How much a purge has removed."""

    events: int
    bytes: int


def step(purge_pk: int) -> bool:
    """Take the next step of a purge; return whether it has one more. It does nothing for a finished one.

    Several purgers of one purge alternate their steps.
    """
    with transaction.atomic():
        purge = Purge.objects.locked().select_related("conversation").filter(pk=purge_pk).first()
        if purge is None or purge.finished_at is not None:
            return False
        is_done = _take_step(purge)
        if is_done:
            purge.finished_at = timezone.now()
            _log(purge)
        purge.save(update_fields=["through", "events", "bytes", "finished_at"])
    if is_done:
        purging.forget_titles()
    return not is_done


def run(purge_pk: int, rest: Rest | None = None) -> Removed:
    """Take all steps of a purge, resting after each, and return the sum of what it has removed."""
    while rested(rest, partial(step, purge_pk)):
        pass
    return Removed(*Purge.objects.values_list("events", "bytes").get(pk=purge_pk))


def sweep_late(now: datetime | None = None, failures: RetentionFailures | None = None) -> int:
    """Remove what was written into purged conversations after their purge; return for how many."""
    failures = failures or RetentionFailures()
    recent = Purge.objects.finished_since((now or timezone.now()) - places.LATE)
    purged = recent.filter(conversation__purged_at__isnull=False).values("conversation_id")
    if not purged.exists():  # the usual case, in which nothing else has to be searched
        return 0
    found = places.written_late(purged)
    for row in Conversation.objects.with_pks(found):
        with failures.noted("conversation", row.public_id), transaction.atomic():
            while places.remove_some(row.ref) is not None:
                pass
            places.drop_deliveries(row.ref)
    return len(found)


def _take_step(purge: Purge) -> bool:
    """Remove the next part, and record it in the purge; return whether nothing is left."""
    step = purging.remove_events(purge)
    purge.events += step.events
    purge.bytes += step.bytes
    if not step.is_last:
        return False
    conversation = purge.conversation.ref
    # A step removes rows of one table only, so that each transaction stays short.
    removed = places.remove_some(conversation)
    if removed is not None:
        purge.bytes += removed
        return False
    purging.remove_beside_events(conversation.pk)
    places.change_the_rest(conversation)
    return True


def _log(purge: Purge) -> None:
    log_on_commit(
        "Conversation purged",
        **ids_of(purge.conversation.ref),
        by=purge.requested_by,
        events=purge.events,
        bytes=purge.bytes,
    )
