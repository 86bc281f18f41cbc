"""Times without a zone, through the hour that a clock has twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import accumulate
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from conversations.transcripts.local_times import LocalTimes, moment

EVENINGS = (
    ("Europe/Berlin", datetime(2025, 10, 25, 20, tzinfo=UTC)),
    ("America/New_York", datetime(2025, 11, 2, 1, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 10, tzinfo=UTC)),  # its clock goes back by half an hour
)
"""Zones, and when the evening before their clocks go back begins."""


@given(st.sampled_from(EVENINGS), st.lists(st.integers(0, 29 * 60), max_size=60))
def test_a_log_without_long_pauses_is_read_as_it_was(
    evening: tuple[str, datetime], pauses: list[int]
) -> None:
    zone, began = ZoneInfo(evening[0]), evening[1]
    moments = [began + timedelta(seconds=passed) for passed in accumulate(pauses, initial=0)]
    times = LocalTimes(zone)
    told = [each.astimezone(zone).replace(tzinfo=None, fold=0).isoformat() for each in moments]
    assert [times.at(each) for each in told] == moments


def test_what_cannot_be_read_has_the_time_before_it() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    times = LocalTimes(timezone(timedelta(hours=2)), began)
    assert [times.at(each) for each in (None, 7, "2026-01-02T01:00:00", "soon", "2026-01-01T00:00:00Z")] == [
        began,
        began,
        datetime(2026, 1, 1, 23, tzinfo=UTC),
        datetime(2026, 1, 1, 23, tzinfo=UTC),
        began,
    ]
    assert LocalTimes(UTC).at("9999-99-99") is None
    assert moment("0001-01-01T00:00:00", timezone(timedelta(hours=2))) is None
