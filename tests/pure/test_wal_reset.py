"""A checkpoint that meets a commit: with the library of convserver, no commit is lost."""

from __future__ import annotations

import sqlite3

import pytest

from faults import wal_reset
from faults.suite import page
from faults.suite.results import Results

pytestmark = pytest.mark.no_second_try


def test_no_commit_is_lost_that_a_checkpoint_meets() -> None:
    tried = wal_reset.tried(300, own=False)
    assert (tried.version, tried.tries, tried.lost) == (sqlite3.sqlite_version, 300, 0)


def test_the_page_says_what_each_library_lost() -> None:
    results = Results()
    results.take_races(
        [
            wal_reset.Tried(version="3.53.4", tries=1_000_000, lost=0),
            wal_reset.Tried(version="3.40.1", tries=48_675, lost=1),
        ]
    )
    text = "\n".join(page._races(results.races))
    assert "| SQLite 3.53.4 | 1,000,000 | 0 |\n| SQLite 3.40.1 | 48,675 | 1 |" in text
    assert "No library has shown the loss" not in text
