"""Databases of each engine, made for one run and removed after it, and filled without the server."""

from __future__ import annotations

import os
import secrets
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from benchmarks import event

DATABASE_URL = os.environ.get("TEST_DATABASE_URL") or "postgresql://postgres@127.0.0.1:5432/postgres"
"""The PostgreSQL in which databases are made."""
TEMPLATE_ID = "benchmark-template"
"""The public id of a conversation that the server made; the others are copies of its row."""
_CHAIN = "benchmark_chain"
"""The ids and digests of a log that is copied, while that is done."""
_AT_ONCE = 2_000
"""A statement that fills it has so many rows."""
REPOSITORIES = 10
REPOSITORY = "example/repository-"
"""The conversations of a list are of so many repositories, in turns; a number ends the name."""


class Database(ABC):
    """What the measurements ask of an engine."""

    engine: ClassVar[str]
    now: ClassVar[str]
    """SQL for the present moment, as the engine stores one."""
    new_id: ClassVar[str]
    """SQL for a new event id of 32 hex digits."""
    url: str

    @abstractmethod
    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run the statements in one transaction and return the rows of the last one."""

    @abstractmethod
    def locked(self, public_id: str) -> AbstractContextManager[None]:
        """Keep a conversation locked, as another program would; where rows have no locks, the whole file."""

    @abstractmethod
    def series(self, count: int) -> str:
        """Return SQL for a table `series (n)` of the numbers from 0 to `count` - 1."""

    @abstractmethod
    def minutes_ago(self, minutes: str) -> str:
        """Return SQL for the moment that lies so many minutes back, a number in SQL."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Return the version and the durability settings."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the database."""

    def fill(self, name: str, *, conversations: int, events: int, payload: str = event.PAYLOAD) -> list[str]:
        """Make conversations of so many events each and return their public ids."""
        chain = list(event.chain(events, payload))
        head = chain[-1].digest if chain else ""
        self.execute(self.copies(name, conversations, {"next_seq": str(events), "head_digest": f"'{head}'"}))
        self.execute(
            f"CREATE TABLE {_CHAIN} (n bigint PRIMARY KEY, event_id text, digest text)",
            *(
                f"INSERT INTO {_CHAIN} VALUES "
                + ", ".join(f"({each.seq}, '{each.event_id}', '{each.digest}')" for each in some)
                for some in _slices(chain)
            ),
            self._events(name, payload),
            f"DROP TABLE {_CHAIN}",
            *self.analysis("conversations_event" if events > 1000 else ""),
        )
        return [f"{name}-{n}" for n in range(conversations)]

    def give(self, name: str, username: str) -> None:
        """Let the conversations of this name be this user's."""
        self.execute(
            f"UPDATE conversations_conversation SET owner_id = (SELECT id FROM auth_user "
            f"WHERE username = '{username}') WHERE public_id LIKE '{name}-%'"
        )

    def fill_list(self, count: int) -> None:
        """Make conversations that a list shows: a minute apart, each with a repository and a loop.

        The server must have started the template's loop.
        """
        made_at = self.minutes_ago(f"{count} - n")
        times = dict.fromkeys(("created_at", "updated_at", "listed_at"), made_at)
        repository = f"'{REPOSITORY}' || (n % {REPOSITORIES})"
        empty = {"next_seq": "0", "head_digest": "''"}
        self.execute(self.copies("listed", count, {**times, **empty, "repository": repository}))
        self.execute(self._loops("listed"), *self.analysis())

    def pk_of(self, public_id: str) -> int:
        """Return the primary key of a conversation; those that `fill` made together follow each other."""
        rows = self.execute(f"SELECT id FROM conversations_conversation WHERE public_id = '{public_id}'")
        return int(rows[0][0])

    def last_seqs(self, public_ids: Sequence[str]) -> dict[str, int]:
        """Return the seq of each conversation's last event, -1 where there is none."""
        names = ", ".join(f"'{public_id}'" for public_id in public_ids)
        rows = self.execute(
            f"SELECT public_id, next_seq - 1 FROM conversations_conversation WHERE public_id IN ({names})"
        )
        return dict.fromkeys(public_ids, -1) | dict(rows)

    def copies(self, name: str, count: int, changed: Mapping[str, str]) -> str:
        """Return SQL that copies the template's row, with these columns changed; `n` counts the copies."""
        changed = {"public_id": f"'{name}-' || n", **changed}
        columns = [column for column in self._columns("conversations_conversation") if column != "id"]
        values = ", ".join(changed.get(column, f"t.{column}") for column in columns)
        return (
            f"INSERT INTO conversations_conversation ({', '.join(columns)}) SELECT {values} "
            f"FROM conversations_conversation AS t CROSS JOIN {self.series(count)} "
            f"WHERE t.public_id = '{TEMPLATE_ID}' ORDER BY n"
        )

    def _loops(self, name: str) -> str:
        """Return SQL that copies the one loop that there is for the conversations of this name."""
        columns = self._columns("sessions_app_agentloop")
        values = ", ".join("c.id" if column == "conversation_id" else f"t.{column}" for column in columns)
        return (
            f"INSERT INTO sessions_app_agentloop ({', '.join(columns)}) SELECT {values} "
            f"FROM sessions_app_agentloop AS t CROSS JOIN conversations_conversation AS c "
            f"WHERE c.public_id LIKE '{name}-%'"
        )

    def _events(self, name: str, payload: str) -> str:
        columns = event.COLUMNS | {
            "payload": f"'{payload}'",
            "size": str(len(payload)),
            "event_id": "e.event_id",
            "digest": "e.digest",
        }
        return (
            f"INSERT INTO conversations_event "
            f"(conversation_id, seq, timestamp, received_at, {', '.join(columns)}) "
            f"SELECT c.id, e.n, {self.now}, {self.now}, {', '.join(columns.values())} "
            f"FROM conversations_conversation AS c CROSS JOIN {_CHAIN} AS e "
            f"WHERE c.public_id LIKE '{name}-%' ORDER BY c.id, e.n"
        )

    @abstractmethod
    def analysis(self, table: str = "") -> Sequence[str]:
        """Return what the engine's planner learns soon by itself of a table, or of all, as statements."""

    @abstractmethod
    def _columns(self, table: str) -> Sequence[str]:
        """Return the columns of a table."""


def _slices(chain: Sequence[event.Link]) -> Iterator[Sequence[event.Link]]:
    return (chain[first : first + _AT_ONCE] for first in range(0, len(chain), _AT_ONCE))


class PostgreSQL(Database):
    """A database of its own in a running PostgreSQL."""

    engine = "PostgreSQL"
    now = "clock_timestamp()"
    new_id = "replace(CAST(gen_random_uuid() AS text), '-', '')"

    def __init__(self, server_url: str, name: str | None = None, *, template: str = "template1") -> None:
        """Create a database as a copy of another; if there is one with this name, it is used as it is."""
        self._server_url = server_url
        self.name = name or f"convserver_benchmark_{secrets.token_hex(6)}"
        self.url = urlsplit(server_url)._replace(path=f"/{self.name}").geturl()
        with suppress(psycopg.errors.DuplicateDatabase):
            names = (sql.Identifier(self.name), sql.Identifier(template))
            self._administer(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run the statements; see Database."""
        with psycopg.connect(self.url) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def locked(self, public_id: str) -> Iterator[None]:
        """Lock its row; see Database."""
        with psycopg.connect(self.url) as connection:
            select = "SELECT 1 FROM conversations_conversation WHERE public_id = %s FOR UPDATE"
            connection.execute(select, [public_id])
            yield

    def series(self, count: int) -> str:
        """Return a table; see Database."""
        return f"generate_series(0, {count - 1}) AS series (n)"

    def minutes_ago(self, minutes: str) -> str:
        """Return a moment; see Database."""
        return f"{self.now} - ({minutes}) * interval '1 minute'"

    def analysis(self, table: str = "") -> Sequence[str]:
        """Return what autovacuum does; see Database."""
        return [f"ANALYZE {table}"]

    def facts(self) -> dict[str, str]:
        """Return the version and what a commit waits for."""
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
        return {name: str(self.execute(f"SHOW {name}")[0][0]) for name in names}

    def remove(self) -> None:
        """Drop the database."""
        self._administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(self.name)))

    def _columns(self, table: str) -> Sequence[str]:
        rows = self.execute(
            "SELECT column_name FROM information_schema.columns "
            f"WHERE table_name = '{table}' ORDER BY ordinal_position"
        )
        return [name for (name,) in rows]

    def _administer(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(statement)


class SQLite(Database):
    """A file of its own."""

    engine = "SQLite"
    now = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
    new_id = "lower(hex(randomblob(16)))"

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"benchmark-{secrets.token_hex(6)}.sqlite3"
        self.url = f"sqlite:///{self.path}"

    def connect(self) -> sqlite3.Connection:
        """Open the file with the settings of the server; transactions are begun by hand."""
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-32000"):
            connection.execute(f"PRAGMA {setting}")
        return connection

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run the statements; see Database."""
        connection = self.connect()
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                rows = connection.execute(statement).fetchall()
            connection.execute("COMMIT")
        finally:
            connection.close()
        return rows

    @contextmanager
    def locked(self, public_id: str) -> Iterator[None]:
        """Lock the file; see Database."""
        with closing(self.connect()) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield

    def series(self, count: int) -> str:
        """Return a table; see Database."""
        return (
            f"(WITH RECURSIVE counted (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted "
            f"WHERE n < {count - 1}) SELECT n FROM counted) AS series"
        )

    def minutes_ago(self, minutes: str) -> str:
        """Return a moment; see Database."""
        return f"strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || ({minutes}) || ' minutes')"

    def analysis(self, table: str = "") -> Sequence[str]:
        """Return nothing: nobody counts rows here; see Database."""
        return []

    def facts(self) -> dict[str, str]:
        """Return the version and what a commit waits for."""
        return {"version": sqlite3.sqlite_version, "journal_mode": "WAL", "synchronous": "FULL"}

    def remove(self) -> None:
        """Leave the file to its temporary directory."""

    def _columns(self, table: str) -> Sequence[str]:
        rows = self.execute(f"SELECT name FROM pragma_table_info('{table}')")
        return [name for (name,) in rows]
