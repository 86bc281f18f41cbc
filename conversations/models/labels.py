"""Labels: the tags of conversations as an index, which triggers keep in step (`engines/label_rows`)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from conversations.engines.label_rows import LABEL_MAX_CHARS, NAME_MAX_CHARS


class LabelQuerySet(models.QuerySet["Label"]):
    def of_owner(self, owner_id: int, *, deleted: bool = False) -> Self:
        """Return those of the conversations of an owner: of the active ones, or of the deleted ones."""
        # `IN`, because SQLite uses no index for `NOT is_deleted`, which Django would write for an equal sign.
        return self.filter(owner_id=owner_id, is_deleted__in=[deleted])

    def saying(self, text: str) -> Self:
        """Return those of one text: `name`, or `name:value`."""
        return self.filter(text=indexed(text))

    def leading_to(self, rows: QuerySet[Any]) -> Self:
        """Return those of these conversations, each looked up by its key, in the order of a list."""
        found = Exists(rows.order_by().filter(pk=OuterRef("conversation_id")))
        return self.filter(found).order_by("-created_at", "-conversation_id")

    def older_than(self, created_at: datetime, conversation_pk: int) -> Self:
        """Return those whose conversations come after this place when the newest is first."""
        further = Q(created_at__lt=created_at) | Q(created_at=created_at, conversation_id__lt=conversation_pk)
        return self.filter(further, created_at__lte=created_at)  # redundant, for the index

    def names(self) -> Self:
        """Return those that are the name of a tag alone."""
        return self.filter(text=F("name"))

    def values_of(self, name: str) -> Self:
        """Return those that are this name with a value."""
        return self.filter(name=name[:NAME_MAX_CHARS]).exclude(text=F("name"))


class Label(models.Model):
    """One label of one conversation. Only triggers write these rows."""

    conversation = models.ForeignKey(
        "conversations.Conversation", models.CASCADE, related_name="labels", db_index=False
    )
    # Copied from the conversation, as are its time and whether it is deleted: one index answers a list.
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_index=False)
    name = models.TextField()
    text = models.TextField()  # `name`, or `name:value`
    created_at = models.DateTimeField()
    is_deleted = models.BooleanField()

    objects = models.Manager.from_queryset(LabelQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "text"], name="label_once"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["owner", "text", "is_deleted", "-created_at", "-conversation"], name="label_list"
            ),
            models.Index(fields=["owner", "name", "text"], name="label_names"),
            models.Index(
                # With the name, of which SQLite does not know that the condition says it all.
                fields=["owner", "is_deleted", "text", "name"],
                condition=Q(text=F("name")),
                name="label_name_alone",
            ),
        ]

    def __str__(self) -> str:
        return self.text


def indexed(text: str) -> str:
    return text[:LABEL_MAX_CHARS]


def with_labels(texts: Iterable[str]) -> Q:
    """Return the condition that a conversation has all of these labels."""
    wanted = Q()
    for text in dict.fromkeys(texts):
        wanted &= Q(Exists(Label.objects.filter(conversation_id=OuterRef("pk"), text=indexed(text))))
    return wanted
