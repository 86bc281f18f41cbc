"""What calls of models have used, by user, conversation, model and day."""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple, Self

from django.conf import settings
from django.db import models
from django.db.models import OuterRef, QuerySet, Sum

from conversations.models import Conversation

MODEL_NAME_MAX_LENGTH = 200
# Whole numbers: their sums are exact, in whichever order they are added.
NANOS = 1_000_000_000
"""Nanodollars in a US dollar."""


class Used(NamedTuple):
    """What some calls of models have used."""

    calls: int = 0
    unpriced_calls: int = 0
    """Those of unknown cost."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_nanos: int = 0
    """Of the calls whose cost is known."""

    @property
    def is_unpriced(self) -> bool:
        return 0 < self.calls == self.unpriced_calls

    @property
    def dollars(self) -> float:
        return self.cost_nanos / NANOS


_SUMS = {f"{name}_sum": Sum(name, default=0) for name in Used._fields}


class ModelUseQuerySet(models.QuerySet["ModelUse"]):
    def of(self, conversation_pk: int | OuterRef) -> Self:
        """Return the rows of one conversation."""
        return self.filter(conversation_id=conversation_pk)

    def from_day(self, day: date) -> Self:
        """Return those of this day (UTC) and later ones."""
        return self.filter(day__gte=day)

    def through_day(self, day: date) -> Self:
        """Return those of this day (UTC) and earlier ones."""
        return self.filter(day__lte=day)

    def unpriced(self) -> Self:
        """Return those with calls of unknown cost."""
        return self.filter(unpriced_calls__gt=0)

    def total(self) -> Used:
        """Return what all rows have used, by one query."""
        return used_in(self.aggregate(**_SUMS))

    def by(self, *columns: str) -> QuerySet[ModelUse, dict[str, Any]]:
        """Return a row of sums for each combination of these columns, for `used_in`."""
        grouped: QuerySet[ModelUse, dict[str, Any]] = self.order_by().values(*columns).annotate(**_SUMS)
        return grouped


def used_in(row: dict[str, Any]) -> Used:
    """Return the sums in a row of `ModelUseQuerySet.by`."""
    return Used(*(row[f"{name}_sum"] for name in Used._fields))


class ModelUse(models.Model):
    """What one user's calls of one model have used on one day in one conversation.

    A row changes only under its conversation's lock.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="model_uses", db_index=False
    )
    # Null after a purge: the sums of a user, a model and a day stay.
    conversation = models.ForeignKey(
        Conversation, models.SET_NULL, null=True, blank=True, related_name="model_uses", db_index=False
    )
    model = models.CharField(max_length=MODEL_NAME_MAX_LENGTH)
    """As it was named in the settings."""
    day = models.DateField()
    """UTC."""
    calls = models.BigIntegerField(default=0)
    unpriced_calls = models.BigIntegerField(default=0)
    prompt_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    cost_nanos = models.BigIntegerField(default=0)

    objects = models.Manager.from_queryset(ModelUseQuerySet)()

    class Meta:
        verbose_name = "model use"
        verbose_name_plural = "model use"
        constraints = [
            models.UniqueConstraint(fields=["conversation", "user", "model", "day"], name="one_model_use")
        ]
        indexes = [
            models.Index(fields=["day", "id"], name="model_use_day"),
            models.Index(fields=["user", "day"], name="model_use_user_day"),
        ]

    def __str__(self) -> str:
        return f"{self.model} on {self.day}"

    @property
    def used(self) -> Used:
        return Used(
            self.calls, self.unpriced_calls, self.prompt_tokens, self.completion_tokens, self.cost_nanos
        )
