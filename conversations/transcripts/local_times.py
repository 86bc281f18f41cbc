"""Reading the times of a log, which may have no zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo


class LocalTimes:
    """Reads the times of one log, in its order."""

    def __init__(self, zone: tzinfo, since: datetime | None = None) -> None:
        """`zone` is that of times without one, and `since` is when the log began, if that is known."""
        self._zone = zone
        self._since = since
        self._last: datetime | None = None

    def at(self, value: object) -> datetime | None:
        """Return the time of the next entry; the previous time if it cannot be read."""
        self._last = _moment(value, self._zone, self._last) or self._last
        return self._last or self._since


def moment(value: object, zone: tzinfo) -> datetime | None:
    """Read an ISO 8601 time, in `zone` if it has none; None if it cannot be read."""
    return _moment(value, zone, None)


def _moment(value: object, zone: tzinfo, before: datetime | None) -> datetime | None:
    """Read a time; of two moments with the same local time, prefer the one that is not before `before`."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
        if read.tzinfo is not None:
            return read.astimezone(UTC)
        first, second = (read.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    except (ValueError, OverflowError):
        return None
    is_repeated = first < second  # where the clock leaves an hour out, the second is the earlier one
    return second if is_repeated and before is not None and first < before else first
