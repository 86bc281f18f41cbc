"""What a whole run leaves to `--full`: slow tests, and all but a sample of a large grid of cases.

Whoever names a file, or chooses by -k or -m, gets all of it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest


def is_thinned(config: pytest.Config) -> bool:
    """Say whether the run takes the whole suite, and not at length."""
    is_chosen = config.args != config.getini("testpaths") or config.option.keyword or config.option.markexpr
    return not config.getoption("--full") and not is_chosen


def left_out(items: Sequence[pytest.Item], engine: str) -> set[pytest.Item]:
    """Return what is slow on this engine, and of each test marked with `sampled(n)` all cases but n."""
    left = {item for item in items if _is_slow(item, engine)}
    for cases in _sampled(items).values():
        [count] = cases[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        left.update(random.sample(cases, max(0, len(cases) - count)))
    return left


def _is_slow(item: pytest.Item, engine: str) -> bool:
    marks = item.iter_markers("slow")
    return any(mark.kwargs.get("on", engine) == engine for mark in marks)


def _sampled(items: Sequence[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Return the cases of each test that is marked with `sampled`, under the name of the test."""
    grids: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            grids[item.nodeid.partition("[")[0]].append(item)
    return grids
