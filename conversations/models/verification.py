"""Verifications of the store: their runs, and the damage that they found."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.utils import timezone

from conversations.models.conversations import Conversation


class DamageKind(models.TextChoices):
    MISSING = "missing", "event missing"
    DOUBLED_SEQ = "doubled_seq", "two events at one place"
    DOUBLED_ID = "doubled_id", "two events with one id"
    CHANGED = "changed", "event changed"
    SIZE = "size", "wrong size"
    COUNTER = "counter", "wrong counter"
    HEAD = "head", "wrong end of the log"
    UNPAIRED_CALL = "unpaired_call", "call without a result"
    CAUSE = "cause", "answer to nothing"
    COLUMN = "column", "column unlike the payload"
    REWRITTEN = "rewritten", "history rewritten"
    FACTS = "facts", "facts changed"
    GONE = "gone", "conversation gone"
    ORPHAN = "orphan", "event without a conversation"
    LEASE = "lease", "wrong lease"
    GUARD = "guard", "guard missing"
    SEARCH = "search", "wrong entry of the search index"
    TITLE = "title", "wrong entry of the index of titles"


# Damage of a log: its pages show a warning. The other kinds are about leases, guards and indexes.
SHOWN_TO_READERS = frozenset(
    {
        DamageKind.MISSING,
        DamageKind.DOUBLED_SEQ,
        DamageKind.DOUBLED_ID,
        DamageKind.CHANGED,
        DamageKind.SIZE,
        DamageKind.COUNTER,
        DamageKind.HEAD,
        DamageKind.UNPAIRED_CALL,
        DamageKind.CAUSE,
        DamageKind.COLUMN,
        DamageKind.REWRITTEN,
        DamageKind.FACTS,
    }
)


class Occasion(models.TextChoices):
    START = "start", "start of the server"
    NIGHT = "night", "every night"
    COMMAND = "command", "command"


class Outcome(models.TextChoices):
    RUNNING = "", "not finished"
    WHOLE = "whole", "whole"
    DAMAGED = "damaged", "damaged"
    FAILED = "failed", "could not run"


class VerificationRunQuerySet(models.QuerySet["VerificationRun"]):
    def clean(self) -> Self:
        """Return those that found nothing, the newest first."""
        return self.filter(outcome=Outcome.WHOLE).order_by("-pk")


class VerificationRun(models.Model):
    """One verification: what it read, how far it has come, and what it found."""

    occasion = models.CharField(max_length=10, choices=Occasion)
    covers = models.TextField()  # what it reads, in words
    started_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)  # when it last said how far it had come
    finished_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome, default=Outcome.RUNNING, blank=True)
    conversations = models.BigIntegerField(default=0)
    events = models.BigIntegerField(default=0)  # how many were read so far
    # About how many conversations it will read; 0 if that is not known.
    expected = models.BigIntegerField(default=0)
    problems = models.BigIntegerField(default=0)
    newest_event = models.BigIntegerField(default=0)  # the key of the newest event when it began
    detail = models.TextField(default="", blank=True)  # why it could not run
    host = models.TextField()  # together with `pid` the process that ran it
    pid = models.BigIntegerField()

    objects = models.Manager.from_queryset(VerificationRunQuerySet)()

    class Meta:
        verbose_name = "verification"

    def __str__(self) -> str:
        return f"verification {self.pk}"


class VerificationFinding(models.Model):
    """Damage that a verification found and none since has found mended."""

    run = models.ForeignKey(VerificationRun, models.SET_NULL, null=True, related_name="findings")
    # None for what is of no conversation that exists.
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, null=True, related_name="verification_findings"
    )
    seq = models.BigIntegerField(null=True)  # where in the log; None for the whole of it
    problem = models.CharField(max_length=20, choices=DamageKind)
    detail = models.TextField()
    found_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "damaged place"
        indexes: ClassVar = [models.Index(fields=["problem"], name="finding_problem")]

    def __str__(self) -> str:
        return f"{self.get_problem_display()} of conversation {self.conversation_id}"
