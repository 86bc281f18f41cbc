"""From one day through another, UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any, TypeVar

from django.db.models import QuerySet

Rows = TypeVar("Rows", bound=QuerySet[Any])


def in_period(rows: Rows, column: str, wanted: dict[str, Any]) -> Rows:
    """Return the rows whose `column` lies from the day `since` through the day `until`, where given."""
    if "since" in wanted:
        rows = rows.filter(**{f"{column}__gte": _start_of(wanted["since"])})
    if "until" in wanted and wanted["until"] < date.max:
        rows = rows.filter(**{f"{column}__lt": _start_of(wanted["until"] + timedelta(days=1))})
    return rows


def _start_of(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
