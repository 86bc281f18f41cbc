"""Following a V1 agent server: event files come one by one, and each is stored once, in order, and soon."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from conversations.models import Event
from tests.support.people.followed import SETTLED_S, Followers, said_of
from tests.support.wires.network import wait_until
from tests.support.wires.v1_directories import Kept, event_id

pytestmark = [pytest.mark.needs_engine, pytest.mark.no_second_try]

EVENTS, EVENTS_FULL = 100, 10_000
KILLS, KILLS_FULL = 2, 8
PAUSE_S = 0.05
SOON_S = 2.0


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A conversation that another server holds and works on."""
    found = Kept(tmp_path / "conversations", UUID(int=1))
    found.state()
    found.write("owner_lease.json", {"expires_at": time.time() + 3600})
    return found


@pytest.fixture
def followers(database: None, alice: User, kept: Kept, tmp_path: Path) -> Iterator[Followers]:
    followers = Followers(["openhands-v1", str(kept.path.parent)], tmp_path)
    yield followers
    followers.kill()


def wait(kept: Kept, count: int) -> None:
    """Wait until so many events are stored; they are the first ones, in order."""
    wait_until(lambda: Event.objects.count() >= count, within_s=SETTLED_S)
    assert kept.stored() == [event_id(number) for number in range(count)]


@pytest.mark.slow(on="postgresql")
def test_a_second_follower_of_directories_says_that_there_is_one(followers: Followers, kept: Kept) -> None:
    followers.start()
    followers.wait()
    kept.event(0)
    assert followers.start().wait(SETTLED_S) == 1
    assert "Another process follows this already." in followers.log.read_text()
    wait(kept, 1)


@pytest.mark.timeout(900)
def test_every_event_is_stored_once_and_in_order_though_the_follower_is_killed(
    followers: Followers,
    kept: Kept,
    chance: random.Random,
    is_full: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    count = EVENTS_FULL if is_full else EVENTS
    whole_at: dict[str, float] = {}
    killed_at = set(chance.sample(range(count), KILLS_FULL if is_full else KILLS))
    followers.start()
    for number in range(0, count, 2):
        what = chance.random()
        if what < 0.2:  # the first comes after the second
            kept.event(number + 1)
            time.sleep(chance.random() * PAUSE_S)
            kept.event(number)
        else:
            kept.event(number, part=0.5 if what < 0.4 else 1.0)
            time.sleep(chance.random() * PAUSE_S)
            kept.event(number)
            kept.event(number + 1)
        kept.state(iterations=number)
        whole_at |= dict.fromkeys((event_id(number), event_id(number + 1)), time.time())
        if killed_at & {number, number + 1}:
            followers.kill()
            followers.start()
    wait(kept, count)
    rows = Event.objects.filter(conversation__public_id=kept.id.hex).values_list("event_id", "received_at")
    delays_s = sorted(at.timestamp() - whole_at[event] for event, at in rows)
    with capsys.disabled():
        print(said_of(delays_s))
    if is_full:  # how soon that is depends on what else runs
        assert statistics.median(delays_s) < SOON_S
