"""What a whole run of the suite leaves to `--full`."""

from __future__ import annotations

import pytest

from tests.support.runner.thinning import left_out


def item(request: pytest.FixtureRequest, name: str, *marks: pytest.MarkDecorator) -> pytest.Item:
    """Return a test of this name, in this file."""
    function: pytest.Function = pytest.Function.from_parent(
        request.node.parent, name=name, callobj=lambda: None
    )
    for mark in marks:
        function.add_marker(mark)
    return function


def test_a_slow_test_is_left_on_every_engine_or_on_the_one_that_is_named(
    request: pytest.FixtureRequest,
) -> None:
    everywhere = item(request, "test_one", pytest.mark.slow)
    there = item(request, "test_two", pytest.mark.slow(on="postgresql"))
    quick = item(request, "test_three")
    items = [everywhere, there, quick]
    assert left_out(items, "sqlite") == {everywhere}
    assert left_out(items, "postgresql") == {everywhere, there}


def test_of_a_grid_so_many_cases_are_taken_as_its_mark_says_and_each_is_at_some_time(
    request: pytest.FixtureRequest,
) -> None:
    cases = {item(request, f"test_grid[{number}]", pytest.mark.sampled(3)) for number in range(10)}
    few = {item(request, f"test_few[{number}]", pytest.mark.sampled(3)) for number in range(2)}
    taken: set[pytest.Item] = set()
    for _ in range(200):
        left = left_out([*cases, *few], "sqlite")
        assert left < cases
        assert len(cases - left) == 3
        taken |= cases - left
    assert taken == cases
