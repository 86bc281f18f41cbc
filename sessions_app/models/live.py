"""Open connections, and each user's marks and drafts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import ClassVar, Self
from uuid import uuid4

from django.conf import settings
from django.db import models
from django.db.models import OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from conversations.models import Conversation, ConversationRef
from sessions_app.shared_clock import STEP_S, ahead, was_within

PRESENCE_S = 60
"""A connection that was not seen for this long counts as closed."""


class ConnectionQuerySet(models.QuerySet["Connection"]):
    def present(self) -> Self:
        """Return the connections that were seen lately."""
        return self.filter(was_within("last_seen_at", PRESENCE_S))

    def expired(self) -> Self:
        """Return those that a killed process left."""
        # A moment in the future is one of a clock that was put back.
        is_late = Q(last_seen_at__lte=ahead(-PRESENCE_S)) | Q(last_seen_at__gt=ahead(STEP_S))
        return self.filter(is_late)

    def with_presence(self) -> Self:
        """Add `is_present`."""
        return self.annotate(is_present=Q(was_within("last_seen_at", PRESENCE_S)))

    def count_of(self, conversation_pk: OuterRef) -> Coalesce:
        """Return how many there are of a conversation, for a query about conversations."""
        rows = self.filter(conversation_id=conversation_pk).order_by().values("conversation_id")
        return Coalesce(Subquery(rows.annotate(count=models.Count("pk")).values("count")), 0)

    def with_ids(self, ids: Iterable[str]) -> Self:
        """Return the connections with these ids."""
        return self.filter(pk__in=list(ids))


def new_connection_id() -> str:
    """Return an id for a connection."""
    return uuid4().hex


class Connection(models.Model):
    """One live socket: presence that expires by itself."""

    id = models.CharField(max_length=64, primary_key=True, default=new_connection_id)
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="connections")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    door = models.CharField(max_length=20)
    since = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now, db_index=True)
    is_present: bool

    objects = models.Manager.from_queryset(ConnectionQuerySet)()

    def __str__(self) -> str:
        return f"{self.door} connection {self.id}"


class MarkQuerySet(models.QuerySet["Mark"]):
    def of(self, user_pk: int, conversation: ConversationRef) -> Self:
        """Return the mark of one user on one conversation, if there is one."""
        return self.filter(user_id=user_pk, conversation_id=conversation.pk)

    def of_user(self, user_pk: int) -> Self:
        """Return all of a user's marks."""
        return self.filter(user_id=user_pk)

    def pinned(self) -> Self:
        """Return the pinned ones, the newest first."""
        return self.filter(pinned_at__isnull=False).order_by("-pinned_at", "-pk")

    def archived(self) -> Self:
        """Return the archived ones."""
        return self.filter(archived_at__isnull=False)


class Mark(models.Model):
    """One user's marks on a conversation: how far it was seen, pinned, archived."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="marks")
    through = models.BigIntegerField(default=-1)
    """The seq of the last event that the user has seen, -1 for none."""
    through_at = models.DateTimeField(null=True, blank=True)
    """When that event was stored; null while the user has seen nothing."""
    pinned_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)

    objects = models.Manager.from_queryset(MarkQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "conversation"], name="mark_once"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["user", "-pinned_at"], name="mark_pinned", condition=Q(pinned_at__isnull=False)
            ),
            models.Index(
                fields=["user", "conversation"],
                name="mark_archived",
                condition=Q(archived_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"mark of user {self.user_id} on {self.conversation_id}"


class DraftQuerySet(models.QuerySet["Draft"]):
    def of(self, user_pk: int, conversation: ConversationRef | None) -> Self:
        """Return the draft of a user in a conversation, or of a new one, if it exists."""
        pk = None if conversation is None else conversation.pk
        return self.filter(user_id=user_pk, **({"conversation_id": pk} if pk else {"conversation": None}))

    def written_from(self, user_pk: int, moment: datetime, pk: int) -> Self:
        """Return those of a user that were written after this place, in order."""
        further = Q(updated_at__gt=moment) | Q(updated_at=moment, pk__gt=pk)
        rows = self.filter(further, user_id=user_pk, updated_at__gte=moment)  # redundant, for the index
        return rows.order_by("updated_at", "pk")

    def changed_from(self, user_pk: int, number: int, pk: int, *, end: int) -> Self:
        """Return those of a user that were written after this place, in order of commits, below `end`."""
        further = Q(written_in__gt=number) | Q(written_in=number, pk__gt=pk)
        # `gte` is redundant, for the index.
        rows = self.filter(further, user_id=user_pk, written_in__gte=number, written_in__lt=end)
        return rows.order_by("written_in", "pk")


class Draft(models.Model):
    """A message that a user is writing: in a conversation, or the first one of a new conversation."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_index=False)
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="drafts", null=True, blank=True
    )
    text = models.TextField(default="", blank=True)
    images = models.JSONField(default=list, blank=True)
    """Their data URLs, in order."""
    files = models.JSONField(default=list, db_default=Value([], models.JSONField()), blank=True)
    """As a `message` has them, in order."""
    # A draft is only emptied, never removed: a number that begins anew would hide a conflict.
    version = models.BigIntegerField()
    """The number of writes."""
    updated_at = models.DateTimeField(default=timezone.now)
    # A time does not do: transactions may commit in another order than they began.
    written_in = models.BigIntegerField(null=True, blank=True, editable=False)
    """The number of the last change (change_order); None if it is older than those."""
    size = models.BigIntegerField(null=True, blank=True, editable=False)
    """Bytes of the text, images and files; None if it was written before this was counted (`usage`)."""

    objects = models.Manager.from_queryset(DraftQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "conversation"], name="draft_once"),
            # The constraint above lets a user have any number of rows without a conversation.
            models.UniqueConstraint(
                fields=["user"], condition=Q(conversation=None), name="draft_of_a_new_one_once"
            ),
            models.CheckConstraint(condition=Q(version__gte=1), name="draft_version"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["user", "updated_at"], name="draft_written"),
            models.Index(
                fields=["user", "written_in"], name="draft_changed", condition=Q(written_in__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"draft {self.version} of user {self.user_id} in {self.conversation_id}"


def size_of_draft(text: str, images: Iterable[str], files: Iterable[Mapping[str, object]] = ()) -> int:
    """Return the bytes of a draft; its images are ASCII."""
    texts = [text, *(str(value) for file in files for value in file.values())]
    return sum(len(each.encode(errors="surrogatepass")) for each in texts) + sum(map(len, images))
