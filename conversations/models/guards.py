"""What the triggers need: purges that are allowed, repairs, and probes of writing."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from conversations.models.conversations import Conversation


class GuardRepair(models.Model):
    """Guards that were missing without a pending migration, and were restored."""

    guards = models.TextField()  # their names, separated by commas
    host = models.TextField()  # together with `pid` the process that restored them
    pid = models.BigIntegerField()
    repaired_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"repair of {self.guards}"


class WriteProbe(models.Model):
    """Always empty: the health probe inserts a row here and rolls it back."""

    filler = models.TextField()

    def __str__(self) -> str:
        return "write that is taken back"


class PurgeQuerySet(models.QuerySet["Purge"]):
    def unfinished(self) -> Self:
        """Return those that the server has begun and not finished, the oldest first."""
        return self.filter(finished_at__isnull=True, conversation__purged_at__isnull=False).order_by("pk")

    def finished_since(self, moment: datetime) -> Self:
        return self.filter(finished_at__gte=moment)

    def unerased(self) -> Self:
        """Return the finished ones whose rows may still leave bytes in the database's files."""
        return self.filter(finished_at__isnull=False, erased_at__isnull=True)

    def locked(self) -> Self:
        """Return the rows, locked until the transaction ends (on SQLite the whole database already is)."""
        return self.select_for_update(of=("self",), no_key=True)


class Purge(models.Model):
    """A decision to remove a deleted conversation for good, its progress, and the record that stays of it.

    While it runs, the guards let the conversation's events go.
    """

    conversation = models.ForeignKey(Conversation, models.PROTECT, related_name="purges")
    requested_by = models.TextField()  # a user's name, or which part of the server
    reason = models.TextField()
    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)
    # When the search index was rewritten and the database's files were cleaned after it.
    erased_at = models.DateTimeField(null=True, blank=True)
    through = models.BigIntegerField(default=-1, db_default=-1)  # events up to this seq are removed
    events = models.BigIntegerField(default=0, db_default=0)  # how many events it has removed
    # Bytes of the payloads and of the attachments that it has removed.
    bytes = models.BigIntegerField(default=0, db_default=0)
    # The digest of the last event, which stands for the whole chain.
    last_digest = models.CharField(max_length=64, default="", db_default="", blank=True)

    objects = models.Manager.from_queryset(PurgeQuerySet)()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["id"], name="purge_unfinished", condition=Q(finished_at__isnull=True)),
            models.Index(fields=["id"], name="purge_unerased", condition=Q(erased_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"purge of {self.conversation_id}"
