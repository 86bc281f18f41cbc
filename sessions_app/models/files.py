"""Feedback, and files that users give to conversations."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from conversations.models import Conversation, ConversationRef, new_public_id


class Polarity(models.TextChoices):
    """A user's opinion of a conversation."""

    POSITIVE = "positive"
    NEGATIVE = "negative"


class Permissions(models.TextChoices):
    """The audience that a user chose for their feedback; it stays on this server either way."""

    PUBLIC = "public"
    PRIVATE = "private"


class FeedbackQuerySet(models.QuerySet["Feedback"]):
    def of(self, conversation: ConversationRef) -> Self:
        """Return those of one conversation."""
        return self.filter(conversation_id=conversation.pk)


class Feedback(models.Model):
    """A user's feedback on a conversation or on one answer, for the operators of this server."""

    feedback_id = models.CharField(max_length=32, unique=True, default=new_public_id)
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="feedback")
    polarity = models.CharField(max_length=10, choices=Polarity)
    permissions = models.CharField(max_length=10, choices=Permissions, default=Permissions.PRIVATE)
    version = models.TextField(default="", blank=True)
    """Of the client."""
    email = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    REASON_MAX_LENGTH: ClassVar = 2000
    # Of the answer; None is the whole conversation, as on the V0 wire, which may get any number of them.
    seq = models.BigIntegerField(null=True, blank=True)
    reason = models.TextField(default="", db_default="", blank=True)

    objects = models.Manager.from_queryset(FeedbackQuerySet)()

    class Meta:
        verbose_name_plural = "feedback"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["conversation", "seq"],
                condition=Q(seq__isnull=False),
                name="feedback_once_of_an_answer",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.polarity} feedback {self.feedback_id}"


ATTACHMENT_NAME_MAX_LENGTH = 200


class AttachmentQuerySet(models.QuerySet["Attachment"]):
    def of(self, conversation: ConversationRef) -> Self:
        """Return those of one conversation, the oldest first."""
        return self.filter(conversation_id=conversation.pk).order_by("pk")

    def content_of(self, name: str) -> bytes | None:
        """Return the bytes of the one with this name; None if there is none."""
        content = self.filter(name=name).values_list("content", flat=True).first()
        return None if content is None else bytes(content)


class Attachment(models.Model):
    """A file that the user added to the conversation, byte for byte."""

    # Without an index of its own, here and in other tables: a unique constraint begins with this column.
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="attachments", db_index=False)
    name = models.CharField(max_length=ATTACHMENT_NAME_MAX_LENGTH)
    size = models.BigIntegerField()
    """Bytes of the content."""
    # Megabytes: lists name their columns, and only `content_of` reads this one.
    content = models.BinaryField()
    is_said = models.BooleanField(default=False, db_default=False)
    """Whether it was attached to a message, which has its text for models."""
    created_at = models.DateTimeField(default=timezone.now)

    objects = models.Manager.from_queryset(AttachmentQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "name"], name="attachment_once"),
            models.CheckConstraint(condition=~Q(name=""), name="attachment_has_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class Workspace(models.Model):
    """The directory of a conversation's files, and how much is in it."""

    conversation = models.OneToOneField(
        Conversation, models.CASCADE, primary_key=True, related_name="workspace_files"
    )
    directory = models.CharField(max_length=32, unique=True, default=new_public_id)
    """Its name, which tells nothing: stores that share a place for directories may share ids, too."""
    users_directory = models.TextField(default="", db_default="")
    """The absolute path of a directory of the user's own, which is used instead; nothing of the server's."""
    bytes = models.BigIntegerField(default=0)
    files = models.BigIntegerField(default=0)
    """Files and directories."""
    charged = models.BigIntegerField(default=0)
    """The bytes that count as uploads of the owner: all but the copies of attachments."""
    cloned_at = models.DateTimeField(null=True)
    """When the repository of the conversation was cloned into it; null before."""
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.directory
