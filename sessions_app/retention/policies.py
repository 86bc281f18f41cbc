"""The conversations that a policy deletes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, Max, OuterRef, Q
from django.utils import timezone

from conversations.exceptions import ConversationBusy
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationQuerySet, ConversationRef
from conversations.server_log import ids_of, log_on_commit
from conversations.store import delete
from sessions_app.models import (
    SUSPENDED,
    ApiToken,
    ConversationKey,
    ExecutionStatus,
    Mark,
    RetentionPolicy,
)
from sessions_app.retention.failures import RetentionFailures

AT_WORK = (ExecutionStatus.RUNNING, *SUSPENDED)
# A query reads the rows of this many keys at most, however few of them match.
WINDOW = 5_000


def matched(policy: RetentionPolicy, now: datetime | None = None) -> ConversationQuerySet:
    """Return the conversations that a policy deletes: quiet long enough, and not spared."""
    moment = (now or timezone.now()) - timedelta(days=policy.older_than_days)
    rows = unspared(Conversation.objects.all(), moment)
    if policy.owner_id is not None:
        rows = rows.owned_by(policy.owner_id)
    return labelled(rows, policy.label) if policy.label else rows


def labelled(rows: ConversationQuerySet, label: str) -> ConversationQuerySet:
    """Return the rows with a label: `NAME`, or `NAME=VALUE`."""
    name, has_value, value = label.partition("=")
    return rows.labelled(name, value if has_value else None)


def unspared(rows: ConversationQuerySet, moment: datetime) -> ConversationQuerySet:
    """Return the active rows that are quiet since `moment` and that rules may delete.

    Quiet: no event was added, and nothing that a list shows has changed (title, tags, a restoration, an
    import). Spared: pinned by a user; opened by a valid token of its own; its key was used since `moment`;
    its agent plays, waits for its user or owes an answer.
    """
    here = OuterRef("pk")
    spared = [
        Exists(Mark.objects.filter(conversation_id=here, pinned_at__isnull=False)),
        Exists(ApiToken.objects.valid().filter(conversation_id=here)),
        Exists(ConversationKey.objects.filter(conversation_id=here, used_at__gte=moment)),
        Q(loop__execution_status__in=AT_WORK),
        Q(asked_through__gt=F("answered_through")),
    ]
    rows = rows.active().quiet_since(moment).filter(listed_at__lt=moment)
    for condition in spared:
        rows = rows.exclude(condition)
    return rows


def windows(rows: ConversationQuerySet) -> Iterator[ConversationQuerySet]:
    """Yield parts of rows by their keys, the oldest first, so that no query reads more than WINDOW rows."""
    last = Conversation.objects.aggregate(last=Max("pk"))["last"] or 0
    for first in range(0, last + 1, WINDOW):
        yield rows.filter(pk__gt=first, pk__lte=first + WINDOW).order_by("pk")


def apply(policy: RetentionPolicy, *, limit: int, failures: RetentionFailures | None = None) -> int:
    """Delete at most `limit` conversations that a policy matches; return how many."""
    failures = failures or RetentionFailures()
    count = 0
    for window in windows(matched(policy)):
        for row in window[: limit - count]:
            with failures.noted("conversation", row.public_id):
                count += _delete(row.ref, policy)
        if count >= limit:
            break
    return count


def _delete(conversation: ConversationRef, policy: RetentionPolicy) -> bool:
    """Delete a conversation if it still matches under its lock; return whether it did."""
    try:
        with transaction.atomic():
            if lock(Conversation.objects.active(), conversation) is None:
                return False
            # Again under the lock: it may have been used since the query.
            if not matched(policy).filter(pk=conversation.pk).exists():
                return False
            delete(conversation)
            log_on_commit("Deleted by a retention policy", **ids_of(conversation), policy=policy.name)
    except ConversationBusy:  # it is in use
        return False
    return True
