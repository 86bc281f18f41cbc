"""What operators watch beside the conversations: processes with their heartbeats, and backups."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Self

from django.db import models
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.processes import Process

PROCESSES_KEPT = timedelta(days=7)
"""The rows of processes that have ended, or are gone, are removed after this."""
BACKUPS_KEPT = timedelta(days=400)
# A name, the id of a boot and a namespace (`Process.host`).
HOST_MAX_LENGTH = 300


class ProcessRole(models.TextChoices):
    """What a process that runs for long does."""

    SERVER = "server", "server"
    WORKER = "worker", "worker"


class ProcessRecordQuerySet(models.QuerySet["ProcessRecord"]):
    def of(self, process: Process) -> Self:
        """Return the row of one process, if there is one."""
        return self.filter(host=process.host, pid=process.pid, started=process.started)

    def running(self) -> Self:
        """Return those that were not stopped: they run, or are gone."""
        return self.filter(ended_at=None)

    def old(self) -> Self:
        """Return those that were last seen before PROCESSES_KEPT."""
        return self.filter(seen_at__lt=Now() - PROCESSES_KEPT)

    def with_age(self) -> Self:
        """Add `silent_for`, the time since the last heartbeat by the clock of the database."""
        passed = models.ExpressionWrapper(Now() - F("seen_at"), output_field=models.DurationField())
        return self.annotate(silent_for=passed)


class ProcessRecord(models.Model):
    """A server or a worker, with the time of its last heartbeat by the clock of the database."""

    role = models.CharField(max_length=10, choices=ProcessRole)
    host = models.CharField(max_length=HOST_MAX_LENGTH)
    pid = models.BigIntegerField()
    started = models.FloatField()
    """Together with `host` and `pid` what `sessions_app.processes` knows a process by."""
    version = models.CharField(max_length=40)
    began_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    """When it was stopped; None while it runs, and for one that was killed."""

    silent_for: timedelta
    """Of a row `with_age`."""

    objects = models.Manager.from_queryset(ProcessRecordQuerySet)()

    class Meta:
        verbose_name = "process"
        verbose_name_plural = "processes"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["host", "pid", "started"], name="one_process_record"),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.pid} on {self.host_name}"

    @property
    def process(self) -> Process:
        """What other rows name it by."""
        return Process(self.host, self.pid, self.started)

    @property
    def host_name(self) -> str:
        return self.host.partition(" ")[0]  # the rest tells its boots apart


class BackupOutcome(models.TextChoices):
    """How a backup ended."""

    MADE = "made", "complete"
    DAMAGED = "damaged", "complete, but the store is damaged"
    FAILED = "failed", "failed"


class BackupRecordQuerySet(models.QuerySet["BackupRecord"]):
    def usable(self) -> Self:
        """Return those that can be restored as far as is known, the newest first."""
        # One without a restore on trial (None) counts.
        return self.filter(outcome=BackupOutcome.MADE).exclude(is_verified=False).order_by("-pk")

    def verified(self) -> Self:
        """Return those that were restored on trial without a difference, the newest first."""
        return self.filter(is_verified=True).order_by("-pk")

    def old(self) -> Self:
        """Return those that are kept no longer."""
        return self.filter(ended_at__lt=timezone.now() - BACKUPS_KEPT)


class BackupRecord(models.Model):
    """One run of `convserver backup`, stored after its end in the store that it is of."""

    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(default=timezone.now)
    host = models.CharField(max_length=HOST_MAX_LENGTH)
    """Where `place` is."""
    place = models.TextField()
    """The directory of the backup, or the one that it was to be made in."""
    size = models.BigIntegerField(default=0)
    outcome = models.CharField(max_length=10, choices=BackupOutcome)
    is_verified = models.BooleanField(null=True, blank=True)
    """Whether a restore on trial was as the manifest says; None without one."""
    verified_at = models.DateTimeField(null=True, blank=True)
    detail = models.TextField(default="", blank=True)
    """Why it failed, or what differs."""

    objects = models.Manager.from_queryset(BackupRecordQuerySet)()

    class Meta:
        verbose_name = "backup"

    def __str__(self) -> str:
        return f"backup {self.place}"

    @property
    def duration(self) -> timedelta:
        return self.ended_at - self.began_at


class HousekeepingRound(models.Model):
    """The newest round of one kind of periodic work: of all processes one does it."""

    name = models.CharField(max_length=40, primary_key=True)
    begun_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
