"""What the triggers need: purges that are allowed, repairs, and probes of writing."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from conversations.models.conversations import Conversation


class GuardRepair(models.Model):
    """Guards that were missing without a pending migration, and were restored."""

    guards = models.TextField()
    """Their names, separated by commas."""
    host = models.TextField()
    """Together with `pid` the process that restored them."""
    pid = models.BigIntegerField()
    repaired_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"repair of {self.guards}"


class WriteProbe(models.Model):
    """Always empty: the health probe inserts a row here and rolls it back."""

    filler = models.TextField()

    def __str__(self) -> str:
        return "write that is taken back"


class Purge(models.Model):
    """A decision to remove the events of a deleted conversation; while it runs, the guards allow that."""

    conversation = models.ForeignKey(Conversation, models.PROTECT, related_name="purges")
    requested_by = models.TextField()
    reason = models.TextField()
    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"purge of {self.conversation_id}"
