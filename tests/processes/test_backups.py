"""Backups of a store in use, and restores: nothing acknowledged is missing, no failure touches the store."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import tarfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from conversations.engines import upgrades
from convserver.backups import manifest
from convserver.backups.sealed_key import PASSPHRASE
from tests.conftest import on_postgresql, on_sqlite
from tests.support.data.events import payload
from tests.support.people.clients import HTTP, WAIT_S, Server, Worker, database_url
from tests.support.runner import forks, migrated
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.no_second_try

TALKS = ("first", "second")
CONTENT = secrets.token_hex(50_000).encode()
SECRET = "a secret key that only the backup knows: " + secrets.token_hex(16)
BEFORE = 10
ENDED_BEFORE_SIGNAL_MAX = 20
"""So many events are acknowledged in each conversation before a backup begins."""
LONG = "x" * 20_000
PRIVATE = "only the two of them know this"
NO_PROGRAMS = "backups of PostgreSQL need the package postgresql-client"


DOCUMENTED = (forks.ROOT / "docs/operation.md").read_text()


def documented(command: str) -> str:
    """Return the commands for an emergency, without the one that starts a server."""
    by_hand = DOCUMENTED.partition("\n**By hand**")[2].partition("\n**Every night**")[0]
    (found,) = (each for each in re.findall(r"```bash\n(.*?)```", by_hand, re.DOTALL) if command in each)
    *commands, serve = found.strip().splitlines()
    assert serve.endswith("convserver serve")
    return "\n".join(commands)


def execute(commands: str, backup: Path, directory: Path, **variables: str) -> None:
    """Run commands of the documentation on a backup."""
    commands = re.sub(r"/srv/backups/convserver-\w+", str(backup), commands)
    environment = {**os.environ, **variables}
    subprocess.run(["bash", "-eu", "-c", commands], cwd=directory, env=environment, check=True)


class Store(ABC):
    """A database of a test's own."""

    url: str
    is_clustered = False

    @property
    def variables(self) -> dict[str, str]:
        """What a server or a command needs to use it."""
        return {
            "DATABASE_URL": self.url,
            **({"CONVSERVER_MANAGER": "clustered"} if self.is_clustered else {}),
        }

    @abstractmethod
    def make(self) -> None:
        """Let it have all tables."""

    @abstractmethod
    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask it beside the server."""

    @abstractmethod
    def is_being_restored(self) -> bool:
        """Return whether a restore has begun to write and has not ended."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether nothing is there, nor is left of a restore."""

    @abstractmethod
    def empty(self) -> None:
        """Make room for a restore, as docs/operation.md says."""

    @abstractmethod
    def scratches(self, backups: Path) -> list[Any]:
        """Return the databases in which backups of a directory are being verified."""

    @abstractmethod
    def restored_by_hand(self, backup: Path) -> dict[str, str]:
        """Restore a backup by the commands of docs/operation.md; return the variables of a server for it."""


class File(Store):
    """SQLite's."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "own" / "store.sqlite3"
        self.url = f"sqlite:///{self.path}"

    def make(self) -> None:
        migrated.make(str(self.path))

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as asked:
            return asked.execute(statement).fetchall()

    def is_being_restored(self) -> bool:
        return bool(list(self.path.parent.glob("*.restoring")))

    def is_empty(self) -> bool:
        found = self.path.parent.glob(f"{self.path.name}*")
        return all(path.name.endswith(".serving-lock") for path in found)

    def empty(self) -> None:
        away = self.path.with_name("away")
        away.mkdir()
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.rename(away / path.name)

    def scratches(self, backups: Path) -> list[Any]:
        return list(backups.glob(".convserver-*"))

    def restored_by_hand(self, backup: Path) -> dict[str, str]:
        execute(documented("cp ").replace("convserver.sqlite3", self.path.name), backup, self.path.parent)
        return self.variables


class Named(Store):
    """PostgreSQL's."""

    def __init__(self, *, is_clustered: bool) -> None:
        self.is_clustered = is_clustered
        self._others: list[str] = []
        self._name = f"backed_up_{secrets.token_hex(6)}"
        self.url = urlunsplit(urlsplit(database_url())._replace(path=f"/{self._name}"))

    def make(self) -> None:
        self.remove()
        migrated.make(self._name)

    def make_empty(self) -> None:
        self._administer("CREATE DATABASE {}")

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as asked:
            return asked.execute(statement.encode()).fetchall()

    def is_being_restored(self) -> bool:
        """Return whether tables are made in a transaction."""
        return bool(
            self.ask(
                "SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database "
                "WHERE datname = current_database() AND mode = 'AccessExclusiveLock' LIMIT 1"
            )
        )

    def is_empty(self) -> bool:
        tables = "SELECT 1 FROM pg_tables WHERE schemaname = 'public' LIMIT 1"
        return not self.is_being_restored() and self.ask(tables) == []

    def empty(self) -> None:
        self.remove()
        self.make_empty()

    def own(self, role: str) -> None:
        """Make an empty database that belongs to an ordinary role, and use it as that."""
        self._administer("CREATE DATABASE {} OWNER " + role)
        split = urlsplit(self.url)
        self.url = urlunsplit(split._replace(netloc=f"{role}@{split.hostname}:{split.port}"))

    def scratches(self, backups: Path) -> list[Any]:
        return self.ask(f"SELECT datname FROM pg_database WHERE datname LIKE '{self._name}_verify_%'")

    def restored_by_hand(self, backup: Path) -> dict[str, str]:
        name = f"{self._name}_by_hand"
        where = urlsplit(self.url)
        variables = {"PGHOST": str(where.hostname), "PGPORT": str(where.port), "PGUSER": str(where.username)}
        commands = documented("pg_restore ").replace("convserver_restored", name)
        execute(commands, backup, backup.parent, **variables)
        self._others.append(name)
        return {**self.variables, "DATABASE_URL": urlunsplit(where._replace(path=f"/{name}"))}

    def ask_nothing(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as asked:
            asked.execute(statement.encode())

    def remove(self) -> None:
        self._administer("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        for name in self._others:
            with psycopg.connect(database_url(), autocommit=True) as outside:
                outside.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def _administer(self, statement: Any) -> None:
        with psycopg.connect(database_url(), autocommit=True) as outside:
            outside.execute(sql.SQL(statement).format(sql.Identifier(self._name)))


@pytest.fixture(params=["standalone", *(["clustered"] if connection.vendor == "postgresql" else [])])
def is_clustered(request: pytest.FixtureRequest) -> bool:
    """Whether it is a cluster, whose database has Procrastinate's tables, types and functions, too."""
    return bool(request.param == "clustered")


@pytest.fixture
def store(database: None, is_clustered: bool, tmp_path: Path) -> Iterator[Store]:
    """A database with all tables."""
    if connection.vendor == "postgresql" and not shutil.which("pg_dump"):
        assert os.environ.get("CONVSERVER_REQUIRE_ENGINES") != "all", NO_PROGRAMS
        pytest.skip(NO_PROGRAMS)
    found: Store = File(tmp_path) if connection.vendor == "sqlite" else Named(is_clustered=is_clustered)
    found.make()
    if is_clustered:
        migrated_too = Server(tmp_path).run(["convserver", "manage", "migrate"], **found.variables)
        assert migrated_too.returncode == 0, migrated_too.stderr
    yield found
    if isinstance(found, Named):
        found.remove()


@pytest.fixture
def elsewhere(database: None, is_clustered: bool, tmp_path: Path) -> Iterator[Store]:
    """A database without tables, or none at all where a file is one."""
    if connection.vendor == "sqlite":
        yield File(tmp_path / "elsewhere")
        return
    named = Named(is_clustered=is_clustered)
    named.make_empty()
    yield named
    named.remove()


def begin(server: Server, store: Store, *, secret_key: str = "") -> None:
    environment = {"SECRET_KEY": secret_key} if secret_key else {}
    server.start(constants=None, **store.variables, **environment)
    for id in TALKS:
        HTTP.post(f"{server.url}/api/native/conversations", json={"id": id}).raise_for_status()


def begin_with_file(server: Server, store: Store) -> None:
    """The same, with a file in the workspace of the first conversation."""
    begin(server, store)
    files = {"files": ("notes.txt", b"kept")}
    HTTP.post(f"{server.url}/api/conversations/first/upload-files", files=files).raise_for_status()


def append(server: Server, talk: str, id: str, text: str = "hello") -> None:
    """Return once the event is acknowledged."""
    body = {"type": "event", "id": id, "event": json.loads(payload(text))}
    HTTP.post(f"{server.url}/api/native/conversations/{talk}/events", json=body).raise_for_status()


def fill(server: Server) -> None:
    """Append so much that reading all of it takes long enough to be ended meanwhile."""
    for number in range(10):
        events = [{"id": f"{number}-{each}", "event": json.loads(payload(LONG))} for each in range(80)]
        body = {"type": "events", "events": events}
        HTTP.post(f"{server.url}/api/native/conversations/first/events", json=body).raise_for_status()


def say(server: Server, talk: str, text: str) -> None:
    """Send a message, for which an agent is woken."""
    body = {"type": "message", "text": text}
    HTTP.post(f"{server.url}/api/native/conversations/{talk}/events", json=body).raise_for_status()


def kinds(server: Server, talk: str) -> list[str]:
    answer = HTTP.get(f"{server.url}/api/native/conversations/{talk}/events").raise_for_status()
    return [event["kind"] for event in answer.json()["events"]]


def log(server: Server, talk: str) -> list[str]:
    """Return the ids of all events, which have no gap."""
    ids: list[str] = []
    while True:
        answer = HTTP.get(
            f"{server.url}/api/native/conversations/{talk}/events", params={"after": len(ids) - 1}
        )
        events = answer.raise_for_status().json()["events"]
        assert [event["seq"] for event in events] == list(range(len(ids), len(ids) + len(events)))
        ids += [event["id"] for event in events]
        if not events:
            return ids


def back_up(server: Server, store: Store, directory: Path, *options: str, **environment: str) -> Path:
    """Return the backup that the command has made."""
    done = run(server, store, "backup", str(directory), *options, **environment)
    assert done.returncode == 0, done.stderr
    (path,) = directory.glob("convserver-*")
    return path


def run(server: Server, store: Store, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return server.run(["convserver", *command], **store.variables, **environment)


class Load:
    """Appends to each conversation one after another until it is stopped, and keeps what was acknowledged."""

    def __init__(self, server: Server) -> None:
        self.acknowledged: dict[str, list[str]] = {talk: [] for talk in TALKS}
        self._is_over = threading.Event()
        self._server = server
        self._threads = [threading.Thread(target=self._append, args=[talk]) for talk in TALKS]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def count(self) -> int:
        return min(map(len, self.acknowledged.values()))

    def _append(self, talk: str) -> None:
        acknowledged = self.acknowledged[talk]
        while not self._is_over.is_set():
            id = f"{talk}-{len(acknowledged)}"
            append(self._server, talk, id)
            acknowledged.append(id)


@pytest.mark.slow(on="postgresql")
def test_what_was_acknowledged_before_a_backup_under_load_is_served_elsewhere_afterwards(
    server: Server, store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    keys = {PASSPHRASE: "a passphrase of the drill"}
    begin(server, store, secret_key=SECRET)
    files = {"files": ("notes.txt", CONTENT)}
    sent = HTTP.post(f"{server.url}/api/conversations/first/upload-files", files=files)
    assert len(sent.raise_for_status().json()["uploaded_files"]) == 1
    with Load(server) as load:
        wait_until(lambda: load.count() >= BEFORE)
        before = {talk: list(ids) for talk, ids in load.acknowledged.items()}
        backup = back_up(server, store, tmp_path / "backups", "--with-secret-key", **keys, SECRET_KEY=SECRET)
        during = load.count()
        wait_until(lambda: load.count() > during)
    assert during > len(before["first"])
    live = {talk: log(server, talk) for talk in TALKS}

    other = Server(tmp_path / "other")
    (tmp_path / "other").mkdir()
    # Into a data directory without a key, as on another machine.
    done = run(other, elsewhere, "restore", str(backup), "--yes", "--with-secret-key", **keys, SECRET_KEY="")
    assert done.returncode == 0, done.stderr
    try:
        other.start(constants=None, **elsewhere.variables, SECRET_KEY="")
        for talk in TALKS:
            restored = log(other, talk)
            assert set(before[talk]) <= set(restored)
            assert restored == live[talk][: len(restored)]
        append(other, "first", "afterwards")
    finally:
        other.kill()
    assert (tmp_path / "other/data/secret_key").read_text() == SECRET
    ((content,),) = elsewhere.ask("SELECT content FROM sessions_app_attachment")
    assert bytes(content) == CONTENT


def test_the_files_of_conversations_come_back_with_their_links_and_modes(
    server: Server, store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    begin_with_file(server, store)
    (workspace,) = server.file.with_name("workspaces").glob("?" * 32)
    plant(workspace)
    workspace.with_name(f"{workspace.name}.git").mkdir()  # beside it, and no part of it
    done = run(server, store, "backup", str(tmp_path / "backups"), "--workspaces", "--verify")
    assert (done.returncode, "of 1 conversations" in done.stdout) == (0, True), done.stderr
    (backup,) = (tmp_path / "backups").glob("convserver-*")
    about = json.loads((backup / "manifest.json").read_text())["workspaces"]
    assert about == {"workspaces": 1, "entries": 7, "bytes": 4 + 5 + 0, "changed": 0, "unread": 0}
    server.stop()
    (tmp_path / "other").mkdir()
    other = Server(tmp_path / "other")
    place = other.file.with_name("workspaces")
    (place / "taken").mkdir(parents=True)
    refused = run(other, elsewhere, "restore", str(backup), "--yes")
    assert (refused.returncode, "is not empty" in refused.stderr) == (1, True), refused.stderr
    (place / "taken").rmdir()
    done = run(other, elsewhere, "restore", str(backup), "--yes")
    assert (done.returncode, "The files of 1 conversations are in" in done.stdout) == (0, True), done.stderr
    assert {each.name for each in place.iterdir()} == {workspace.name, ".convserver-workspaces"}
    assert tree_of(place / workspace.name) == tree_of(workspace)
    try:
        other.start(constants=None, **elsewhere.variables)
        listing = HTTP.get(f"{other.url}/api/conversations/first/list-files").raise_for_status().json()
        assert "notes.txt" in listing
    finally:
        other.kill()


def plant(workspace: Path) -> None:
    """Fill a workspace with what programs leave in one."""
    (workspace / "bin").mkdir()
    (workspace / "bin/run").write_text("run 1")
    (workspace / "bin/run").chmod(0o755)
    (workspace / "bin").chmod(0o555)
    (workspace / ("ü" * 60)).mkdir(mode=0o700)
    (workspace / os.fsdecode(b"\xff")).touch(0o640)
    (workspace / "inside").symlink_to("bin/run")
    (workspace / "outside").symlink_to("/etc/passwd")
    os.mkfifo(workspace / "pipe")


def tree_of(directory: Path) -> dict[str, tuple[Any, ...]]:
    """Return what is in a directory: the kinds, modes, targets and contents."""
    found: dict[str, tuple[Any, ...]] = {}
    for each in directory.rglob("*"):
        about = each.lstat()
        if each.is_symlink():
            found[str(each.relative_to(directory))] = ("link", str(each.readlink()))
        elif each.is_dir():
            found[str(each.relative_to(directory))] = ("directory", about.st_mode)
        elif each.is_file():
            content = each.read_bytes()
            found[str(each.relative_to(directory))] = (about.st_mode, int(about.st_mtime), content)
    return found


def test_a_restore_with_files_of_conversations_that_fails_leaves_both_places_empty(
    server: Server, store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    begin_with_file(server, store)
    backup = back_up(server, store, tmp_path / "backups", "--workspaces")
    server.stop()
    (tmp_path / "other").mkdir()
    other = Server(tmp_path / "other")
    archive = backup / "workspaces.tar.gz"
    stranger = "f" * 32
    with tarfile.open(archive, "w:gz") as written:
        for name in (stranger, f"{stranger}/file"):
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if name == stranger else tarfile.REGTYPE
            written.addfile(member)
    vouch_for(backup)
    refused = run(other, elsewhere, "restore", str(backup), "--yes")
    assert (refused.returncode, "the workspace of no conversation" in refused.stderr) == (1, True)
    assert not list(other.file.with_name("workspaces").iterdir())
    done = run(other, elsewhere, "restore", str(backup), "--yes", "--without-workspaces")
    assert (done.returncode, "were not restored" in done.stderr) == (0, True), done.stderr


def test_without_the_option_the_files_of_conversations_are_not_in_a_backup_and_a_restore_says_what_to_do(
    server: Server, store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    begin_with_file(server, store)
    backup = back_up(server, store, tmp_path / "backups")
    assert json.loads((backup / "manifest.json").read_text())["workspaces"] is None
    server.stop()
    (tmp_path / "other").mkdir()
    other = Server(tmp_path / "other")
    done = run(other, elsewhere, "restore", str(backup), "--yes")
    place = other.file.with_name("workspaces")
    assert (done.returncode, f"{str(place)!r}" in done.stderr) == (0, True), done.stderr
    listing = f"{other.url}/api/conversations/first/list-files"
    try:
        other.start(constants=None, **elsewhere.variables)
        refused = HTTP.get(listing)
        assert (refused.status_code, "not restored" in refused.text) == (503, True)
        place.mkdir()
        (place / ".convserver-workspaces").touch()
        assert HTTP.get(listing).raise_for_status().json() == []
        shutil.copytree(server.file.with_name("workspaces"), place, dirs_exist_ok=True)
        assert HTTP.get(listing).raise_for_status().json() == ["notes.txt"]
    finally:
        other.kill()


def test_a_restore_needs_an_empty_place_and_serves_the_backup_there(
    server: Server, store: Store, tmp_path: Path
) -> None:
    begin(server, store)
    append(server, "first", "kept")
    backup = back_up(server, store, tmp_path / "backups")
    append(server, "first", "later")
    refused = run(server, store, "restore", str(backup), "--yes")
    assert (refused.returncode, "stop the server" in refused.stderr) == (1, True)
    assert "later" in log(server, "first")
    server.stop()
    assert run(server, store, "restore", str(backup), "--yes").returncode == 1
    trial = run(server, store, "restore", str(backup), "--dry-run")
    assert (trial.returncode, "whole" in trial.stdout) == (0, True)
    server.start(constants=None, **store.variables)
    assert "later" in log(server, "first")
    server.stop()
    store.empty()
    done = run(server, store, "restore", str(backup), "--yes")
    assert (done.returncode, store.is_being_restored()) == (0, False), done.stderr
    server.start(constants=None, **store.variables)
    assert log(server, "first") == ["kept"]


def test_a_backup_restored_by_hand_as_documented_is_served(
    server: Server, store: Store, tmp_path: Path
) -> None:
    begin(server, store)
    append(server, "first", "kept")
    say(server, "second", "for an agent")
    backup = back_up(server, store, tmp_path / "backups")
    append(server, "first", "later")
    server.stop()
    server.start(constants=None, **store.restored_by_hand(backup))
    assert log(server, "first") == ["kept"]
    say(server, "second", "one more")
    server.stop()


def test_a_backup_is_verified_in_a_scratch_database_while_the_server_runs(
    server: Server, store: Store, tmp_path: Path
) -> None:
    begin(server, store)
    append(server, "first", "kept")
    backups = tmp_path / "backups"
    done = run(server, store, "backup", str(backups), "--verify")
    assert (done.returncode, "verified" in done.stdout) == (0, True), done.stderr
    (backup,) = backups.glob("convserver-*")
    append(server, "first", "later")
    again = run(server, store, "restore", str(backup), "--dry-run")
    assert (again.returncode, "is whole" in again.stdout) == (0, True), again.stderr
    made = manifest.read(backup)
    for differences, said in (
        ({"counts": {**made.counts, "conversations_event": 7}}, "rows in conversations_event"),
        ({"heads": "0"}, "conversations"),
        ({"migrations": made.migrations[1:]}, "migrations"),
        ({"triggers": [*made.triggers, "title_forgotten"]}, "guards of the backup are not those"),
        ({"problems": ["Conversation first: event 0 is missing."]}, "1 places are damaged, but 0 are"),
    ):
        vouch_for(backup, **differences)
        refused = run(server, store, "restore", str(backup), "--dry-run")
        assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
        vouch_for(backup, **{name: getattr(made, name) for name in differences})
    assert store.scratches(backups) == []
    assert log(server, "first") == ["kept", "later"]


RECORDS = "SELECT outcome, is_verified, size > 0, place, detail FROM sessions_app_backuprecord ORDER BY id"


def test_each_backup_leaves_a_record_in_its_store_also_when_it_fails(
    server: Server, store: Store, tmp_path: Path
) -> None:
    store.make()
    backups, taken = tmp_path / "backups", tmp_path / "taken"
    taken.write_text("a file, and no directory")
    for directory, options, status in ((backups, ["--verify"], 0), (backups, [], 0), (taken, [], 1)):
        done = run(server, store, "backup", str(directory), *options)
        assert done.returncode == status, done.stderr
    first, second = sorted(map(str, backups.glob("convserver-*")))
    whole, unverified, failed = store.ask(RECORDS)
    assert whole == ("made", True, True, first, "")
    assert unverified == ("made", None, True, second, "")
    assert failed[:4] == ("failed", None, False, str(taken))
    assert str(taken) in failed[4]
    assert failed[4] in done.stderr


@pytest.mark.slow(on="postgresql")
def test_a_verification_that_is_ended_leaves_no_scratch_database(
    server: Server, store: Store, tmp_path: Path
) -> None:
    begin(server, store)
    fill(server)
    backups = tmp_path / "backups"
    backup = back_up(server, store, backups)
    command = ["convserver", "restore", str(backup), "--dry-run"]
    variables = {**server.environment, **store.variables}
    status = 0
    for _ in range(ENDED_BEFORE_SIGNAL_MAX):
        with (tmp_path / "said").open("wb") as said:
            verifying = forks.start(command, variables, stdout=said, stderr=said)
        wait_until(lambda: bool(store.scratches(backups)))
        verifying.send_signal(SIGTERM)
        status = verifying.wait(timeout=WAIT_S)
        assert store.scratches(backups) == []
        if status:
            break
    assert status == 128 + SIGTERM


@on_postgresql
@pytest.mark.slow(on="postgresql")
def test_an_ordinary_owner_of_a_database_can_restore(
    server: Server, is_clustered: bool, tmp_path: Path
) -> None:
    store, target = Named(is_clustered=is_clustered), Named(is_clustered=is_clustered)
    role = f"owner_{secrets.token_hex(6)}"
    with psycopg.connect(database_url(), autocommit=True) as outside:
        outside.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            store.own(role)
            target.own(role)
            begin(server, store)
            append(server, "first", "kept")
            refused = run(server, store, "backup", str(tmp_path / "backups"), "--verify")
            assert (refused.returncode, f'ALTER ROLE "{role}" CREATEDB' in refused.stderr) == (1, True)
            (backup,) = (tmp_path / "backups").glob("convserver-*")
            server.stop()
            done = run(server, store, "restore", str(backup), "--yes", "--into", target.url)
            assert done.returncode == 0, done.stderr
            indexed = (
                "SELECT count(*) FROM pg_indexes WHERE indexname = 'conversations_titletext_pieces' "
                "AND indexdef LIKE '%gin_trgm_ops%'"
            )
            where = "SELECT nspname FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace"
            assert target.ask(indexed) == [(1,)]
            assert target.ask(f"{where} WHERE extname = 'pg_trgm'") == [("public",)]
            server.start(constants=None, **target.variables)
            assert log(server, "first") == ["kept"]
        finally:
            server.kill()
            store.remove()
            target.remove()
            outside.execute(f"DROP ROLE {role}".encode())


@on_postgresql
@pytest.mark.parametrize("is_clustered", [False], ids=["standalone"])
@pytest.mark.parametrize("lock", [upgrades.LOCK, upgrades.TURN_LOCK])
def test_a_restore_is_refused_while_a_server_or_a_cluster_upgrades_the_database(
    server: Server, store: Named, elsewhere: Named, tmp_path: Path, lock: int
) -> None:
    backup = back_up(server, store, tmp_path / "backups")
    with psycopg.connect(elsewhere.url, autocommit=True) as upgrading:
        upgrading.execute("SELECT pg_advisory_lock(%s)", [lock])
        refused = run(server, elsewhere, "restore", str(backup), "--yes")
    assert (refused.returncode, "upgrades or restores" in refused.stderr) == (1, True)
    assert elsewhere.is_empty()


@on_postgresql
@pytest.mark.parametrize("is_clustered", [False], ids=["standalone"])
def test_a_restore_into_a_database_of_another_program_is_refused(
    server: Server, store: Named, elsewhere: Named, tmp_path: Path
) -> None:
    backup = back_up(server, store, tmp_path / "backups")
    elsewhere.ask_nothing("CREATE TABLE theirs (a text)")
    refused = run(server, elsewhere, "restore", str(backup), "--yes")
    assert (refused.returncode, "such as theirs" in refused.stderr) == (1, True)
    assert elsewhere.ask("SELECT * FROM theirs") == []


@on_postgresql
@pytest.mark.parametrize("is_clustered", [True], ids=["clustered"])
def test_a_cluster_goes_on_with_the_jobs_of_its_backup(
    server: Server, store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    begin(server, store)
    say(server, "first", "answer this")
    assert jobs(store) == 1
    backup = back_up(server, store, tmp_path / "backups")
    server.stop()
    done = run(server, elsewhere, "restore", str(backup), "--yes")
    assert done.returncode == 0, done.stderr
    assert jobs(elsewhere) == 1
    server.start(constants=None, **elsewhere.variables)
    worker = Worker(tmp_path)
    worker.start(constants=None, **elsewhere.variables)
    try:
        wait_until(partial(has_no_jobs, elsewhere))
        say(server, "second", "and this")
        wait_until(lambda: all("turn" in kinds(server, talk) for talk in TALKS))
    finally:
        worker.kill()
        server.stop()


def jobs(store: Store) -> int:
    return int(store.ask("SELECT count(*) FROM procrastinate_jobs")[0][0])


def has_no_jobs(store: Store) -> bool:
    return jobs(store) == 0


@pytest.mark.slow(on="postgresql")
def test_a_backup_that_is_damaged_is_refused_and_nothing_is_touched(
    server: Server, store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    begin(server, store)
    append(server, "first", "backed up")
    backup = back_up(server, store, tmp_path / "backups")
    server.stop()
    (name,) = manifest.read(backup).files

    def refused() -> str:
        done = run(server, elsewhere, "restore", str(backup), "--yes")
        assert (done.returncode, elsewhere.is_empty()) == (1, True)
        return done.stderr

    whole = (backup / name).read_bytes()
    (backup / name).write_bytes(whole[: len(whole) // 2])
    assert "bytes" in refused()
    vouch_for(backup)
    assert "Traceback" not in refused()
    (backup / name).write_bytes(whole)
    vouch_for(backup)
    vouch_for(backup, counts={**manifest.read(backup).counts, "conversations_event": 0})
    assert "rows in conversations_event" in refused()
    (backup / name).unlink()
    assert "is missing" in refused()


@on_sqlite
def test_a_damaged_store_is_backed_up_and_its_backup_is_refused_by_the_place_of_the_damage(
    server: Server, store: File, elsewhere: File, tmp_path: Path
) -> None:
    begin(server, store)
    append(server, "second", "changed", PRIVATE)
    server.stop()
    with closing(sqlite3.connect(store.path)) as live:
        live.execute("DROP TRIGGER event_refuse_update")
        # The driver cannot read it as a text.
        live.execute("UPDATE conversations_event SET payload = CAST(payload || x'ff' AS TEXT)")
        live.commit()
    made = run(server, store, "backup", str(tmp_path / "backups"))
    (backup,) = (tmp_path / "backups").glob("convserver-*")
    assert (made.returncode, "Conversation second: event 0 was changed" in made.stderr) == (1, True)
    done = run(server, elsewhere, "restore", str(backup), "--yes")
    assert (done.returncode, "Conversation second: event 0 was changed" in done.stderr) == (1, True)
    assert PRIVATE not in made.stderr + done.stderr
    ((outcome, *_, detail),) = store.ask(RECORDS)
    assert (outcome, detail.startswith("Conversation second: event 0 was changed")) == ("damaged", True)
    assert run(server, elsewhere, "restore", str(backup), "--yes", "--accept-damage").returncode == 0


def vouch_for(backup: Path, **differences: Any) -> None:
    """Write a manifest that agrees with the files as they are now."""
    text = json.loads((backup / manifest.NAME).read_text())
    files = {name: manifest.described(backup / name) for name in text.pop("files")}
    held = text.pop("workspaces")
    workspaces = None if held is None else manifest.WorkspaceFiles(**held)
    found = manifest.Manifest(**text, workspaces=workspaces, files=files)
    manifest.write(replace(found, **differences), backup)


@pytest.mark.slow(on="postgresql")
def test_a_restore_that_is_killed_leaves_nothing_and_the_next_one_succeeds(
    server: Server, store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    begin(server, store)
    fill(server)
    append(server, "second", "kept")
    backup = back_up(server, store, tmp_path / "backups")
    server.stop()
    command = ["convserver", "restore", str(backup), "--yes"]
    variables = {**server.environment, **elsewhere.variables}
    with (tmp_path / "said").open("wb") as said:
        restoring = forks.start(command, variables, stdout=said, stderr=said)
    wait_until(elsewhere.is_being_restored)
    restoring.send_signal(SIGKILL)
    assert restoring.wait(timeout=10) == -SIGKILL
    if connection.vendor == "postgresql":  # whose session ends a little later
        wait_until(elsewhere.is_empty)
    done = run(server, elsewhere, "restore", str(backup), "--yes")
    assert (done.returncode, elsewhere.is_being_restored()) == (0, False), done.stderr
    assert elsewhere.ask("SELECT COUNT(*) FROM conversations_event WHERE event_id = 'kept'") == [(1,)]


@on_postgresql
def test_without_the_programs_of_postgresql_a_sentence_says_which_to_install(
    server: Server, store: Store, tmp_path: Path
) -> None:
    done = run(server, store, "backup", str(tmp_path / "backups"), PATH=str(tmp_path))
    assert done.returncode == 1
    assert "pg_dump is not installed" in done.stderr
    assert not list((tmp_path / "backups").glob("*"))
