"""Two servers on one SQLite file: the second says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from convserver.serving.neighbours import announced

ANOTHER = "Another server is running on"


def test_a_server_says_that_another_one_works_on_the_same_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = tmp_path / "convserver.sqlite3"
    with announced(database):
        assert ANOTHER not in caplog.text
        with announced(database):
            assert f"{ANOTHER} {database}" in caplog.text
        caplog.clear()
        with announced(database):  # as long as one of them is left
            assert ANOTHER in caplog.text


def test_a_server_that_has_ended_is_not_mentioned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = tmp_path / "convserver.sqlite3"
    for _ in range(2):
        with announced(database):
            assert ANOTHER not in caplog.text


def test_where_no_lock_can_be_had_the_server_starts_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with announced(tmp_path / "missing" / "convserver.sqlite3"):
        assert not caplog.text
