"""Periodic work that one process does for the whole installation."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Least, Now

from sessions_app.models import HousekeepingRound

PRUNED_MAX = 1000


def prune(rows: QuerySet[Any, Any]) -> int:
    """Delete at most PRUNED_MAX of these rows; return how many."""
    # Few at a time: other writers wait for the transaction; the next round deletes more.
    pks = list(rows.values_list("pk", flat=True)[:PRUNED_MAX])
    return rows.model._default_manager.filter(pk__in=pks).delete()[0] if pks else 0


def take_round(name: str, every_s: float) -> bool:
    """Return whether this process is to do the work now: no round has begun within `every_s` seconds."""
    every = timedelta(seconds=every_s)
    # By the clock of the database, which all share; a moment in the future is one of a clock put back.
    is_due = Q(begun_at__lte=Now() - every) | Q(begun_at__gt=Now() + every)
    if HousekeepingRound.objects.filter(is_due, name=name).update(begun_at=Now()):
        return True
    _, is_first = HousekeepingRound.objects.get_or_create(name=name, defaults={"begun_at": Now()})
    return is_first


def put_back_round(name: str, every_s: float, last: datetime | None = None) -> None:
    """Mark an unfinished round as due again.

    It counts as begun `every_s` seconds ago, or at `last` (when one was last finished), if that is
    earlier.
    """
    begun_at: Combinable = Now() - timedelta(seconds=every_s)  # by the same clock as `take_round`
    if last is not None:
        begun_at = Least(begun_at, Value(last))
    HousekeepingRound.objects.filter(name=name, begun_at__gt=begun_at).update(begun_at=begun_at)
