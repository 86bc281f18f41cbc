"""A SQLite file that is restored: nobody ever has the old one and the new one together."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from signal import SIGKILL

import pytest

from conversations.engines.sqlite3.base import DatabaseWrapper
from conversations.engines.sqlite3.files import FileGone
from convserver.backups import sqlite_file
from convserver.backups.failures import BackupError
from convserver.backups.sqlite_target import SqliteTarget
from tests.clients import WAIT_S
from tests.network import wait_until

BIG = 8_000
"""Rows of 4 kB: their restore can be killed in the middle."""
RESTORE = """
import sys
from pathlib import Path
from conversations.engines.sqlite3.base import DatabaseWrapper
from conversations.engines.sqlite3.files import FileGone
from convserver.backups import sqlite_file
restored, live, kept = map(Path, sys.argv[1:])
with sqlite_file.alone_with(live) as place:
    sqlite_file.swap(restored, place, kept)
"""


def make(path: Path, said: str, *, journal: str = "wal", page: int = 4096, rows: int = 1) -> Path:
    """Write a database that says the same in each of its rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute(f"PRAGMA page_size = {page}")
        made.execute(f"PRAGMA journal_mode = {journal}")
        made.execute("CREATE TABLE said (text)")
        made.execute("BEGIN")
        made.executemany("INSERT INTO said VALUES (?)", [(said,)] * rows)
        made.execute("COMMIT")
    return path


def said(path: Path) -> list[str]:
    """Return what a database says, once for all rows that say the same."""
    with closing(sqlite3.connect(path)) as asked:
        assert asked.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [text for (text,) in asked.execute("SELECT DISTINCT text FROM said ORDER BY rowid")]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "live.before-1"


def swap(restored: Path, live: Path, kept: Path) -> Path | None:
    with sqlite_file.alone_with(live) as place:
        return sqlite_file.swap(restored, place, kept)


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_who_waits_during_a_restore_goes_on_with_what_was_restored(
    tmp_path: Path, kept: Path, journal: str
) -> None:
    live, restored = make(tmp_path / "live", "old", journal=journal), make(tmp_path / "restored", "restored")
    with sqlite_file.alone_with(live) as place:
        waiter = sqlite3.connect(live, isolation_level=None)  # it has the file, and no lock yet
        assert sqlite_file.swap(restored, place, kept) == kept
    with closing(waiter):
        waiter.execute("INSERT INTO said VALUES ('acknowledged')")
    assert said(live) == ["restored", "acknowledged"]
    assert said(kept) == ["old"]
    assert sorted(path.name for path in tmp_path.iterdir() if "lock" not in path.name) == [
        "live",
        "live.before-1",
    ]


def test_nobody_gets_the_store_while_it_is_restored(tmp_path: Path, kept: Path) -> None:
    live = make(tmp_path / "live", "old")
    with (
        sqlite_file.alone_with(live),
        closing(sqlite3.connect(live, timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("SELECT * FROM said")


def test_a_store_in_use_is_not_restored(tmp_path: Path) -> None:
    live = make(tmp_path / "live", "old")
    with closing(sqlite3.connect(live)) as user:
        user.execute("SELECT * FROM said").fetchall()
        with pytest.raises(BackupError, match="in use"), sqlite_file.alone_with(live):
            pass


def test_a_restore_that_is_killed_while_it_writes_leaves_the_old_store(tmp_path: Path, kept: Path) -> None:
    live = make(tmp_path / "live", "old")
    restored = make(tmp_path / "restored", "r" * 4000, rows=BIG)
    command = [sys.executable, "-c", RESTORE, *map(str, (restored, live, kept))]
    written = tmp_path / "live-wal"
    with subprocess.Popen(command) as restoring:
        wait_until(lambda: written.exists() and written.stat().st_size > 100_000)
        restoring.send_signal(SIGKILL)
    assert restoring.returncode == -SIGKILL
    assert (said(live), said(kept)) == (["old"], ["old"])


def test_a_store_with_pages_of_another_size_is_not_touched(tmp_path: Path, kept: Path) -> None:
    live, restored = make(tmp_path / "live", "old", page=8192), make(tmp_path / "restored", "restored")
    with pytest.raises(BackupError, match="pages of 8192 bytes"):
        swap(restored, live, kept)
    assert (said(live), kept.exists()) == (["old"], False)


def test_where_there_was_no_store_the_restored_one_is_put(tmp_path: Path, kept: Path) -> None:
    restored, live = make(tmp_path / "restored", "restored"), tmp_path / "live"
    assert swap(restored, live, kept) is None
    assert (said(live), restored.exists(), kept.exists()) == (["restored"], False, False)


def test_a_store_that_was_made_during_the_restore_stays(tmp_path: Path, kept: Path) -> None:
    restored, live = make(tmp_path / "restored", "restored"), tmp_path / "live"
    with sqlite_file.alone_with(live) as place:
        make(live, "new")
        with pytest.raises(BackupError, match="was created meanwhile"):
            sqlite_file.swap(restored, place, kept)
    assert said(live) == ["new"]


def test_a_log_without_its_store_is_kept_apart(tmp_path: Path, kept: Path) -> None:
    live = tmp_path / "live"
    (tmp_path / "live-wal").write_bytes(b"log")
    swap(make(tmp_path / "restored", "restored"), live, kept)
    assert said(live) == ["restored"]
    assert (tmp_path / "live.before-1-wal").read_bytes() == b"log"


def test_a_damaged_store_is_replaced_and_kept(tmp_path: Path, kept: Path) -> None:
    live = tmp_path / "live"
    live.write_bytes(b"damage" * 1000)
    assert swap(make(tmp_path / "restored", "restored"), live, kept) == kept
    assert (said(live), kept.read_bytes()) == (["restored"], b"damage" * 1000)


def test_a_second_name_of_the_store_that_a_killed_restore_has_left_is_removed(tmp_path: Path) -> None:
    live = make(tmp_path / "live", "old")
    second, real = tmp_path / "live.before-1", make(tmp_path / "live.before-0", "older")
    os.link(live, second)
    with SqliteTarget(live, "2").alone():
        assert (second.exists(), real.exists()) == (False, True)


def test_a_server_that_waits_while_its_file_is_replaced_does_not_pair_it_with_the_new_log(
    tmp_path: Path,
) -> None:
    live, new = make(tmp_path / "live", "old"), make(tmp_path / "new", "new")
    wrapper = DatabaseWrapper({"NAME": str(live), "OPTIONS": {"timeout": WAIT_S}}, "waiting")
    options = wrapper.get_connection_params()
    with closing(sqlite3.connect(live, isolation_level=None)) as locked, ThreadPoolExecutor(1) as thread:
        locked.execute("PRAGMA locking_mode = EXCLUSIVE")
        locked.execute("BEGIN IMMEDIATE")
        waiting = thread.submit(wrapper.get_new_connection, options)
        wait_until(lambda: times_open(live) == 2)
        new.replace(live)
        locked.execute("COMMIT")
        locked.close()
        with pytest.raises(FileGone):
            waiting.result()
    with closing(wrapper.get_new_connection(options)) as again:
        assert again.execute("SELECT text FROM said").fetchall() == [("new",)]


def times_open(path: Path) -> int:
    """Return how often this process has opened a file."""
    names = (os.path.realpath(each) for each in Path("/proc/self/fd").iterdir())
    return sum(name == str(path) for name in names)


def test_what_is_no_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    with pytest.raises(BackupError, match="cannot be opened"), sqlite_file.alone_with(tmp_path / "live"):
        pass
