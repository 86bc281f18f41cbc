"""Leases by the clock that all processes share: the database's, on SQLite that of its only host.

No host's own clock decides how long a lease lasts. A clock that is put back does not extend one either: a
moment further ahead than a lease can last counts as past.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

STEP_S = 5.0
"""A clock that is put back by less than this ends no valid lease."""


def ahead(seconds: float) -> Combinable:
    return Now() + timedelta(seconds=seconds)


def lasts(column: str, lease_s: float) -> Q:
    """Return the condition that a lease of at most `lease_s`, which ends at the column's moment, is valid."""
    return Q((f"{column}__gt", Now()), (f"{column}__lte", ahead(lease_s + STEP_S)))


def was_within(column: str, seconds: float) -> Q:
    """Return the condition that the column's moment is at most this long ago."""
    return Q((f"{column}__gt", ahead(-seconds)), (f"{column}__lte", ahead(STEP_S)))
