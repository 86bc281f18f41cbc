"""Retention policies: which conversations are deleted after a long time without new events."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

# A hundred years: the moment that long ago is still a valid date.
DAYS_MAX = 36_500
NAME_MAX_LENGTH = 100
LABEL_MAX_LENGTH = 200


class DeletedLimit(models.Model):
    """How long deleted conversations can be restored, as it was last in force; one row."""

    days = models.PositiveIntegerField(null=True, blank=True)
    """None for no limit."""
    since = models.DateTimeField()
    """When it began, was shortened or switched on last: what was deleted before has its time from then on."""

    def __str__(self) -> str:
        return f"{self.days} days"


class UserDeletionQuerySet(models.QuerySet["UserDeletion"]):
    def under_way(self, late: timedelta) -> Self:
        """Return the unfinished ones, and those that were finished less than `late` ago."""
        # A process that had begun before can still have written something for the user.
        recent = Q(finished_at__gte=timezone.now() - late)
        return self.filter(Q(finished_at__isnull=True) | recent).order_by("pk")

    def unerased(self) -> Self:
        """Return the finished ones whose rows may still leave bytes in the database's files."""
        return self.filter(finished_at__isnull=False, erased_at__isnull=True)


class UserDeletion(models.Model):
    """A decision to delete a person, its progress, and the record that stays of it."""

    # The row of the account stays: tombstones of conversations and the admin's log refer to it.
    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.PROTECT, related_name="deletion")
    """The account, which has lost its names."""
    requested_by = models.TextField()
    """The name of a member of staff, or who ran the command."""
    requested_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)
    """When the last row was removed."""
    erased_at = models.DateTimeField(null=True, blank=True)
    """When the database's files were cleaned after it."""

    objects = models.Manager.from_queryset(UserDeletionQuerySet)()

    def __str__(self) -> str:
        return f"deletion of user {self.user_id}"


class RetentionPolicyQuerySet(models.QuerySet["RetentionPolicy"]):
    def in_force(self) -> models.QuerySet[RetentionPolicy, RetentionPolicy]:
        """Return those that the server applies, in a fixed order."""
        return self.filter(is_enabled=True).order_by("pk")


class RetentionPolicy(models.Model):
    """A rule that deletes conversations; they can be restored until they are purged like all deleted ones."""

    name = models.CharField(max_length=NAME_MAX_LENGTH, unique=True)
    older_than_days = models.PositiveIntegerField(
        "days without activity",
        validators=[MinValueValidator(1), MaxValueValidator(DAYS_MAX)],
        help_text="Conversations to which nothing was added for this many days are deleted, unless they "
        "were restored, imported or renamed in that time.",
    )
    label = models.CharField(
        max_length=LABEL_MAX_LENGTH,
        blank=True,
        help_text="Only those with this label (tag): NAME, or NAME=VALUE. Empty for all.",
    )
    owner: Any = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="Only this user's conversations. Empty for those of all users.",
    )
    is_enabled = models.BooleanField(
        "in force", default=False, help_text="See what it would delete before you enable it."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = models.Manager.from_queryset(RetentionPolicyQuerySet)()

    class Meta:
        verbose_name = "retention policy"
        verbose_name_plural = "retention policies"

    def __str__(self) -> str:
        return self.name
