"""Imports of uploaded files: their pieces, how far they are, and what became of each conversation."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from django.utils import timezone

from conversations.models import new_public_id
from sessions_app.models.files import ATTACHMENT_NAME_MAX_LENGTH
from sessions_app.processes import Process, is_gone

RUNS_MAX = 2
"""At most this many imports run at a time, over all processes."""
LEASE_S = 30
"""After this long without a sign of its process another one may take an import over."""


class ImportState(models.TextChoices):
    """How far an import is."""

    UPLOADING = "uploading"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (ImportState.UPLOADING, ImportState.WAITING, ImportState.RUNNING)
"""The states of an import that has not ended."""


class ImportRunQuerySet(models.QuerySet["ImportRun"]):
    def of(self, user_id: int) -> Self:
        """Return those of one user."""
        return self.filter(user_id=user_id)

    def seen_by(self, user_id: int) -> Self:
        """Return those that a user may see: their own, and those that they upload for another user."""
        return self.filter(Q(user_id=user_id) | Q(by_id=user_id))

    def open(self) -> Self:
        """Return those that have not ended."""
        return self.filter(state__in=OPEN)

    def ended(self) -> Self:
        """Return those that have ended, however."""
        return self.exclude(state__in=OPEN)

    def running(self) -> Self:
        """Return those that a process has taken, whether or not it is still there."""
        return self.filter(state=ImportState.RUNNING)

    def next(self) -> Self:
        """Return those that may begin, the oldest first: one of each active user runs at a time."""
        running = ImportRun.objects.running().filter(user_id=OuterRef("user_id"))
        waiting = self.filter(state=ImportState.WAITING, user__is_active=True)
        return waiting.filter(~Exists(running)).order_by("pk")

    def abandoned(self, after: timedelta) -> Self:
        """Return uploads of which nothing has arrived for this long."""
        return self.filter(state=ImportState.UPLOADING, touched_at__lt=Now() - after)

    def held(self, pk: int, attempt: int) -> Self:
        """Return the one that a process has taken, as long as no other one has taken it over."""
        return self.filter(pk=pk, attempt=attempt, state=ImportState.RUNNING)


class ImportRun(models.Model):
    """One file that a user uploads, and its import."""

    public_id = models.CharField(max_length=32, unique=True, default=new_public_id)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    """The owner of the conversations."""
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", verbose_name="by"
    )
    """The member of staff who uploads the file for its owner; None for the owner."""
    # The length of an attachment's name: `safe_name` shortens both.
    file_name = models.CharField(max_length=ATTACHMENT_NAME_MAX_LENGTH)
    size = models.BigIntegerField()
    """Of the whole file, in bytes."""
    received = models.BigIntegerField(default=0)
    """How many bytes of it are here, from its beginning."""
    format = models.CharField(max_length=40, default="", blank=True)
    """Empty until it is guessed."""
    labels = models.JSONField(default=list, blank=True)
    zone = models.CharField(max_length=64, default="UTC")
    state = models.CharField(max_length=10, choices=ImportState, default=ImportState.UPLOADING)
    is_cancelled = models.BooleanField(default=False)
    """Whether it is to end before the next conversation."""
    records = models.BigIntegerField(default=0)
    """How many were read so far."""
    conversations = models.BigIntegerField(default=0)
    """How many were looked at so far, with those that failed."""
    failed = models.BigIntegerField(default=0)
    totals = models.JSONField(default=dict, blank=True)
    """The sums of the report, as `Totals.as_json` has them."""
    problem = models.TextField(default="", blank=True)
    """Why it has failed, as a sentence."""
    created_at = models.DateTimeField(default=timezone.now)
    # By the clock of the database, with which all processes compare it.
    touched_at = models.DateTimeField(db_default=Now())
    """When a piece arrived last, or the process that runs it said last that it is there."""
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    # Unique, so that processes that begin imports at the same time keep RUNS_MAX together.
    slot = models.SmallIntegerField(null=True, blank=True, unique=True)
    """Which of the RUNS_MAX places it has while it runs."""
    attempt = models.BigIntegerField(default=0)
    """How often a process has taken it."""
    crashes = models.SmallIntegerField(default=0, db_default=0)
    """How often in a row it was taken over from a process that had ended or said nothing any more."""
    crashed_at = models.BigIntegerField(default=0, db_default=0)
    """How many conversations it had looked at when that happened first."""
    host = models.TextField(default="", blank=True)
    pid = models.BigIntegerField(default=0)
    process_started = models.FloatField(default=0.0)

    objects = models.Manager.from_queryset(ImportRunQuerySet)()

    class Meta:
        verbose_name = "import"
        constraints: ClassVar = [
            # `next` only looks: two processes may find two imports of one user.
            models.UniqueConstraint(
                fields=["user"], condition=Q(state="running"), name="import_runs_once_per_user"
            ),
        ]
        indexes: ClassVar = [
            # Processes look for open imports again and again; ended ones stay for their reports.
            models.Index(
                fields=["state", "id"],
                condition=Q(state__in=["uploading", "waiting", "running"]),
                name="import_open",
            ),
        ]

    def __str__(self) -> str:
        return f"import of {self.file_name}"

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def is_left(self) -> bool:
        """Return whether it is taken, by a process that has ended."""
        return self.state == ImportState.RUNNING and is_gone(
            Process(self.host, self.pid, self.process_started)
        )


class ImportPieceQuerySet(models.QuerySet["ImportPiece"]):
    def of(self, run_pk: int) -> Self:
        """Return those of one file, in order."""
        return self.filter(run_id=run_pk).order_by("offset")


class ImportPiece(models.Model):
    """A piece of a file, where the processes share no directory."""

    # The unique constraint begins with it, here and below.
    run = models.ForeignKey(ImportRun, models.CASCADE, related_name="pieces", db_index=False)
    offset = models.BigIntegerField()
    content = models.BinaryField()

    objects = models.Manager.from_queryset(ImportPieceQuerySet)()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "offset"], name="import_piece_once")]

    def __str__(self) -> str:
        return f"piece at {self.offset}"


class ImportedConversationQuerySet(models.QuerySet["ImportedConversation"]):
    def of(self, run_pk: int, *, after: int = 0) -> Self:
        """Return those of one import with a number above `after`, in order."""
        return self.filter(run_id=run_pk, number__gt=after).order_by("number")


class ImportedConversation(models.Model):
    """What an import did with one conversation of its file."""

    run = models.ForeignKey(ImportRun, models.CASCADE, related_name="imported", db_index=False)
    number = models.BigIntegerField()
    """Its place in the file, from 1."""
    source_id = models.TextField()
    conversation = models.TextField(default="", blank=True)
    """The id that it has here; empty if nothing was stored."""
    title = models.TextField(default="", blank=True)
    problem = models.TextField(default="", blank=True)
    """Why it has failed; empty if it has not."""
    report = models.JSONField(default=dict, blank=True)

    objects = models.Manager.from_queryset(ImportedConversationQuerySet)()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["run", "number"], name="imported_once")]
        indexes: ClassVar = [
            # For a purge, which looks for the lines of one conversation in the reports of all imports.
            models.Index(fields=["conversation"], name="imported_as")
        ]

    def __str__(self) -> str:
        return f"conversation {self.number} of import {self.run_id}"


class FollowedProgramQuerySet(models.QuerySet["FollowedProgram"]):
    def of(self, user_id: int) -> Self:
        """Return those of one user."""
        return self.filter(user_id=user_id)


class FollowedProgram(models.Model):
    """A program on the server's computer whose conversations are kept in step while a user wants it."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    format = models.CharField(max_length=40)
    is_on = models.BooleanField(default=False)
    problem = models.TextField(default="", blank=True)
    """Why it cannot be followed at the moment, or what has failed last, as a sentence."""
    files = models.BigIntegerField(default=0)
    """How many were there when they were looked at last."""
    looked_at = models.DateTimeField(null=True, blank=True)
    stored_at = models.DateTimeField(null=True, blank=True)
    """When something new was stored last."""

    objects = models.Manager.from_queryset(FollowedProgramQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "format"], name="followed_program_once")
        ]

    def __str__(self) -> str:
        return self.format
