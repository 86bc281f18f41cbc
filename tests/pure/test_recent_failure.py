"""Who would wait for a failure that others have waited for is told of it."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from psycopg.errors import QueryCanceled

from conversations.engines import failures
from convserver.api.direct.recent_failure import LONG_S, REMEMBERED_S, RecentFailure


class Away:
    """A database that takes its time to fail, by a clock of its own."""

    def __init__(self, takes_s: float) -> None:
        self.now, self.takes_s, self.asked = 100.0, takes_s, 0

    def __call__(self) -> None:
        self.asked += 1
        self.now += self.takes_s
        raise OperationalError("It is away.") from QueryCanceled()


@pytest.mark.parametrize(("takes_s", "asked"), [(LONG_S, 1), (LONG_S / 2, 3)])
def test_only_a_failure_that_was_long_in_coming_is_remembered(takes_s: float, asked: int) -> None:
    away = Away(takes_s)
    remembered = RecentFailure(lambda: away.now)
    for _ in range(3):
        with pytest.raises(OperationalError, match="It is away") as told:
            remembered.run(away)
        assert failures.sentence(told.value) == failures.TOO_SLOW
    assert away.asked == asked
    assert remembered.is_remembered is (asked == 1)


def test_it_is_asked_again_after_a_moment() -> None:
    away = Away(LONG_S)
    remembered = RecentFailure(lambda: away.now)
    with pytest.raises(OperationalError):
        remembered.run(away)
    away.now += REMEMBERED_S
    assert remembered.run(lambda: "back") == "back"
