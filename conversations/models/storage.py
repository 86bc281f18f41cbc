"""How many bytes of events each user has stored."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class StorageProgress(models.Model):
    """How far the totals of StoredBytes have come: one row, shared by all processes."""

    through = models.BigIntegerField(default=0)  # every event with a key up to this is in the totals

    def __str__(self) -> str:
        return f"counted through {self.through}"


class StoredBytes(models.Model):
    """The bytes of one user's events, through StorageProgress."""

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="stored_bytes"
    )
    total = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.total} bytes of user {self.owner_id}"
