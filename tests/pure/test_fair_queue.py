"""Users whose items wait take turns, by bytes, whatever they put in and when."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.capacity.fair_queue import FairQueue

QUANTUM = 64
LARGEST = 300
USERS = ("alice", "bob", "carol")

costs = st.integers(1, LARGEST)
steps = st.lists(st.one_of(st.none(), st.tuples(st.sampled_from(USERS), costs)), max_size=150)
"""What happens to a queue: an item is taken (None), or somebody puts one in."""


def filled(lines: dict[str, list[int]]) -> FairQueue[tuple[str, int, int]]:
    """Return a queue in which these costs wait; an item knows its user, its number and its cost."""
    queue: FairQueue[tuple[str, int, int]] = FairQueue(QUANTUM)
    for user, line in lines.items():
        for number, cost in enumerate(line):
            queue.put(user, (user, number, cost), cost=cost)
    return queue


@given(steps)
def test_all_that_was_put_in_is_taken_once_and_in_each_users_order(
    steps: list[tuple[str, int] | None],
) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(QUANTUM)
    put: list[tuple[str, int]] = []
    taken: list[tuple[str, int]] = []
    for number, step in enumerate(steps):
        if step is not None:
            put.append((step[0], number))
            queue.put(step[0], put[-1], cost=step[1])
        elif queue:
            shown = queue.next()
            taken.append(queue.take())
            assert shown == taken[-1]
    while queue:
        taken.append(queue.take())
    assert queue.next() is None
    assert sorted(taken) == sorted(put)
    for user in USERS:
        numbers = [number for each, number in taken if each == user]
        assert numbers == sorted(numbers)


@given(st.lists(costs, min_size=1, max_size=60), st.lists(costs, min_size=1, max_size=60), st.integers(0, 60))
def test_while_two_users_wait_neither_gets_more_than_a_quantum_and_the_largest_item_ahead(
    first: list[int], second: list[int], alone: int
) -> None:
    """From the moment on when both wait, however much one of them has taken alone before."""
    queue: FairQueue[tuple[str, int, int]] = FairQueue(QUANTUM)
    for number, cost in enumerate(first):
        queue.put("alice", ("alice", number, cost), cost=cost)
    for _ in range(min(alone, len(first) - 1)):
        queue.take()
    for number, cost in enumerate(second):
        queue.put("bob", ("bob", number, cost), cost=cost)
    left = {"alice": len(first) - min(alone, len(first) - 1), "bob": len(second)}
    served = {"alice": 0, "bob": 0}
    while all(left.values()):
        user, _, cost = queue.take()
        served[user] += cost
        left[user] -= 1
        if all(left.values()):
            assert abs(served["alice"] - served["bob"]) <= QUANTUM + LARGEST


@given(st.dictionaries(st.sampled_from(USERS), st.lists(costs, min_size=1, max_size=50), min_size=2))
def test_in_any_window_in_which_users_wait_what_they_get_differs_by_little(
    lines: dict[str, list[int]],
) -> None:
    queue = filled(lines)
    left = {user: len(line) for user, line in lines.items()}
    served = [dict.fromkeys(lines, 0)]
    while all(left.values()):
        user, _, cost = queue.take()
        left[user] -= 1
        if all(left.values()):
            served.append({**served[-1], user: served[-1][user] + cost})
    for user, other in pairwise(lines):
        leads = [now[user] - now[other] for now in served]
        assert max(leads) - min(leads) <= QUANTUM + 2 * LARGEST


@pytest.mark.parametrize("cost", [1, QUANTUM, 50 * QUANTUM])
def test_who_comes_with_little_waits_for_at_most_a_quantum_of_anybody_else(cost: int) -> None:
    queue = filled({"alice": [cost] * 1_000})
    queue.put("bob", ("bob", 0, 1), cost=1)
    before = 0
    while (item := queue.take())[0] != "bob":
        before += item[2]
    assert before <= QUANTUM


def test_what_is_too_long_for_a_turn_is_taken_after_some_turns() -> None:
    queue = filled({"alice": [10 * QUANTUM], "bob": [QUANTUM] * 1_000})
    order = [queue.take()[0] for _ in range(20)]
    assert 5 < order.index("alice") < 15


def test_what_waits_alone_is_taken_at_once_however_long_it_is() -> None:
    queue = filled({"alice": [1_000_000 * QUANTUM]})
    assert queue.take()[:2] == ("alice", 0)
    with pytest.raises(LookupError):
        queue.take()


def test_busy_users_are_passed_over_and_lose_nothing() -> None:
    queue: FairQueue[str] = FairQueue(QUANTUM)
    for item in ("alice's first", "alice's second", "bob's", "carol's"):
        queue.put(item.partition("'")[0], item, cost=1)
    assert queue.next(["alice"]) == queue.take(["alice"]) == "bob's"
    assert queue.next(["alice", "carol"]) is None
    with pytest.raises(LookupError):
        queue.take(["alice", "carol", "nobody"])
    assert [queue.take(["alice"]), queue.take(), queue.take()] == [
        "carol's",
        "alice's first",
        "alice's second",
    ]
    assert not queue
