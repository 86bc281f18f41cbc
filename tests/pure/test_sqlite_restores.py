"""A SQLite file that is restored: at every moment there is one whole store, the old one or the new one."""

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
from tests.clients import WAIT_S
from tests.network import wait_until

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


def make(path: Path, said: str, *, journal: str = "wal", page: int = 4096) -> Path:
    """Write a database with one row."""
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute(f"PRAGMA page_size = {page}")
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


def restore(backup: Path, live: Path) -> Path | None:
    """Return where the replaced store is."""
    target = SqliteTarget(live, "1")
    with target.alone(), target.loading(described(backup), backup):
        pass
    return Path(target.kept) if target.kept else None


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


@pytest.mark.parametrize("page", [4096, 8192])
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_the_restored_store_takes_the_place_of_the_old_one_which_is_kept_alone(
    live: Path, backup: Path, journal: str, page: int
) -> None:
    make(live, "old", journal=journal, page=page).chmod(0o640)
    kept = restore(backup, live)
    assert kept is not None
    assert (said(live), said(kept), around(live)) == (["restored"], ["old"], {"live", "live.before-1"})
    assert live.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_what_a_killed_server_has_committed_is_in_the_store_that_is_kept(
    live: Path, backup: Path, journal: str
) -> None:
    make_killed(live, "old", journal=journal)
    assert len(around(live)) > 1
    kept = restore(backup, live)
    assert kept is not None
    assert (said(live), said(kept), around(live)) == (["restored"], ["old"], {"live", "live.before-1"})


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_files_beside_a_missing_store_are_kept_and_not_read_as_those_of_the_restored_one(
    live: Path, backup: Path, journal: str
) -> None:
    make_killed(live, "old", journal=journal).unlink()
    beside = {path.name.removeprefix("live"): path.read_bytes() for path in live.parent.glob("live-*")}
    assert any(beside.values())
    assert restore(backup, live) is None
    assert said(live) == ["restored"]
    assert {ending: live.with_name(f"live.before-1{ending}").read_bytes() for ending in beside} == beside


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_damaged_store_is_replaced_and_kept_and_no_file_beside_it_is_read(
    live: Path, backup: Path, journal: str
) -> None:
    make_killed(live, "old", journal=journal).write_bytes(b"damage" * 1000)
    kept = restore(backup, live)
    assert kept is not None
    assert (said(live), kept.stat().st_size > 0) == (["restored"], True)
    assert all(name == "live" or name.startswith("live.before-1") for name in around(live))


def test_where_there_was_no_store_the_restored_one_is_put(live: Path, backup: Path) -> None:
    assert restore(backup, live) is None
    assert (said(live), around(live)) == (["restored"], {"live"})


def test_a_store_in_use_is_not_replaced(live: Path, backup: Path) -> None:
    make(live, "old")
    with closing(sqlite3.connect(live)) as user:
        user.execute("SELECT * FROM said").fetchall()
        with pytest.raises(BackupError, match="in use"):
            restore(backup, live)
    assert (said(live), around(live)) == (["old"], {"live"})


def test_a_store_that_gets_into_use_during_the_restore_is_not_replaced(live: Path, backup: Path) -> None:
    make(live, "old")
    target = SqliteTarget(live, "1")
    with closing(sqlite3.connect(live)) as user:
        with (
            pytest.raises(BackupError, match="in use"),
            target.alone(),
            target.loading(described(backup), backup),
        ):
            user.execute("SELECT * FROM said").fetchall()
        user.execute("INSERT INTO said VALUES ('acknowledged')")
        user.commit()
    assert (said(live), around(live)) == (["old", "acknowledged"], {"live"})


@pytest.mark.parametrize("moment", ["hardlink_to", "replace"])
def test_a_restore_that_is_killed_leaves_the_old_store_and_the_next_one_keeps_it_once(
    tmp_path: Path, live: Path, backup: Path, moment: str
) -> None:
    make(live, "old")
    command = [sys.executable, "-c", RESTORE, *map(str, (backup, live, tmp_path / "held")), moment]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as restoring:
        wait_until((tmp_path / "held").exists)
        restoring.send_signal(SIGKILL)
    assert restoring.returncode == -SIGKILL
    assert "live.restoring-1" in around(live)
    assert said(live) == ["old"]
    kept = restore(backup, live)
    assert kept is not None
    assert (said(live), said(kept), around(live)) == (["restored"], ["old"], {"live", "live.before-1"})


def test_an_older_kept_store_stays(live: Path, backup: Path) -> None:
    make(live, "old")
    older = make(live.with_name("live.before-0"), "older")
    restore(backup, live)
    assert said(older) == ["older"]


def test_a_backup_that_changes_while_it_is_read_is_refused(live: Path, backup: Path) -> None:
    make(live, "old")
    found = described(backup)
    with closing(sqlite3.connect(backup)) as changed:
        changed.execute("UPDATE said SET text = 'another'")
        changed.commit()
    target = SqliteTarget(live, "1")
    with pytest.raises(BackupError, match="changed while"), target.alone(), target.loading(found, backup):
        pass
    assert (said(live), around(live)) == (["old"], {"live"})


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


def test_what_is_no_file_is_refused_in_a_sentence(live: Path, backup: Path) -> None:
    live.mkdir()
    with pytest.raises(BackupError, match="cannot be opened"):
        restore(backup, live)
