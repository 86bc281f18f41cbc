"""Rates: sliding windows that several processes share through Redis, and that go on without it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.cache.backends.locmem import LocMemCache
from django.test.utils import override_settings

from conversations.storage.rates import KEYS_KEPT, Rates
from convserver import shared_cache
from tests.clients import WAIT_S
from tests.network import wait_until
from tests.redis_server import RedisServer

MINUTE = 60


class LateAnswers(LocMemCache):
    """A cache of which the first answer comes once the second has been dealt with."""

    added = 0
    is_dealt_with = threading.Event()

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Add, and wait after that if it is the first time."""
        answer = super().incr(key, delta, version)
        type(self).added += 1
        if self.added == 1:
            assert self.is_dealt_with.wait(WAIT_S)
        return int(answer)


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000 * MINUTE

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """At the beginning of a window."""
    return Clock()


def taken(rates: Rates, times: int, *, limit: int = 10, key: str = "alice") -> int:
    """Try so many times; return how many were admitted."""
    return sum(not rates.take(key, 1, limit=limit, window_s=MINUTE).wait_s for _ in range(times))


def test_no_minute_has_more_than_the_limit_wherever_it_begins(clock: Clock) -> None:
    rates = Rates(now=clock)
    clock.now += 59
    assert taken(rates, 20) == 10
    clock.now += 2
    assert taken(rates, 20) == 0
    clock.now += 29
    assert taken(rates, 20) == 5
    clock.now += 2 * MINUTE
    assert taken(rates, 20) == 10


@pytest.mark.parametrize("used_at", [0, 20, 59])
def test_waiting_as_long_as_the_refusal_says_is_enough(used_at: int, clock: Clock) -> None:
    rates = Rates(now=clock)
    clock.now += used_at
    assert taken(rates, 10) == 10
    clock.now += rates.take("alice", 1, limit=10, window_s=MINUTE).wait_s
    assert taken(rates, 1) == 1
    clock.now += rates.take("alice", 5, limit=10, window_s=MINUTE).wait_s
    assert rates.take("alice", 5, limit=10, window_s=MINUTE).wait_s == 0


def test_keys_count_apart_and_an_amount_above_the_limit_is_admitted_alone(clock: Clock) -> None:
    rates = Rates(now=clock)
    assert rates.take("alice", 50, limit=10, window_s=MINUTE) == (0, 0)
    assert taken(rates, 1) == 0
    assert taken(rates, 1, key="bob") == 1


def test_memory_is_bounded_by_the_keys_of_the_last_windows(clock: Clock) -> None:
    rates = Rates(now=clock)
    for number in range(KEYS_KEPT):
        taken(rates, 1, key=str(number))
    clock.now += 3 * MINUTE
    taken(rates, 1)
    assert len(rates) == 1


@pytest.fixture
def redis(
    tmp_path: Path, configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[RedisServer]:
    """A Redis that the caches use, and for which they wait as long as a busy machine needs."""
    monkeypatch.setattr(shared_cache, "WAIT_S", WAIT_S)
    # An earlier test of this process may have left word of a Redis that is away.
    monkeypatch.setattr(shared_cache, "_redis", shared_cache._Redis())
    monkeypatch.setattr(shared_cache, "_clients", {})
    server = RedisServer(tmp_path)
    server.start()
    configured(redis_url=server.url)
    cache: dict[str, Any] = {
        "BACKEND": "convserver.shared_cache.SharedCache",
        "LOCATION": server.url,
        "OPTIONS": {"MAX_ENTRIES": 100, "NAME": str(tmp_path)},
    }
    with override_settings(CACHES={**settings.CACHES, "rates": cache}):
        yield server
    for client in shared_cache._clients.values():
        client.get_client().connection_pool.disconnect()
    server.stop()


def exchanged(*processes: Rates) -> None:
    """Let each tell and learn, twice, so that all know of all: in its thread, behind what it has begun."""
    for rates in 2 * processes:
        rates._exchanges.submit(rates.exchange, "alice", MINUTE).result(WAIT_S)


@pytest.mark.usefixtures("redis")
def test_processes_count_together(clock: Clock) -> None:
    one, other = Rates(now=clock), Rates(now=clock)
    assert taken(one, 6) == 6
    taken(other, 1)
    exchanged(one, other)
    assert taken(other, 10) == 3
    exchanged(one, other)
    assert taken(one, 10) == 0
    clock.now += MINUTE + 30
    assert taken(one, 10) == 5


def test_an_answer_that_comes_late_takes_back_nothing_of_what_is_known_since(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LateAnswers, "added", 0)
    monkeypatch.setattr(LateAnswers, "is_dealt_with", threading.Event())
    cache = {"BACKEND": f"{__name__}.LateAnswers", "LOCATION": "late"}
    with override_settings(CACHES={**settings.CACHES, "rates": cache}):
        one, other = Rates(now=clock), Rates(now=clock)
        taken(one, 1)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(one.exchange, "alice", MINUTE)
            wait_until(lambda: LateAnswers.added == 1)
            taken(other, 6)
            other.exchange("alice", MINUTE)
            one.exchange("alice", MINUTE)
            LateAnswers.is_dealt_with.set()
            late.result(WAIT_S)
    assert taken(one, 10) == 3


def test_without_redis_each_goes_on_counting_and_afterwards_together_again(
    redis: RedisServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_cache, "RETRY_S", 0.0)
    one, other = Rates(now=clock), Rates(now=clock)
    assert taken(one, 4) == 4
    redis.stop()
    exchanged(one, other)
    assert taken(one, 10) == 6
    redis.start()
    assert taken(other, 1) == 1
    clock.now += 2 * MINUTE
    assert taken(one, 6) == 6
    taken(other, 1)
    exchanged(one, other)
    assert taken(other, 10) == 3
