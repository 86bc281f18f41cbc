"""Places that all users share: one user has at most a share, and free places go round."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convserver.configuration import AuthMode
from sessions_app.capacity.shares import Shares, share_of

PLACES = 8

pytestmark = pytest.mark.usefixtures("accounts")


async def settled() -> None:
    """Let everybody who can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


class Crowd:
    """Tasks that take places, and hold them until they are told to leave."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.order: list[str] = []
        self.holding: list[tuple[str, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, name: str, count: int = 1) -> None:
        """Let a user want so many places."""
        self.tasks += [asyncio.create_task(self._hold(name), name=name) for _ in range(count)]
        await settled()

    async def leave(self, name: str) -> None:
        """Let one of the user's give its place back."""
        next(left for each, left in self.holding if each == name).set()
        await settled()

    async def leave_all(self) -> None:
        """Let all give their places back until nobody waits."""
        while self.holding:
            await self.leave(self.holding[0][0])
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def held(self) -> Counter[str]:
        """Return how many places each user has."""
        return Counter(name for name, _ in self.holding)

    def wanted(self) -> Counter[str]:
        """Return how many places each user has or waits for."""
        return Counter(task.get_name() for task in self.tasks if not task.done())

    async def _hold(self, name: str) -> None:
        async with self.shares.place(name.partition(" ")[0]):
            self.order.append(name)
            holding = (name, asyncio.Event())
            self.holding.append(holding)
            try:
                await holding[1].wait()
            finally:
                self.holding.remove(holding)


@pytest.fixture
def crowd() -> Crowd:
    return Crowd(Shares(PLACES))


async def test_one_user_leaves_some_places_to_those_who_may_come(crowd: Crowd) -> None:
    await crowd.come("alice", 3 * PLACES)
    assert crowd.held() == {"alice": 6}
    await crowd.come("bob", 3 * PLACES)
    assert crowd.held() == {"alice": 6, "bob": 2}
    await crowd.leave_all()
    assert Counter(crowd.order) == {"alice": 3 * PLACES, "bob": 3 * PLACES}


async def test_a_free_place_goes_to_who_has_the_fewest(crowd: Crowd) -> None:
    await crowd.come("alice", 3 * PLACES)
    await crowd.come("bob", 3 * PLACES)
    for _ in range(3):
        await crowd.leave("alice")
    assert crowd.held()["bob"] == PLACES // 2
    await crowd.come("carol")
    await crowd.leave("bob")
    assert crowd.held()["carol"] == 1
    await crowd.leave_all()


async def test_users_who_have_as_many_take_turns(crowd: Crowd) -> None:
    await crowd.come("alice", 6)
    await crowd.come("bob", 2)
    for name in ("carol", "dave", "carol", "dave", "carol"):
        await crowd.come(name)
    for _ in range(4):
        await crowd.leave("alice")
    assert crowd.order[PLACES:] == ["carol", "dave", "carol", "dave"]
    await crowd.leave_all()


async def test_what_one_user_wants_is_served_in_its_order(crowd: Crowd) -> None:
    for number in range(20):
        await crowd.come(f"alice {number}")
    await crowd.leave_all()
    assert crowd.order == [f"alice {number}" for number in range(20)]


async def test_who_is_cancelled_while_waiting_takes_nothing_with_them(crowd: Crowd) -> None:
    await crowd.come("alice", PLACES)
    gone = crowd.tasks[-1]
    gone.cancel()
    await settled()
    await crowd.leave_all()
    await crowd.come("bob", PLACES)
    await crowd.come("carol", PLACES)
    assert crowd.held().total() == PLACES
    await crowd.leave_all()


async def test_who_is_cancelled_just_when_a_place_is_free_passes_it_on() -> None:
    shares = Shares(1)
    await shares.take("alice")
    waiting = asyncio.create_task(shares.take("bob"))
    await settled()
    shares.give_back("alice")  # the place is bob's now, who leaves before using it
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(1):
        await shares.take("carol")


async def test_who_is_alone_by_configuration_has_all_places(
    crowd: Crowd, configured: Callable[..., None]
) -> None:
    configured(auth=AuthMode.LOCAL)
    await crowd.come("local", 2 * PLACES)
    assert crowd.held() == {"local": PLACES}
    await crowd.leave_all()


async def test_the_server_itself_may_have_all_places() -> None:
    shares = Shares(PLACES)
    for _ in range(PLACES):
        async with asyncio.timeout(1):
            await shares.take(None)


async def test_what_is_large_takes_several_places_at_once() -> None:
    shares = Shares(PLACES)
    await shares.take("alice", 4)
    order = list[str]()

    async def hold(name: str, count: int) -> None:
        await shares.take(name, count)
        order.append(f"{name} {count}")

    waiting = [asyncio.create_task(hold(*each)) for each in (("alice", 3), ("alice", 1), ("bob", 5))]
    await settled()
    assert order == []
    assert shares.is_used_up("alice", 3)
    assert not shares.is_used_up("alice", 2)
    waiting[0].cancel()
    await settled()
    assert order == ["alice 1"]
    shares.give_back("alice", 4)
    await settled()
    assert order == ["alice 1", "bob 5"]
    shares.give_back("bob", 5)
    shares.give_back("alice")
    await shares.take(None, PLACES)
    await asyncio.gather(*waiting, return_exceptions=True)


def test_a_share_is_never_nothing() -> None:
    assert [share_of(places) for places in (1, 2, 4, 32)] == [1, 1, 3, 24]


@pytest.mark.no_second_try
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["come", "leave", "cancel"])), max_size=60))
def test_no_place_is_lost_or_given_twice_and_nobody_waits_beside_a_free_one(
    steps: list[tuple[str, str]],
) -> None:
    asyncio.run(_stepped(steps))


async def _stepped(steps: list[tuple[str, str]]) -> None:
    crowd = Crowd(Shares(4))
    for name, step in steps:
        match step:
            case "come":
                await crowd.come(name)
            case "leave" if name in crowd.held():
                await crowd.leave(name)
            case "cancel" if crowd.tasks:
                crowd.tasks.pop().cancel()
                await settled()
        held = crowd.held()
        assert held.total() <= 4
        assert max(held.values(), default=0) <= share_of(4)
        for user, wanted in crowd.wanted().items():
            assert held[user] in (wanted, share_of(4)) or held.total() == 4
    await crowd.leave_all()
