"""Bringing a database up to date: killed in the middle of it, or by several at the same time."""

from __future__ import annotations

import lzma
import os
import random
import re
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg import sql

from conversations.engines import upgrades
from tests.conftest import on_postgresql, on_sqlite, once
from tests.support.people.clients import WAIT_S, Server, database_url, program_environment
from tests.support.runner import forks, migrated
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.needs_engine

OWN_TABLES: LiteralString = r"'^(conversations|sessions_app)_'"
TABLES: dict[str, list[LiteralString]] = {
    "sqlite": ["SELECT type, name, sql FROM sqlite_master"],
    "postgresql": [
        "SELECT table_name, column_name, "
        "row_number() OVER (PARTITION BY table_name ORDER BY ordinal_position), "
        "data_type, character_maximum_length, is_nullable, column_default, is_identity "
        f"FROM information_schema.columns WHERE table_name ~ {OWN_TABLES}",
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
        f"WHERE conrelid::regclass::text ~ {OWN_TABLES}",
        f"SELECT indexdef FROM pg_indexes WHERE tablename ~ {OWN_TABLES}",
        f"SELECT sequencename, data_type::text FROM pg_sequences WHERE sequencename ~ {OWN_TABLES}",
        "SELECT pg_get_triggerdef(oid) FROM pg_trigger "
        f"WHERE NOT tgisinternal AND tgrelid::regclass::text ~ {OWN_TABLES}",
    ],
}
"""What describes the tables, columns, constraints, indexes and triggers of a database, by engine."""

MIGRATE = ["convserver", "manage", "migrate", "--verbosity=0"]
KILLS = int(os.environ.get("TEST_KILLS", "1"))
"""More of them find what is rare, and take a second each."""


@dataclass(frozen=True, kw_only=True)
class Own:
    """A database, and programs that use it."""

    url: str
    directory: Path

    @property
    def name(self) -> str:
        """The path of its file, or what PostgreSQL calls it."""
        path = urlsplit(self.url).path
        return path if self.url.startswith("sqlite") else path.removeprefix("/")

    def migrate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `convserver manage migrate` to its end."""
        return forks.run([*MIGRATE, *arguments], self._environment)

    def run(self, code: str) -> None:
        """Run code in a process of the server's, with its models."""
        ended = forks.run(["convserver", "manage", "shell", "-v0", "-c", code], self._environment)
        assert ended.returncode == 0, ended.stderr

    @contextmanager
    def migrating(self) -> Iterator[subprocess.Popen[str]]:
        """Run it beside the block, which may kill it."""
        with subprocess.Popen(
            [sys.executable, "-m", *MIGRATE], env=self._environment, stderr=subprocess.PIPE, text=True
        ) as process:
            yield process
            process.kill()

    def ask(self, statement: str) -> list[Any]:
        """Execute a statement, committed at once."""
        with closing(self.connect()) as outside:
            return list(outside.execute(statement))

    def load(self, statements: str) -> None:
        """Execute the statements of a dump (PostgreSQL)."""
        with closing(self.connect()) as outside:
            outside.execute(statements)

    def connect(self) -> Any:
        """Return a connection of the engine's driver, in autocommit mode."""
        if self.url.startswith("sqlite"):
            return sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None, timeout=WAIT_S)
        return psycopg.connect(self.url, autocommit=True)

    @property
    def is_complete(self) -> bool:
        """Return whether every migration is recorded."""
        recorded = {tuple(row) for row in self.ask("SELECT app, name FROM django_migrations")}
        return recorded >= set(MigrationLoader(None).graph.nodes)

    @property
    def tables(self) -> set[str]:
        """What describes the tables of the project's own applications, for comparison."""
        engine = "sqlite" if self.url.startswith("sqlite") else "postgresql"
        rows = (str(row) for each in TABLES[engine] for row in self.ask(each))
        # A constraint that was loaded from a dump has its casts, and so its brackets, elsewhere.
        return {" ".join(re.sub(r"::(character varying|text)(\[\])?|[()]", "", row).split()) for row in rows}

    @property
    def _environment(self) -> dict[str, str]:
        return {**program_environment(self.directory), "DATABASE_URL": self.url}


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Own]:
    """An empty database of this test's own."""
    with _own(tmp_path) as own:
        if connection.vendor == "postgresql":
            _administer("CREATE DATABASE {}", own.name)
        yield own


@pytest.fixture
def complete(django_db_setup: None, tmp_path: Path) -> Iterator[Own]:
    """A database of this test's own that was brought up to date."""
    with _own(tmp_path) as own:
        migrated.make(own.name)
        yield own


@pytest.fixture
def earlier(fresh: Own) -> Own:
    """A database that commit 1bb41d5 has made.

    It has a conversation, with a mark and indexed words, an endpoint that owes it, and staff.
    """
    kept = Path(__file__).parents[1] / "data/stores/made-by-1bb41d5"
    if connection.vendor == "sqlite":
        file = Path(fresh.name)
        file.write_bytes(lzma.decompress(kept.with_suffix(".sqlite3.xz").read_bytes()))
        file.chmod(0o600)
    else:
        fresh.load(lzma.decompress(kept.with_suffix(".sql.xz").read_bytes()).decode())
    return fresh


@contextmanager
def _own(directory: Path) -> Iterator[Own]:
    """Name a database that is not there yet; remove it at the end."""
    if connection.vendor == "sqlite":
        yield Own(url=f"sqlite:///{directory}/own.sqlite3", directory=directory)
        return
    own = Own(url=_beside(f"own_{secrets.token_hex(6)}"), directory=directory)
    yield own
    _administer("DROP DATABASE {} WITH (FORCE)", own.name)


def _administer(statement: LiteralString, name: str) -> None:
    with closing(psycopg.connect(_beside("postgres"), autocommit=True)) as outside:
        outside.execute(sql.SQL(statement).format(sql.Identifier(name)))


def _beside(name: str) -> str:
    return urlunsplit(urlsplit(database_url())._replace(path=f"/{name}"))


WAITING: LiteralString = "FROM pg_locks WHERE NOT granted AND relation = 'django_migrations'::regclass"


def wait_until_somebody_waits_for_a_lock(outside: psycopg.Connection[Any]) -> None:
    wait_until(lambda: outside.execute(f"SELECT count(*) {WAITING}").fetchone() != (0,))


# Killed


@pytest.mark.no_second_try
@on_postgresql
@pytest.mark.slow
def test_a_kill_between_a_migration_and_its_record_harms_no_later_start(fresh: Own) -> None:
    assert fresh.migrate("contenttypes").returncode == 0
    with closing(psycopg.connect(fresh.url)) as holding, fresh.migrating() as process:
        holding.execute("LOCK TABLE django_migrations IN SHARE MODE")
        with closing(fresh.connect()) as outside:
            wait_until_somebody_waits_for_a_lock(outside)
            process.kill()
            outside.execute(f"SELECT pg_terminate_backend(pid) {WAITING}")
    assert fresh.migrate().stderr == ""
    assert fresh.is_complete


@pytest.mark.no_second_try
@pytest.mark.slow(on="sqlite")
def test_kills_at_any_moment_harm_no_later_start(fresh: Own, chance: random.Random) -> None:
    for _ in range(KILLS):
        with fresh.migrating() as process, pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=chance.uniform(0.4, 1.2))
    assert fresh.migrate().stderr == ""
    assert fresh.is_complete


@once
def test_tables_of_another_program_are_told_apart_from_what_cannot_be_used(fresh: Own) -> None:
    with closing(fresh.connect()) as outside:
        outside.execute("CREATE TABLE auth_group (id bigint PRIMARY KEY, name text)")
    fresh.migrate("contenttypes")
    tables, recorded = fresh.tables, fresh.ask("SELECT app, name FROM django_migrations")
    ended = fresh.migrate()
    assert ended.returncode == 1
    assert "the migration auth.0001_initial failed" in ended.stderr
    assert "auth_group" in ended.stderr
    assert "use an empty database" in ended.stderr
    assert (tables, recorded) == (fresh.tables, fresh.ask("SELECT app, name FROM django_migrations"))


# From earlier states


MAY_STILL = """
from django.contrib.auth.models import Permission, User
staff = User.objects.get(username="staff")
assert staff.get_all_permissions() == {"sessions_app.view_endpoint", "sessions_app.change_endpoint"}
shown = Permission.objects.filter(codename__endswith="_recordedchange").order_by("codename")
assert [each.name for each in shown] == [
    f"Can {verb} recorded change" for verb in ("add", "change", "delete", "view")
]
assert not Permission.objects.filter(codename__regex="receiver|notedfact").exists()
"""


def test_a_database_from_before_the_first_release_goes_on_with_its_rows(earlier: Own) -> None:
    before = earlier.ask("SELECT conversation_id, seq, payload, digest FROM conversations_event ORDER BY id")
    assert len(before) == 3
    assert earlier.migrate().stderr == ""
    assert earlier.is_complete
    assert before == earlier.ask(
        "SELECT conversation_id, seq, payload, digest FROM conversations_event ORDER BY id"
    )
    assert earlier.ask("SELECT through, pinned_at IS NULL FROM sessions_app_mark") == [(1, False)]
    assert earlier.ask("SELECT through, words_through FROM conversations_searchprogress") == [(3, 0)]
    assert earlier.ask("SELECT name, event_position, change_position FROM sessions_app_endpoint") == [
        ("billing", 3, 1)
    ]
    positions = "endpoint_id, through, through_change, known_change"
    assert earlier.ask(f"SELECT {positions} FROM sessions_app_delivery") == [(1, 1, 0, 1)]
    changes = earlier.ask("SELECT conversation_id, kind, seq FROM sessions_app_recordedchange")
    assert changes == [(1, "created", 0)]
    earlier.run(MAY_STILL)


def test_a_database_from_before_the_first_release_gets_the_tables_of_a_new_one(
    earlier: Own, complete: Own
) -> None:
    earlier.migrate()
    assert earlier.tables == complete.tables


def test_a_database_that_has_all_replaced_migrations_needs_none(complete: Own) -> None:
    complete.ask("DELETE FROM django_migrations WHERE name LIKE '%squashed%' RETURNING id")
    assert complete.migrate("--check").returncode == 0
    assert complete.migrate().stderr == ""
    assert complete.is_complete


@pytest.mark.parametrize("last", [("conversations", "0012_stored_bytes"), ("sessions_app", "0036_operation")])
def test_a_database_between_two_states_is_refused_and_stays_as_it_is(
    complete: Own, last: tuple[str, str]
) -> None:
    app, name = last
    later = f"app = '{app}' AND (name > '{name}' OR name LIKE '%squashed%')"
    complete.ask(f"DELETE FROM django_migrations WHERE {later} RETURNING id")
    before = complete.ask("SELECT app, name FROM django_migrations ORDER BY id")
    for arguments in ((), ("--plan",), (app,)):
        ended = complete.migrate(*arguments)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr == f"CommandError: {upgrades.STOPPED.format(migration=f'{app}.{name}')}\n"
    assert complete.ask("SELECT app, name FROM django_migrations ORDER BY id") == before


# At the same time


@on_postgresql
@pytest.mark.no_second_try
def test_servers_that_start_at_once_on_an_empty_database_all_start(fresh: Own, tmp_path: Path) -> None:
    servers = [Server(_made(tmp_path / name)) for name in ("first", "second")]
    try:
        with ThreadPoolExecutor(len(servers)) as together:
            list(together.map(lambda server: server.start(DATABASE_URL=fresh.url), servers))
    finally:
        for server in servers:
            server.kill()
    assert fresh.is_complete


@on_sqlite
@pytest.mark.no_second_try
@pytest.mark.slow(on="sqlite")
def test_of_servers_that_start_at_once_on_an_empty_file_one_starts(fresh: Own, tmp_path: Path) -> None:
    servers = [Server(_made(tmp_path / name)) for name in ("first", "second")]

    def starts(server: Server) -> bool:
        try:
            server.start(DATABASE_URL=fresh.url)
        except RuntimeError:
            return False
        return True

    try:
        with ThreadPoolExecutor(len(servers)) as together:
            assert sorted(together.map(starts, servers)) == [False, True]
    finally:
        for server in servers:
            server.kill()
    assert fresh.is_complete


@pytest.mark.no_second_try
@pytest.mark.slow(on="sqlite")
def test_who_comes_second_waits_and_says_so(complete: Own) -> None:
    with closing(complete.connect()) as holding, complete.migrating() as process:
        holding.execute("BEGIN IMMEDIATE" if connection.vendor == "sqlite" else "BEGIN")
        if connection.vendor == "postgresql":
            holding.execute("SELECT pg_advisory_xact_lock(%s)", [upgrades.LOCK])
        assert process.stderr is not None
        said = process.stderr.readline()
        holding.execute("COMMIT")
        assert (said.strip(), process.wait(timeout=WAIT_S)) == (upgrades.WAITS, 0)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
