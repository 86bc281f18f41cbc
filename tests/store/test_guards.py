"""The database's own refusal to lose history, whoever asks and whatever happened to its tables."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import DatabaseError, connection, connections
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone
from psycopg import sql

from conversations.engines import guards
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, GuardRepair, Purge
from conversations.readiness import readiness
from conversations.store import creation
from convserver.asgi import lifespan
from sessions_app import astore
from sessions_app.loops import manager
from sessions_app.loops.manager import get_manager
from tests.conftest import on_postgresql, on_sqlite
from tests.support.data.events import event, payload
from tests.support.people.clients import database_url
from tests.support.runner import migrated

pytestmark = pytest.mark.no_second_try

LATER = "later"
"""The alias of a database that has lived to see one more migration."""

ELSEWHERE = {
    "sqlite": {"event_refuse_truncate"},
    "postgresql": {"event_refuse_replace", "conversation_refuse_replace", "conversation_refuse_delete"},
}[connection.vendor]
"""Guards that only the other engine needs."""

Complaint = Callable[[str], str]


def by_driver(statement: str) -> str:
    """Execute a statement by the engine's own driver; return what the database complains about."""
    try:
        if connection.vendor == "sqlite":
            with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as outside:
                outside.execute(statement)
        else:
            with psycopg.connect(database_url(), autocommit=True) as outside:
                outside.execute(statement.encode())
    except (sqlite3.Error, psycopg.Error) as error:
        return str(error)
    return ""


def by_program(statement: str) -> str:
    """Execute a statement by the engine's own command; return what it complains about."""
    if connection.vendor == "sqlite":
        command = ["sqlite3", str(connection.settings_dict["NAME"]), statement]
    else:
        command = ["psql", "--no-psqlrc", "--quiet", "--command", statement, database_url()]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed here")
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stderr


@pytest.fixture(params=[by_driver, by_program])
def complaint(request: pytest.FixtureRequest) -> Complaint:
    """Execute a statement from outside, and return what the database complains about."""
    execute: Complaint = request.param
    return execute


@pytest.fixture
def log(conversation: ConversationRef) -> ConversationRef:
    """A conversation with three events."""
    writes.append(conversation, [event(), event(), event()])
    return conversation


@pytest.fixture
def guards_put_back(database: None) -> Iterator[None]:
    """Let a test drop guards."""
    yield
    guards.install(connection)


@pytest.fixture
def later(database: None, tmp_path: Path) -> Iterator[None]:
    """A migrated database of its own under the alias LATER."""
    default = connection.settings_dict
    is_file = connection.vendor == "sqlite"
    name = str(tmp_path / "later.sqlite3") if is_file else f"{default['NAME']}_later"
    options = {key: value for key, value in default["OPTIONS"].items() if key != "pool"}
    connections.databases[LATER] = {**default, "NAME": name, "OPTIONS": options}
    migrated.make(name)
    yield
    connections[LATER].close()
    del connections[LATER], connections.databases[LATER]
    if not is_file:
        administer("DROP DATABASE {} WITH (FORCE)", name)


def administer(statement: LiteralString, name: str) -> None:
    with psycopg.connect(database_url(), autocommit=True) as outside:
        outside.execute(sql.SQL(statement).format(sql.Identifier(name)))


LONGER = "models.CharField(max_length=999)"


def migrations_with_one_more(directory: Path, model: str, column: str, field: str) -> str:
    """Write a package of the app's migrations and one more, which alters a column; return its name."""
    newest = MigrationLoader(None).graph.leaf_nodes("conversations")[0][1]
    package = directory / f"migrations_of_{model}"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from conversations import migrations\n__path__ = [*__path__, *migrations.__path__]\n"
    )
    (package / "later.py").write_text(
        "from django.db import migrations, models\n\n\n"
        "class Migration(migrations.Migration):\n"
        f"    dependencies = [('conversations', {newest!r})]\n"
        f"    operations = [migrations.AlterField({model!r}, {column!r}, {field})]\n"
    )
    return package.name


def store_an_event_later() -> None:
    """Put one event into the database LATER."""
    owner = User.objects.using(LATER).create(username="alice")
    conversation = Conversation.objects.using(LATER).create(public_id="talk", owner=owner)
    Event.objects.using(LATER).create(
        conversation=conversation,
        seq=0,
        event_id="a",
        dialect="v0",
        type="message",
        kind="message",
        source="user",
        timestamp=timezone.now(),
        payload=payload(),
        size=len(payload()),
        digest="",
        received_at=timezone.now(),
    )


def contents() -> list[tuple[Any, ...]]:
    return list(Event.objects.order_by("pk").values_list("pk", "seq", "payload"))


def begin_purge(conversation: ConversationRef) -> Purge:
    return Purge.objects.create(conversation_id=conversation.pk, requested_by="alice", reason="asked for")


def drop(name: str) -> None:
    table = f" ON {guards.TABLE_OF[name]}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER {name}{table}")


REFUSED = {
    "DELETE FROM conversations_event": guards.NO_DELETE,
    "DELETE FROM conversations_event WHERE seq = 2": guards.NO_DELETE,
    "UPDATE conversations_event SET payload = '{}'": guards.NO_UPDATE,
    "UPDATE conversations_event SET hidden = true WHERE seq = 0": guards.NO_UPDATE,
    "UPDATE conversations_conversation SET next_seq = 2": guards.NO_FALL,
    "UPDATE conversations_conversation SET loop_epoch = loop_epoch - 1": guards.NO_FALL,
}
REFUSED_BY_ENGINE = {
    "sqlite": {
        "DELETE FROM conversations_conversation": guards.NO_ORPHANS,
        "REPLACE INTO conversations_event SELECT * FROM conversations_event": guards.NO_REPLACE,
        "UPDATE OR REPLACE conversations_event SET seq = 1": guards.NO_UPDATE,
        "REPLACE INTO conversations_conversation SELECT * FROM conversations_conversation": guards.NO_REPLACE,
    },
    "postgresql": {
        "TRUNCATE conversations_event": guards.NO_DELETE,
        "TRUNCATE conversations_conversation, conversations_event CASCADE": guards.NO_DELETE,
    },
}


@pytest.mark.parametrize(("statement", "refusal"), (REFUSED | REFUSED_BY_ENGINE[connection.vendor]).items())
def test_what_would_lose_history_is_refused_from_outside(
    log: ConversationRef, complaint: Complaint, statement: str, refusal: str
) -> None:
    before = contents()
    assert refusal in complaint(statement)
    assert contents() == before
    assert Conversation.objects.get(pk=log.pk).next_seq == 3


def test_a_running_purge_lets_the_events_of_its_conversation_go_and_no_others(
    log: ConversationRef, complaint: Complaint
) -> None:
    other = creation.create(User.objects.get(), conversation_id="other")
    writes.append(other, [event()])
    begin_purge(log)
    assert complaint(f"DELETE FROM conversations_event WHERE conversation_id = {log.pk}") == ""
    assert guards.NO_DELETE in complaint("DELETE FROM conversations_event")
    assert [row.conversation_id for row in Event.objects.all()] == [other.pk]


def test_a_finished_purge_lets_nothing_go(log: ConversationRef, complaint: Complaint) -> None:
    purge = begin_purge(log)
    purge.finished_at = timezone.now()
    purge.save(update_fields=["finished_at"])
    assert guards.NO_DELETE in complaint("DELETE FROM conversations_event")


def test_not_even_a_purge_lets_an_event_be_changed(log: ConversationRef, complaint: Complaint) -> None:
    before = contents()
    begin_purge(log)
    assert guards.NO_UPDATE in complaint("UPDATE conversations_event SET payload = '{}'")
    assert contents() == before


@pytest.mark.parametrize("name", sorted(set(guards.TABLE_OF) - ELSEWHERE))
def test_a_dropped_guard_is_reported_until_it_is_put_back(guards_put_back: None, name: str) -> None:
    drop(name)
    assert guards.missing(connection) == {name}
    with pytest.raises(guards.GuardsMissing, match=name):
        guards.require(connection)
    with pytest.raises(SystemCheckError, match=rf"conversations.E001.*lost its guards: {name}"):
        call_command("check", databases=["default"])
    call_command("migrate", verbosity=0)
    assert guards.missing(connection) == set()


def test_migrate_itself_complains_of_no_guard_that_it_puts_back(guards_put_back: None) -> None:
    drop("event_refuse_update")
    call_command("migrate", verbosity=0, skip_checks=False)  # as on the command line
    assert guards.missing(connection) == set()


@on_postgresql
def test_a_guard_that_is_switched_off_counts_as_missing(guards_put_back: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE conversations_event DISABLE TRIGGER event_refuse_delete")
    assert guards.missing(connection) == {"event_refuse_delete"}


async def test_a_running_server_appends_nothing_while_a_guard_is_missing(
    rest: httpx.AsyncClient,
    conversation: ConversationRef,
    guards_put_back: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager, "SWEEP_S", 0.02)
    await get_manager().ensure_started()
    await astore.call(drop, "event_refuse_delete")
    await until(lambda: readiness.refusal is not None)
    answer = await rest.post("/api/native/conversations/talk/events", json={"type": "message", "text": "hi"})
    assert (answer.status_code, "event_refuse_delete" in answer.json()["detail"]) == (503, True)
    await astore.call(guards.install, connection)
    await until(lambda: readiness.refusal is None)
    await astore.append(conversation, [event()])


async def test_health_says_that_a_guard_is_missing(rest: httpx.AsyncClient, guards_put_back: None) -> None:
    await astore.call(drop, "event_refuse_update")
    answer = await rest.get("/health")
    await astore.call(guards.install, connection)
    assert (answer.status_code, "event_refuse_update" in answer.json()["detail"]) == (503, True)
    assert (await rest.get("/health")).status_code == 200


@on_sqlite
async def test_health_says_that_a_guard_is_missing_while_somebody_writes(
    rest: httpx.AsyncClient, guards_put_back: None
) -> None:
    await astore.call(drop, "event_refuse_update")
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = await rest.get("/health")
    await astore.call(guards.install, connection)
    assert (answer.status_code, "event_refuse_update" in answer.json()["detail"]) == (503, True)
    assert (await rest.get("/health")).status_code == 200


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - a sweep sets it, in a thread
            await asyncio.sleep(0.01)


def test_with_all_guards_in_place_nothing_is_reported(database: None) -> None:
    guards.require(connection)
    assert guards.check_guards(databases=["default"]) == []


def standing() -> list[tuple[Any, ...]]:
    """Return which guards stand, each as it was made: one that is made anew is another one."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA schema_version")  # changes with every trigger
        else:
            cursor.execute("SELECT tgname, oid, xmin::text FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1")
        return list(cursor.fetchall())


def test_guards_that_stand_are_not_touched_by_a_start(database: None) -> None:
    before = standing()
    call_command("migrate", verbosity=0)
    assert standing() == before


def test_a_guard_that_does_not_guard_is_made_anew(log: ConversationRef, guards_put_back: None) -> None:
    drop("event_refuse_delete")
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "CREATE TRIGGER event_refuse_delete BEFORE DELETE ON conversations_event BEGIN SELECT 1; END"
            )
        else:
            cursor.execute(
                "CREATE OR REPLACE FUNCTION event_refuse_delete() RETURNS trigger LANGUAGE plpgsql "
                "AS $$ BEGIN RETURN OLD; END $$; CREATE TRIGGER event_refuse_delete BEFORE DELETE "
                "ON conversations_event FOR EACH ROW EXECUTE FUNCTION event_refuse_delete()"
            )
    call_command("migrate", verbosity=0)
    assert guards.NO_DELETE in by_driver("DELETE FROM conversations_event")


def test_a_repair_of_guards_is_recorded(guards_put_back: None) -> None:
    drop("event_refuse_delete")
    drop("event_refuse_update")
    call_command("migrate", verbosity=0)
    call_command("migrate", verbosity=0)
    assert [row.guards for row in GuardRepair.objects.all()] == ["event_refuse_delete, event_refuse_update"]


@on_postgresql
def test_while_a_guard_is_put_back_nobody_writes(guards_put_back: None) -> None:
    drop("event_refuse_delete")
    with psycopg.connect(database_url()) as writing:
        writing.execute("LOCK TABLE conversations_event IN ROW EXCLUSIVE MODE")  # as every INSERT does
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        with pytest.raises(DatabaseError, match="lock timeout"):
            guards.install(connection)
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")  # the pool gives the session to whoever asks next
    assert guards.missing(connection) == {"event_refuse_delete"}


async def test_no_server_starts_without_its_guards(live: None, guards_put_back: None) -> None:
    await astore.call(drop, "event_refuse_delete")
    sent: list[dict[str, str]] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, str]) -> None:
        sent.append(message)

    await lifespan(receive, send)
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "event_refuse_delete" in sent[0]["message"]


@pytest.mark.parametrize(
    ("model", "column", "field"),
    [
        ("event", "source", LONGER),
        ("conversation", "version", LONGER),
        ("purge", "reason", LONGER),
        ("titlechange", "conversation_id", "models.IntegerField(primary_key=True)"),
    ],
)
def test_guards_stand_after_a_migration_that_remakes_a_table(
    later: None,
    tmp_path: Path,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    column: str,
    field: str,
) -> None:
    store_an_event_later()
    monkeypatch.syspath_prepend(tmp_path)
    settings.MIGRATION_MODULES = {"conversations": migrations_with_one_more(tmp_path, model, column, field)}
    call_command("migrate", database=LATER, verbosity=0, skip_checks=False)
    with pytest.raises(DatabaseError, match=guards.NO_DELETE):
        Event.objects.using(LATER).all()._raw_delete(LATER)
    assert guards.missing(connections[LATER]) == set()
    assert Event.objects.using(LATER).get().payload == payload()


@on_sqlite
def test_of_the_guards_that_stay_for_a_migration_none_looks_into_another_table(guards_put_back: None) -> None:
    guards.make_way(connection)
    with connection.cursor() as cursor:
        cursor.execute("SELECT tbl_name, sql FROM sqlite_master WHERE type = 'trigger'")
        standing = cursor.fetchall()
    tables = connection.introspection.table_names()
    assert standing != []
    for own, statement in standing:
        words = set(re.findall(r"\w+", statement))
        assert words & set(tables) == {own}
