"""Rates: sliding windows that several processes share through Redis, and that go on without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conversations.storage import shared_counts
from conversations.storage.rates import KEYS_KEPT, Rates
from tests.support.people.clients import WAIT_S
from tests.support.servers.redis_server import RedisServer
from tests.support.wires.network import wait_until

MINUTE = 60


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
    """A Redis in which rates are counted, and for which a caller waits as long as a busy machine needs."""
    monkeypatch.setattr(shared_counts, "WAIT_S", WAIT_S)
    server = RedisServer(tmp_path)
    server.start()
    configured(redis_url=server.url)
    yield server
    server.stop()
    disconnect(server)


def disconnect(server: RedisServer) -> None:
    """End the connections of this process."""
    shared_counts._server(server.url)._client.close()
    shared_counts._server.cache_clear()


def shared(*processes: Rates) -> None:
    """Let each tell and learn, twice, so that all know of all."""
    for rates in 2 * processes:
        rates.share("alice", MINUTE)


@pytest.mark.usefixtures("redis")
def test_processes_count_together(clock: Clock) -> None:
    one, other = Rates(now=clock), Rates(now=clock)
    assert taken(one, 6) == 6
    taken(other, 1)
    shared(one, other)
    assert taken(other, 10) == 3
    shared(one, other)
    assert taken(one, 10) == 0
    clock.now += MINUTE + 30
    assert taken(one, 10) == 5


@pytest.mark.usefixtures("redis")
def test_a_process_that_comes_later_knows_of_the_others_from_its_first_try_on(clock: Clock) -> None:
    one, other = Rates(now=clock), Rates(now=clock)
    taken(one, 6)
    shared(one)
    assert taken(other, 10) == 4


def test_without_redis_each_goes_on_counting_and_afterwards_together_again(
    redis: RedisServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_counts, "RETRY_S", 0.0)
    one, other = Rates(now=clock), Rates(now=clock)
    assert taken(one, 4) == 4
    redis.stop()
    shared(one, other)
    assert taken(one, 10) == 6
    redis.start()
    assert taken(other, 1) == 1
    clock.now += 2 * MINUTE
    assert taken(one, 6) == 6
    taken(other, 1)
    shared(one, other)
    assert taken(other, 10) == 3


def test_one_caller_waits_a_moment_for_a_frozen_redis_and_the_next_ones_not_at_all(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_counts, "RETRY_S", MINUTE)
    assert shared_counts.added("talks", 2, lasts_s=MINUTE) == 2
    with redis.frozen():
        monkeypatch.setattr(shared_counts, "WAIT_S", 0.1)
        disconnect(redis)  # the next connection waits only so long
        began = time.monotonic()
        assert [shared_counts.added("talks", 1, lasts_s=MINUTE) for _ in range(1_000)] == [None] * 1_000
        assert time.monotonic() - began < WAIT_S


@pytest.mark.usefixtures("redis")
def test_a_number_ends_with_its_time_and_when_it_is_forgotten() -> None:
    assert [shared_counts.added("talks", 2, lasts_s=1) for _ in range(2)] == [2, 4]
    wait_until(lambda: shared_counts.added("talks", 0, lasts_s=1) == 0)
    assert shared_counts.added("talks", 3, lasts_s=MINUTE) == 3
    shared_counts.forget("talks")
    assert shared_counts.added("talks", 1, lasts_s=MINUTE) == 1
