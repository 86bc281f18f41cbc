"""A SQLite file that is restored into an empty place: it is there whole, or not at all."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from signal import SIGKILL

import pytest
from pytest_django import DjangoDbBlocker

from conversations.engines.sqlite3.base import DatabaseWrapper
from conversations.engines.sqlite3.files import FileGone
from convserver.backups import manifest
from convserver.backups.failures import BackupError
from convserver.backups.manifest import Manifest
from convserver.backups.sqlite_target import COMPANIONS, SqliteTarget
from convserver.serving.server_lock import ServerLock
from tests.support.people.clients import WAIT_S
from tests.support.wires.network import wait_until

RESTORE = """
import sys
from pathlib import Path
import django
django.setup()
from tests.pure.test_sqlite_restores import restore
def hold(*_):
    held.touch()
    sys.stdin.read()
backup, live, held = map(Path, sys.argv[1:4])
setattr(Path, sys.argv[4], hold)
restore(backup, live)
"""
"""A restore that stops before its first call of a method of paths."""


@pytest.fixture(autouse=True)
def _files_may_be_opened(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


def make(path: Path, said: str, *, journal: str = "wal") -> Path:
    """Write a database with one row."""
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute(f"PRAGMA journal_mode = {journal}")
        made.execute("CREATE TABLE said (text)")
        made.execute("INSERT INTO said VALUES (?)", (said,))
    return path


def make_killed(path: Path, said: str, *, journal: str = "wal") -> Path:
    """Write the same as a process leaves it that is killed: with files beside it."""
    open_one = make(path.with_name("open"), "nothing yet", journal=journal)
    with closing(sqlite3.connect(open_one, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_spill = 1")
        writer.execute("UPDATE said SET text = ?", (said,))
        if journal == "delete":  # a transaction that has written into the file, and has not ended
            writer.execute("PRAGMA cache_size = 2")
            writer.execute("BEGIN")
            writer.execute("UPDATE said SET text = 'half'")
            writer.executemany("INSERT INTO said VALUES (?)", [("half" * 900,)] * 50)
        for ending in ("", *COMPANIONS):
            if (found := open_one.with_name(f"open{ending}")).exists():
                shutil.copy(found, path.with_name(f"{path.name}{ending}"))
    for left in path.parent.glob("open*"):
        left.unlink()
    return path


def said(path: Path) -> list[str]:
    """Return what a database says."""
    with closing(sqlite3.connect(path)) as asked:
        assert asked.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [text for (text,) in asked.execute("SELECT text FROM said ORDER BY rowid")]


def described(backup: Path) -> Manifest:
    return Manifest(
        version="1",
        engine="sqlite",
        made_at="",
        installation="",
        migrations=[],
        counts={},
        heads="",
        files={backup.name: manifest.described(backup)},
    )


def restore(backup: Path, live: Path) -> None:
    target = SqliteTarget(live)
    with target.alone(), target.loading(described(backup), backup):
        pass


def around(live: Path) -> set[str]:
    """Return the names of all files that are there, but for that of the lock."""
    return {path.name for path in live.parent.iterdir() if not path.name.endswith("lock")}


@pytest.fixture
def live(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "live"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return make(tmp_path / "backup" / "database.sqlite3", "restored")


def test_the_restored_store_is_put_into_an_empty_place(live: Path, backup: Path) -> None:
    restore(backup, live)
    assert (said(live), around(live)) == (["restored"], {"live"})


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_into_the_place_of_a_store_nothing_is_restored_and_every_file_stays_as_it_is(
    live: Path, backup: Path, journal: str
) -> None:
    make_killed(live, "old", journal=journal)
    assert len(before := {path.name: path.read_bytes() for path in live.parent.iterdir()}) > 1
    with pytest.raises(BackupError, match="stop the server, and move live and live-"):
        restore(backup, live)
    assert {path.name: path.read_bytes() for path in live.parent.iterdir()} == before
    assert said(live) == ["old"]


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_files_beside_a_missing_store_are_not_read_as_those_of_the_restored_one(
    live: Path, backup: Path, journal: str
) -> None:
    make_killed(live, "old", journal=journal).unlink()
    beside = {path.name: path.read_bytes() for path in live.parent.iterdir()}
    assert any(beside.values())
    with pytest.raises(BackupError, match="away together"):
        restore(backup, live)
    assert {path.name: path.read_bytes() for path in live.parent.iterdir()} == beside


@pytest.mark.parametrize("content", [b"", b"damage" * 1000], ids=["empty", "damaged"])
def test_a_file_that_is_no_store_is_not_replaced(live: Path, backup: Path, content: bytes) -> None:
    live.write_bytes(content)
    with pytest.raises(BackupError, match="move live away"):
        restore(backup, live)
    assert live.read_bytes() == content


def test_a_server_that_starts_is_not_restored_below(live: Path, backup: Path) -> None:
    target = SqliteTarget(live)
    with closing(ServerLock(live)) as server:
        assert server.take()
        with pytest.raises(BackupError, match="stop it"), target.alone():
            pass
    assert around(live) == set()


def test_a_store_that_appears_during_the_restore_is_not_replaced(live: Path, backup: Path) -> None:
    target = SqliteTarget(live)
    with (
        pytest.raises(BackupError, match="move live away"),
        target.alone(),
        target.loading(described(backup), backup),
    ):
        make(live, "acknowledged", journal="delete")
    assert (said(live), around(live)) == (["acknowledged"], {"live"})


def test_a_restore_that_is_killed_leaves_the_place_empty_and_the_next_one_succeeds(
    tmp_path: Path, live: Path, backup: Path
) -> None:
    command = [sys.executable, "-c", RESTORE, *map(str, (backup, live, tmp_path / "held")), "replace"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as restoring:
        wait_until((tmp_path / "held").exists)
        restoring.send_signal(SIGKILL)
    assert restoring.returncode == -SIGKILL
    assert around(live) == {"live.restoring"}
    restore(backup, live)
    assert (said(live), around(live)) == (["restored"], {"live"})


def test_a_backup_that_changes_while_it_is_read_is_refused(live: Path, backup: Path) -> None:
    found = described(backup)
    with closing(sqlite3.connect(backup)) as changed:
        changed.execute("UPDATE said SET text = 'another'")
        changed.commit()
    target = SqliteTarget(live)
    with pytest.raises(BackupError, match="changed while"), target.alone(), target.loading(found, backup):
        pass
    assert around(live) == set()


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
