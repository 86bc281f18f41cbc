"""Times in requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("in UTC the date is before the year 1 or after the year 9999") from error


Instant = Annotated[datetime, AfterValidator(_in_utc)]
"""A time; without an offset it is UTC."""
