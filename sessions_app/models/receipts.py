"""When the agent saw what it was told."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.utils import timezone

from conversations.models import Conversation, ConversationRef


class InputReceiptQuerySet(models.QuerySet["InputReceipt"]):
    def of(self, conversation: ConversationRef) -> Self:
        """Return the receipts of one conversation, in the order of its messages."""
        return self.filter(conversation_id=conversation.pk).order_by("seq")

    def after(self, seq: int) -> Self:
        """Return those of later messages."""
        return self.filter(seq__gt=seq)

    def through(self, seq: int) -> Self:
        """Return those of messages up to this one."""
        return self.filter(seq__lte=seq)


class InputReceipt(models.Model):
    """That a turn has shown a message to the agent; without one the agent has not seen the message."""

    # The unique constraint begins with it.
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="input_receipts", db_index=False
    )
    seq = models.BigIntegerField()
    """The seq of the message."""
    seen_seq = models.BigIntegerField()
    """The newest event in the log at that moment: what follows it was said and done in knowledge of it."""
    turn_id = models.TextField()
    seen_at = models.DateTimeField(default=timezone.now)

    objects = models.Manager.from_queryset(InputReceiptQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "seq"], name="one_input_receipt"),
        ]

    def __str__(self) -> str:
        return f"receipt of message {self.seq}"
