"""Checkpoints of workspaces: which commit of a shadow repository has the files of which event."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.utils import timezone

from conversations.models import Conversation, ConversationRef, new_public_id


class CheckpointCause(models.TextChoices):
    """Why a checkpoint was made."""

    BEFORE_TURN = "before_turn", "before a turn changed files"
    TURN = "turn", "after a turn that used files"
    BEFORE_RESTORE = "before_restore", "before files were restored"
    RESTORED = "restored", "after files were restored"
    BRANCH = "branch", "the files that a branch began with"


class FilesCheckpointQuerySet(models.QuerySet["FilesCheckpoint"]):
    def of(self, conversation: ConversationRef) -> Self:
        """Return those of one conversation."""
        return self.filter(conversation_id=conversation.pk)

    def newest_first(self) -> Self:
        """Return them in the order of their making, the newest first."""
        return self.order_by("-pk")

    def through(self, seq: int) -> Self:
        """Return those of events up to and including this one."""
        return self.filter(seq__lte=seq)


class FilesCheckpoint(models.Model):
    """The files of a conversation at an event; an event may have several."""

    checkpoint_id = models.CharField(max_length=32, unique=True, default=new_public_id)
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="files_checkpoints", db_index=False
    )
    seq = models.BigIntegerField()
    """The last event when the files were so; -1 if there was none."""
    cause = models.CharField(max_length=20, choices=CheckpointCause)
    commit = models.CharField(max_length=64)
    changed = models.BigIntegerField(default=0)
    """How many files differ from the checkpoint before."""
    created_at = models.DateTimeField(default=timezone.now)

    objects = models.Manager.from_queryset(FilesCheckpointQuerySet)()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["conversation", "seq"], name="files_checkpoint_at")]

    def __str__(self) -> str:
        return f"{self.cause} at {self.seq} of {self.conversation_id}"

    def as_json(self) -> dict[str, object]:
        """Return it as the native door has it."""
        return {
            "id": self.checkpoint_id,
            "seq": self.seq,
            "cause": self.cause,
            "changed": self.changed,
            "created_at": self.created_at.isoformat(),
        }


class FilesCopy(models.Model):
    """A branch whose files are still to be copied from a checkpoint of its source."""

    conversation = models.OneToOneField(
        Conversation, models.CASCADE, primary_key=True, related_name="files_copy"
    )
    source = models.ForeignKey(Conversation, models.CASCADE, related_name="+")
    commit = models.CharField(max_length=64)
    seq = models.BigIntegerField()
    tries = models.IntegerField(default=0)
    tried_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"files of {self.source_id} for {self.conversation_id}"
