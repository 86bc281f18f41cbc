"""Which accounts of the machine may read the server's files: the one that runs it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from convserver import private_files
from tests.support.people.clients import Server, program_environment
from tests.support.runner import forks

pytestmark = pytest.mark.one_engine

OTHER_ACCOUNT = 65_534


def rights(path: Path) -> str:
    return stat.filemode(path.stat().st_mode)


def files_of(data_dir: Path) -> dict[str, str]:
    return {path.name: rights(path) for path in data_dir.iterdir()}


def start(server: Server) -> None:
    """Start it with a SQLite file and a secret key of its own, as in a new installation."""
    server.start(DATABASE_URL="", SECRET_KEY="")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def open_to_all(data_dir: Path) -> None:
    """Make a data directory as a program without a care would."""
    data_dir.mkdir()
    for name in ("convserver.sqlite3", "convserver.sqlite3-wal", "secret_key"):
        (data_dir / name).touch()
        (data_dir / name).chmod(0o644)
    data_dir.chmod(0o755)


@pytest.mark.parametrize("umask", [0o022, 0])
@pytest.mark.sampled(1)
def test_what_the_server_creates_only_its_own_account_can_read(server: Server, umask: int) -> None:
    before = os.umask(umask)
    try:
        start(server)
    finally:
        os.umask(before)
    data_dir = server.log.parent / "data"
    found = files_of(data_dir)
    assert {"convserver.sqlite3", "convserver.sqlite3-wal", "secret_key"} <= found.keys()
    assert {*found.values(), rights(data_dir)} == {"-rw-------", "drwx------"}


@pytest.mark.slow
def test_a_start_takes_from_others_the_rights_that_they_had_and_says_so_once(server: Server) -> None:
    start(server)
    server.stop()
    data_dir = server.log.parent / "data"
    for path in data_dir.iterdir():
        path.chmod(0o644)
    data_dir.chmod(0o755)
    start(server)
    assert {*files_of(data_dir).values(), rights(data_dir)} == {"-rw-------", "drwx------"}
    server.stop()
    start(server)
    assert server.log.read_text().count("had rights to files of the server") == 1


def test_commands_protect_the_files_as_well(data_dir: Path, tmp_path: Path) -> None:
    environment = {**program_environment(tmp_path), "DATABASE_URL": ""}
    open_to_all(data_dir)
    forks.run(["convserver", "manage", "migrate", "--plan"], environment).check_returncode()
    assert {*files_of(data_dir).values(), rights(data_dir)} == {"-rw-------", "drwx------"}


def test_a_database_outside_the_data_directory_is_protected_and_its_directory_left(
    data_dir: Path, tmp_path: Path
) -> None:
    database = tmp_path / "elsewhere" / "talks.sqlite3"
    open_to_all(data_dir)
    database.parent.mkdir()
    database.touch()
    # Afterwards, whatever this process takes from what it creates.
    database.parent.chmod(0o755)
    database.chmod(0o640)
    private_files.protect(data_dir, database)
    assert (rights(database), rights(database.parent)) == ("-rw-------", "drwxr-xr-x")


def test_rights_of_the_own_account_stay_as_they_are(data_dir: Path) -> None:
    open_to_all(data_dir)
    (data_dir / "secret_key").chmod(0o444)
    private_files.protect(data_dir, None)
    assert rights(data_dir / "secret_key") == "-r--------"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another account")
def test_files_of_another_account_are_named_and_left(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    open_to_all(data_dir)
    os.chown(data_dir / "secret_key", OTHER_ACCOUNT, -1)
    private_files.protect(data_dir, None)
    assert rights(data_dir / "secret_key") == "-rw-r--r--"
    [repaired, left] = [record.getMessage() for record in caplog.records]
    assert (str(data_dir / "secret_key") in repaired, str(data_dir / "secret_key") in left) == (False, True)


def test_a_directory_that_many_accounts_share_stays_open_to_them(data_dir: Path) -> None:
    open_to_all(data_dir)
    data_dir.chmod(0o1777)
    private_files.protect(data_dir, data_dir / "convserver.sqlite3")
    assert (rights(data_dir), rights(data_dir / "convserver.sqlite3")) == ("drwxrwxrwt", "-rw-------")
