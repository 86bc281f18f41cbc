"""What each user has stored, as totals that change together with what they count."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import models


class UsageQuerySet(models.QuerySet["Usage"]):
    def of(self, user_pk: int) -> Self:
        """Return the totals of one user, if there are any yet."""
        return self.filter(user_id=user_pk)

    def locked(self) -> Self:
        """Return the rows, locked until the transaction ends."""
        return self.select_for_update(no_key=True)


class Usage(models.Model):
    """One user's totals; counted from the tables when they are first needed."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="usage"
    )
    is_counted = models.BooleanField(default=False)
    uploaded_bytes = models.BigIntegerField(default=0)
    drafts = models.BigIntegerField(default=0)
    """Those that are not empty."""
    draft_bytes = models.BigIntegerField(default=0)

    objects = models.Manager.from_queryset(UsageQuerySet)()

    class Meta:
        verbose_name_plural = "usage"

    def __str__(self) -> str:
        return f"usage of user {self.user_id}"
