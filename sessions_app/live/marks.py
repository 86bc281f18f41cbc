"""A user's own marks on conversations: seen, pinned, archived."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from conversations import live
from conversations.models import Conversation, ConversationQuerySet, ConversationRef, Event
from sessions_app.live.status import listed
from sessions_app.models import Mark, MarkQuerySet

PINNED_MAX = 50
"""At most this many pinned conversations are on top of a list; older pins follow."""


def mark_seen(user_pk: int, conversation: ConversationRef, through: int) -> None:
    """Record how far the user has seen: never backwards, and never beyond the end of the log."""
    (before,) = listed(Conversation.objects.with_pks([conversation.pk]), user_pk).values()
    through = min(through, before["last_seq"])
    if through <= before["seen_through"]:
        return
    seen_at = Event.objects.of(conversation).with_seqs([through]).values_list("received_at", flat=True)
    with transaction.atomic():
        if before["unread"]:  # otherwise lists show nothing new
            _touch(conversation)
        mark = _mark(user_pk, conversation)
        Mark.objects.filter(pk=mark.pk, through__lt=through).update(
            through=through, through_at=seen_at.first()
        )
        _announce(user_pk, conversation)


def mark_all_seen(user_pk: int, conversation: ConversationRef) -> None:
    """Record that the user has seen everything, in the transaction that has added to the log."""
    rows = Event.objects.of(conversation).order_by("-seq").values_list("seq", "received_at")
    for through, at in rows[:1]:
        mark = Mark(user_id=user_pk, conversation_id=conversation.pk, through=through, through_at=at)
        Mark.objects.bulk_create(
            [mark],
            update_conflicts=True,
            unique_fields=["user", "conversation"],
            update_fields=["through", "through_at"],
        )
        _announce(user_pk, conversation)


def seen_through(user_pk: int, conversation: ConversationRef) -> int:
    """Return how far the user has seen, -1 if not at all."""
    through = Mark.objects.of(user_pk, conversation).values_list("through", flat=True).first()
    return -1 if through is None else through


def mark(
    user_pk: int, conversation: ConversationRef, *, pinned: bool | None = None, archived: bool | None = None
) -> None:
    """Pin or unpin the conversation in the user's list, archive it or not; None leaves a mark unchanged.

    Marking twice keeps the time of the first.
    """
    now = timezone.now()
    with transaction.atomic():
        _touch(conversation)
        row = _mark(user_pk, conversation)
        _set(row, "pinned_at", pinned, now)
        _set(row, "archived_at", archived, now)
        _announce(user_pk, conversation)


def put_away(rows: ConversationQuerySet, user_pk: int, *, archived: bool) -> ConversationQuerySet:
    """Return the rows that the user has archived, or the others."""
    return _with(rows, Mark.objects.of_user(user_pk).archived(), marked=archived)


def kept_on_top(rows: ConversationQuerySet, user_pk: int, *, pinned: bool) -> ConversationQuerySet:
    """Return the rows that the user has pinned, or the others."""
    return _with(rows, Mark.objects.of_user(user_pk).pinned().order_by(), marked=pinned)


def _with(rows: ConversationQuerySet, found: MarkQuerySet, *, marked: bool) -> ConversationQuerySet:
    if marked:
        return rows.filter(pk__in=found.values("conversation"))
    return rows.filter(~Exists(found.filter(conversation=OuterRef("pk"))))


def _mark(user_pk: int, conversation: ConversationRef) -> Mark:
    return Mark.objects.get_or_create(user_id=user_pk, conversation_id=conversation.pk)[0]


def _set(row: Mark, column: str, wanted: bool | None, now: datetime) -> None:
    rows = Mark.objects.filter(pk=row.pk)
    if wanted:
        rows.filter(**{f"{column}__isnull": True}).update(**{column: now})
    elif wanted is not None:
        rows.update(**{column: None})


def _touch(conversation: ConversationRef) -> None:
    # Reconnecting lists find the change by this time. Everywhere the conversation is locked before its
    # marks.
    Conversation.objects.with_pks([conversation.pk]).update(listed_at=timezone.now())


def _announce(user_pk: int, conversation: ConversationRef) -> None:
    transaction.on_commit(lambda: live.announce_listed_to(user_pk, conversation), robust=True)
