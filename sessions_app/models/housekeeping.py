"""When the installation's periodic work was done last, so that of all processes one does it."""

from __future__ import annotations

from django.db import models


class HousekeepingRound(models.Model):
    """The newest round of one kind of work."""

    name = models.CharField(max_length=40, primary_key=True)
    begun_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
