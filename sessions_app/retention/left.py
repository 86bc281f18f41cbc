"""The purge of temporary conversations that their users have left, or whose day is over."""

from __future__ import annotations

from django.utils import timezone

from conversations.models import Conversation
from conversations.store import purging, temporary
from sessions_app.models import Connection
from sessions_app.retention.failures import RetentionFailures


def begin_left(by: str, failures: RetentionFailures, *, most: int) -> int:
    """Begin at most `most` purges that are due, and return how many; what is open has its whole day."""
    now = timezone.now()
    begun = 0
    for row in temporary.due(now)[:most]:
        with failures.noted("conversation", row.public_id):
            if now < temporary.end_of(row.created_at) and _is_open(row):
                temporary.come_back(row.ref)
                continue
            purge = purging.begin(row.ref, among=temporary.due(now), requested_by=by, reason="temporary")
            begun += purge is not None
    return begun


def _is_open(row: Conversation) -> bool:
    # A user who repeats a message in a branch means one conversation.
    family = temporary.family(row.ref).active()
    return Connection.objects.present().filter(conversation__in=family).exists()
