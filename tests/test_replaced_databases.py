"""A database that was put back from an older copy, or begun anew: readers of the former log are told so."""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from tests.clients import HTTP, Server, database_url
from tests.events import payload
from tests.network import NetworkClient, wait_until

TALK = "/api/native/conversations/talk/events"


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
