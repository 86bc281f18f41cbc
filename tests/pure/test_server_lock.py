"""Of several servers on one SQLite file, one has the right to serve it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from convserver.serving.server_lock import ServerLock


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[tuple[ServerLock, ServerLock]]:
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(closing(ServerLock(tmp_path / "convserver.sqlite3"))) for _ in range(2)
        )
        yield first, second


def test_one_server_has_the_right_and_keeps_it(locks: tuple[ServerLock, ServerLock]) -> None:
    first, second = locks
    assert (first.take(), second.take(), second.take()) == (True, False, False)


def test_another_file_in_the_same_directory_has_a_right_of_its_own(
    tmp_path: Path, locks: tuple[ServerLock, ServerLock]
) -> None:
    first, second = locks
    assert first.take()
    (tmp_path / "linked").symlink_to(tmp_path / "convserver.sqlite3")
    with closing(ServerLock(tmp_path / "linked")) as linked, closing(ServerLock(tmp_path / "other")) as other:
        assert (linked.take(), other.take(), second.take()) == (False, True, False)


def test_the_next_one_gets_it_when_the_first_has_ended(locks: tuple[ServerLock, ServerLock]) -> None:
    first, second = locks
    assert (first.take(), second.take()) == (True, False)
    first.close()
    assert second.take()


def test_where_no_lock_can_be_had_each_server_serves(tmp_path: Path) -> None:
    for _ in range(2):
        assert ServerLock(tmp_path / "missing" / "convserver.sqlite3").take()
