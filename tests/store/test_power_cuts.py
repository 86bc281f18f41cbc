"""Files beside the database outlive a power cut once somebody relies on them."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.engines.sqlite3 import settled_logs
from convserver import configuration, last_database
from faults.instances import Missing
from faults.power.installations import ForgetfulDisk
from faults.programs import ROOT
from sessions_app.imports.uploads import pieces, runs
from sessions_app.imports.uploads.runs import NewImport
from tests.conftest import on_sqlite

pytestmark = pytest.mark.no_second_try

NAMES = "abcdefgh"
"""Of each there are so many: chance keeps some of what is not synced, and hardly all of it."""
SEED = 7


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[ForgetfulDisk]:
    """A disk that forgets what was not synced, in the directory `disk`."""
    try:
        disk = ForgetfulDisk(tmp_path / "disk", syncs_names=False)
    except Missing as missing:
        pytest.skip(str(missing))
    yield disk
    disk.close()


def test_a_generated_secret_key_outlives_a_power_cut(tmp_path: Path, disk: ForgetfulDisk) -> None:
    environments = [{"CONVSERVER_DATA_DIR": str(tmp_path / "disk" / name / "data")} for name in NAMES]
    keys = [configuration.read(each).secret_key for each in environments]
    disk.cut(SEED)
    assert [configuration.read(each).secret_key for each in environments] == keys


def test_the_name_of_the_database_outlives_a_power_cut(
    tmp_path: Path, disk: ForgetfulDisk, caplog: pytest.LogCaptureFixture
) -> None:
    directories = [tmp_path / "disk" / name for name in NAMES]
    for directory in directories:
        last_database.record(f"the first of {directory.name}", directory, is_new=True)
    disk.cut(SEED)
    with caplog.at_level(logging.WARNING):
        for directory in directories:
            last_database.record("the second", directory, is_new=True)
    assert [name for name in NAMES if f"the first of {name}" not in caplog.text] == []


@on_sqlite
def test_a_piece_that_was_acknowledged_outlives_a_power_cut(
    tmp_path: Path, disk: ForgetfulDisk, alice: User, configured: Callable[..., None]
) -> None:
    configured(data_dir=tmp_path / "disk" / "data")
    new = [NewImport(file_name=f"{name}.zip", size=7) for name in NAMES]
    uploads = [runs.begin(alice.pk, each) for each in new]
    assert [pieces.put(run, 0, b"a piece") for run in uploads] == [7] * len(NAMES)
    disk.cut(SEED)
    for run in uploads:
        assert (pieces.directory_of(run) / run.file_name).read_bytes() == b"a piece"


WRITER = """
import os, sqlite3, sys

path, word = sys.argv[1:]
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA synchronous = FULL")
connection.execute("CREATE TABLE IF NOT EXISTS said (word TEXT, more TEXT)")
try:
    connection.execute("INSERT INTO said VALUES (?, ?)", (word, word * 5_000))
except sqlite3.OperationalError:
    word = "an error"
print(word, flush=True)
os._exit(0)  # as a kill: the log stays
"""
SERVER = """
import os, sys
from django.conf import settings

path, word = sys.argv[1:]
options = {"init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"}
database = {"ENGINE": "conversations.engines.sqlite3", "NAME": path, "OPTIONS": options}
settings.configure(DATABASES={"default": database})

from django.db import connection

with connection.cursor() as cursor:
    cursor.execute("INSERT INTO said VALUES (%s, %s)", [word, word * 5_000])
print(word, flush=True)
os._exit(0)
"""


def test_a_log_beside_an_empty_database_is_not_needed(tmp_path: Path) -> None:
    database, log = tmp_path / "db.sqlite3", tmp_path / "db.sqlite3-wal"
    log.write_bytes(b"of another file")
    settled_logs.settle(str(database), wait_s=1.0)
    database.touch()
    log.write_bytes(b"of another file")
    settled_logs.settle(str(database), wait_s=1.0)
    assert not log.exists()  # SQLite removes it


def test_the_log_of_a_database_that_is_opened_by_a_link_is_settled_too(tmp_path: Path) -> None:
    database, link = tmp_path / "db.sqlite3", tmp_path / "link.sqlite3"
    database.touch()
    link.symlink_to(database)
    log = tmp_path / "db.sqlite3-wal"
    log.write_bytes(b"of another file")
    settled_logs.settle(str(link), wait_s=1.0)
    assert not log.exists()


def test_what_is_committed_after_a_failed_sync_and_a_kill_outlives_a_power_cut(
    tmp_path: Path, disk: ForgetfulDisk
) -> None:
    def written(path: Path, word: str, program: str = WRITER) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, str(path), word],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    files = [tmp_path / "disk" / f"{name}.sqlite3" for name in NAMES]
    assert {written(file, "one") for file in files} == {"one"}
    disk.sync()
    disk.fail_syncs(SEED)
    assert {written(file, "two") for file in files} == {"an error"}
    disk.mend_syncs()
    assert {written(file, "three", SERVER) for file in files} == {"three"}
    disk.cut(SEED)
    for file in files:
        with closing(sqlite3.connect(file)) as connection:
            words = {word for (word,) in connection.execute("SELECT word FROM said")}
        assert words >= {"one", "three"}
