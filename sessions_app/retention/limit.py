"""How long deleted conversations can be restored, and which of them are overdue.

A purge cannot be undone. So a new or shorter limit purges nothing at once: conversations that were
deleted before have the whole time from then on.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from conversations.models import Conversation, ConversationQuerySet
from sessions_app.models import DeletedLimit

# The key of the only row.
ONLY = 1


class KeptTime(NamedTuple):
    """How long deleted conversations can be restored."""

    days: int | None
    """None without a limit."""
    since: datetime
    """When this limit began: conversations that were deleted before have their time from then on."""

    def until(self, deleted_at: datetime | None) -> datetime | None:
        """Return until when a conversation that was deleted then can be restored; None without a limit."""
        if self.days is None or deleted_at is None:
            return None
        return max(deleted_at, self.since) + timedelta(days=self.days)


def kept_time(now: datetime | None = None) -> KeptTime:
    """Return how long deleted conversations can be restored here; one query."""
    return _now_in_force(DeletedLimit.objects.filter(pk=ONLY).first(), now or timezone.now())


def note(now: datetime | None = None) -> KeptTime:
    """Store the limit of the settings as the one in force, and return it."""
    moment = now or timezone.now()
    with transaction.atomic():
        noted = DeletedLimit.objects.select_for_update().filter(pk=ONLY).first()
        limit = _now_in_force(noted, moment)
        if noted is None or (noted.days, noted.since) != limit:
            DeletedLimit.objects.update_or_create(pk=ONLY, defaults=limit._asdict())
    return limit


def overdue(now: datetime | None = None) -> ConversationQuerySet:
    """Return the deleted conversations whose time is over, the longest deleted first."""
    moment = now or timezone.now()
    days, since = kept_time(moment)
    end = moment - timedelta(days=days or 0)
    if days is None or since >= end:
        return Conversation.objects.none()
    return Conversation.objects.deleted_before(end)


def _now_in_force(noted: DeletedLimit | None, now: datetime) -> KeptTime:
    days: int | None = settings.CONFIGURATION.deleted_days
    # A purge cannot be undone: what was deleted before a shorter limit has its whole time from now on.
    is_shorter = noted is not None and days is not None and (noted.days is None or days < noted.days)
    return KeptTime(days, now if noted is None or is_shorter else noted.since)
