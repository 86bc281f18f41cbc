"""A database that was put back from an older copy, or begun anew: readers of the former log are told so."""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from convserver import last_database
from tests.support.data.events import payload
from tests.support.people.clients import HTTP, Server, database_url, program_environment
from tests.support.runner import forks
from tests.support.wires.network import NetworkClient, wait_until

pytestmark = pytest.mark.no_second_try

TALK = "/api/native/conversations/talk/events"
ANEW = "is new and empty"


class Replaceable(ABC):
    """A database of one server: copied and replaced while the server does not run."""

    url: str

    @abstractmethod
    def keep(self) -> None:
        """Copy it."""

    @abstractmethod
    def put_back(self) -> None:
        """Put the copy into its place."""

    @abstractmethod
    def empty(self) -> None:
        """Put a database without tables into its place."""


class File(Replaceable):
    """SQLite's."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "convserver.sqlite3"
        self.url = f"sqlite:///{self.file}"
        self._copy = directory / "copy.sqlite3"

    def keep(self) -> None:
        with closing(sqlite3.connect(self.file)) as source, closing(sqlite3.connect(self._copy)) as copy:
            source.backup(copy)

    def put_back(self) -> None:
        self.empty()
        shutil.copyfile(self._copy, self.file)

    def empty(self) -> None:
        for each in self.file.parent.glob(f"{self.file.name}*"):
            each.unlink()


class Named(Replaceable):
    """PostgreSQL's."""

    def __init__(self) -> None:
        self._name = f"replaced_{secrets.token_hex(6)}"
        self._copy = f"{self._name}_copy"
        self.url = urlunsplit(urlsplit(database_url())._replace(path=f"/{self._name}"))
        self._administer("CREATE DATABASE {}", self._name)

    def keep(self) -> None:
        wait_until(self._is_left)
        self._administer("CREATE DATABASE {} TEMPLATE {}", self._copy, self._name)

    def put_back(self) -> None:
        self._remove(self._name)
        self._administer("CREATE DATABASE {} TEMPLATE {}", self._name, self._copy)

    def empty(self) -> None:
        self._remove(self._name)
        self._administer("CREATE DATABASE {}", self._name)

    def remove(self) -> None:
        self._remove(self._name)
        self._remove(self._copy)

    def _remove(self, name: str) -> None:
        self._administer("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _is_left(self) -> bool:
        """Say whether the server that was killed has no connection any more."""
        there = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        with closing(self._outside()) as outside:
            return outside.execute(there, [self._name]).fetchone() == (0,)

    def _administer(self, statement: Any, *names: str) -> None:
        with closing(self._outside()) as outside:
            outside.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _outside(self) -> psycopg.Connection[Any]:
        return psycopg.connect(database_url(), autocommit=True)


@pytest.fixture
def replaceable(database: None, tmp_path: Path) -> Iterator[Replaceable]:
    """A database of this test's own, without tables."""
    if connection.vendor == "sqlite":
        yield File(tmp_path)
        return
    named = Named()
    yield named
    named.remove()


def record(server: Server, text: str, count: int) -> str:
    """Append events, and return the cursor of the last one."""
    items = [{"id": f"{text}-{number}", "event": json.loads(payload(text))} for number in range(count)]
    HTTP.post(f"{server.url}{TALK}", json={"type": "events", "events": items}).raise_for_status()
    cursor: str = log(server)[-1]["cursor"]
    return cursor


def log(server: Server) -> list[dict[str, Any]]:
    """Return all events."""
    answer = HTTP.get(f"{server.url}{TALK}")
    answer.raise_for_status()
    events: list[dict[str, Any]] = answer.json()["events"]
    return events


def told(server: Server, after: str) -> tuple[list[str], list[int]]:
    """Return what a reader who comes with this cursor is told by errors, and the seqs that it is sent."""
    with NetworkClient(server, f"/ws/conversations/talk?after={after}") as client:
        client.until("replay_complete")
    return (
        [frame["code"] for frame in client.frames if frame["type"] == "error"],
        [frame["seq"] for frame in client.frames if frame["type"] == "event"],
    )


def refused(server: Server, after: str) -> tuple[int, str]:
    """Return what the same reader is answered by REST: a status and a code."""
    answer = HTTP.get(f"{server.url}{TALK}", params={"after": after})
    return answer.status_code, answer.json().get("code", "")


@pytest.mark.slow
def test_a_reader_of_a_log_that_was_put_back_is_told_so_however_long_it_has_become(
    server: Server, replaceable: Replaceable
) -> None:
    server.start(DATABASE_URL=replaceable.url)
    HTTP.post(f"{server.url}/api/native/conversations", json={"id": "talk"}).raise_for_status()
    common = record(server, "first", 3)
    server.kill()
    replaceable.keep()
    server.start(DATABASE_URL=replaceable.url)
    lost = record(server, "lost", 3)
    assert told(server, common) == ([], [3, 4, 5])
    server.kill()
    replaceable.put_back()
    server.start(DATABASE_URL=replaceable.url)

    for after in (lost, "5"):
        assert told(server, after) == (["cursor_ahead"], [])
        assert refused(server, after) == (410, "cursor_ahead")

    record(server, "other", 4)
    assert told(server, lost) == (["history_replaced"], [])
    assert refused(server, lost) == (410, "history_replaced")

    assert told(server, common) == ([], [3, 4, 5, 6])
    assert told(server, "-1") == ([], list(range(7)))
    assert [event["id"] for event in log(server)][3:] == [f"other-{number}" for number in range(4)]
    assert ANEW not in server.log.read_text()


@pytest.mark.slow(on="postgresql")
def test_a_start_on_an_empty_database_where_one_was_used_says_so_and_tells_its_readers(
    server: Server, replaceable: Replaceable
) -> None:
    server.start(DATABASE_URL=replaceable.url)
    HTTP.post(f"{server.url}/api/native/conversations", json={"id": "talk"}).raise_for_status()
    lost = record(server, "lost", 3)
    server.kill()
    assert ANEW not in server.log.read_text()
    replaceable.empty()
    server.start(DATABASE_URL=replaceable.url)
    (line,) = [line for line in server.log.read_text().splitlines() if ANEW in line]
    assert "[warning]" in line
    assert server.environment["CONVSERVER_DATA_DIR"] in line
    assert told(server, lost) == (["cursor_ahead"], [])


# What a start says of an empty database


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Callable[..., list[str]]:
    """Let a start with this database happen, which is new or not; return what it says."""

    def start(name: str, *, is_new: bool, directory: Path = tmp_path) -> list[str]:
        caplog.clear()
        last_database.record(name, directory, is_new=is_new)
        return [record.getMessage() for record in caplog.records]

    return start


Said = Callable[..., list[str]]


@pytest.mark.one_engine
def test_a_first_start_and_one_on_a_database_that_is_there_say_nothing(said: Said) -> None:
    assert said("talks at db:5432", is_new=True) == []
    assert said("talks at db:5432", is_new=False) == []
    assert said("copy at db:5432", is_new=False) == []


@pytest.mark.one_engine
def test_an_empty_database_in_place_of_another_is_said_once(said: Said, tmp_path: Path) -> None:
    said("talks at db:5432", is_new=True)
    (sentence,) = said("talks at db:5432", is_new=True)
    assert sentence.startswith(
        f"The database talks at db:5432 is new and empty, but {tmp_path} was used before"
    )
    assert said("talks at db:5432", is_new=False) == []


@pytest.mark.one_engine
def test_an_empty_database_at_another_address_is_said_with_the_former_one(said: Said) -> None:
    said("/var/lib/convserver.sqlite3", is_new=True)
    (sentence,) = said("talks at db:5432", is_new=True)
    assert "was used with /var/lib/convserver.sqlite3 before" in sentence
    assert said("talks at db:5432", is_new=False) == []


@pytest.mark.one_engine
def test_a_data_directory_that_cannot_be_written_hinders_no_start(said: Said, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        assert said("talks at db:5432", is_new=True, directory=tmp_path / "file") == []


@pytest.mark.one_engine
@pytest.mark.slow
def test_migrate_by_hand_says_it_too_and_keeps_no_password(tmp_path: Path) -> None:
    environment = {**program_environment(tmp_path), "DATABASE_URL": f"sqlite:///{tmp_path}/talks.sqlite3"}
    kept = tmp_path / "data" / last_database.LAST_DATABASE
    kept.parent.mkdir()
    kept.write_text("talks at db:5432\n")
    ended = forks.run(["convserver", "manage", "migrate", "--verbosity=0"], environment)
    assert ended.stderr.count("was used with talks at db:5432 before") == 1
    assert kept.read_text() == f"{tmp_path}/talks.sqlite3\n"


def test_a_database_is_named_without_user_and_password(database: None) -> None:
    name = last_database.name_of(connection)
    assert connection.settings_dict["NAME"] in name
    assert "postgres@" not in name
