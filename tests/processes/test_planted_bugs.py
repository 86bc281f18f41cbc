"""The fault suite notices a bug that is planted in a server, and finds nothing wrong without it."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from django.utils.module_loading import import_string

from faults.checker.judge import Rule
from faults.planted import BUGS
from faults.suite import on_both, planted
from faults.suite.installations import OnSQLite
from faults.suite.planted import started
from faults.suite.rounds import IN_STORE, Result, Rounds

pytestmark = [pytest.mark.one_engine, pytest.mark.no_second_try]
CUT = "connections of clients reset"


def test_a_bug_replaces_a_function_that_exists(subtests: pytest.Subtests) -> None:
    for bug in BUGS:
        with subtests.test(bug=bug):
            module = import_module(f"faults.planted.{bug}")
            place, _, name = module.REPLACES.rpartition(".")
            try:
                owner = import_module(place)
            except ModuleNotFoundError:
                owner = import_string(place)
            assert isinstance(getattr(owner, name), Callable)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_without_a_bug_nothing_is_wrong_and_with_one_it_is_named(
    database: None, tmp_path: Path
) -> None:
    (cut,) = (fault for fault in on_both.FAULTS if fault.name == CUT)
    found: dict[str | None, Result] = {}
    for bug in (None, "digest_not_chained", "retry_without_key"):
        place = tmp_path / str(bug)
        place.mkdir()
        async with started(OnSQLite, place, planted=bug) as installation:
            found[bug] = Result()
            rounds = Rounds(installation, random.Random(7))
            for _ in range(planted.TRIES if bug else 1):
                found[bug].add(await rounds.run(cut, 2))
                if found[bug].broken:
                    break
    assert found[None].sentences == []
    assert found[None].acknowledged > 0
    assert set(found["digest_not_chained"].broken) == {IN_STORE}
    assert set(found["retry_without_key"].broken) == {Rule.TWICE_CREATED}
