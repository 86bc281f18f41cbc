"""Of all processes, one does a round of periodic work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connections
from django.db.models import F

from sessions_app.housekeeping import take_round
from sessions_app.models import HousekeepingRound

pytestmark = pytest.mark.no_second_try

EVERY_S = 60.0


def test_a_round_is_taken_once_and_again_when_its_time_is_over(database: None) -> None:
    assert [take_round("work", EVERY_S) for _ in range(3)] == [True, False, False]
    assert take_round("other work", EVERY_S)
    HousekeepingRound.objects.update(begun_at=F("begun_at") - timedelta(seconds=EVERY_S))
    assert [take_round("work", EVERY_S) for _ in range(3)] == [True, False, False]


def test_of_many_that_ask_at_the_same_time_one_takes_the_round(database: None) -> None:
    def ask(_: int) -> bool:
        try:
            return take_round("work", EVERY_S)
        finally:
            connections.close_all()

    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(ask, range(8))) == 1
        HousekeepingRound.objects.update(begun_at=F("begun_at") - timedelta(seconds=EVERY_S))
