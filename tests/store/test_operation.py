"""What operators watch: which processes are there, what waits, who holds a lock, and what looking costs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.engines.sqlite3 import other_writers, turns
from conversations.log import writes
from conversations.models import ConversationRef, Event
from conversations.store import creation
from sessions_app.loops import leases
from sessions_app.models import AgentLoop, ProcessRecord, ProcessRole
from sessions_app.operation import figures, heartbeats, waits
from sessions_app.processes import this_process
from tests.conftest import on_postgresql, on_sqlite
from tests.support.data.events import event
from tests.support.data.held_locks import TOOL, held_file, held_row
from tests.support.people.clients import WAIT_S, database_url
from tests.support.wires.network import wait_until

STATEMENTS_MAX = 14
SECRET = "the words of a user"


def record(name: str, *, silent_s: float = 0.0, age_s: float = 0.0, **columns: Any) -> ProcessRecord:
    """Store the row of a process on another host."""
    values = {
        "role": ProcessRole.WORKER,
        "host": f"{name} boot",
        "pid": 7,
        "started": 1.0,
        "version": "1",
        "began_at": Now() - timedelta(seconds=age_s),
        "seen_at": Now() - timedelta(seconds=silent_s),
    }
    return ProcessRecord.objects.create(**{**values, **columns})


def names(records: Any) -> list[str]:
    return [each.host_name for each in records]


# Processes


def test_a_process_is_alive_until_it_is_silent_for_three_heartbeats(database: None) -> None:
    record("lively", silent_s=20, age_s=90)
    record("silent", silent_s=40, age_s=90)
    record("stopped", silent_s=40, age_s=90, ended_at=timezone.now())
    record("forgotten", silent_s=2 * 24 * 3600, age_s=3 * 24 * 3600)
    found = heartbeats.presence()
    assert (names(found.alive), names(found.gone)) == (["lively"], ["silent"])
    assert found.count(ProcessRole.WORKER) == 1


def test_a_process_that_was_started_again_on_its_host_is_not_missed(database: None) -> None:
    record("one", silent_s=100, age_s=900)
    record("one", age_s=50, pid=8)
    record("two", silent_s=100, age_s=900, role=ProcessRole.SERVER)
    record("two", age_s=50, pid=8)  # a worker replaces no server
    record("three", silent_s=100, age_s=900)
    record("three", silent_s=100, age_s=900, pid=8)
    record("three", age_s=50, pid=9)  # one replaces one
    assert sorted(names(heartbeats.presence().gone)) == ["three", "two"]


def test_this_process_has_one_row_which_says_when_it_ends(database: None) -> None:
    record("old", silent_s=8 * 24 * 3600)
    for _ in range(3):
        heartbeats.beat(ProcessRole.SERVER)
    (own,) = ProcessRecord.objects.all()
    assert heartbeats.presence().alive == [own]
    heartbeats.end()
    assert heartbeats.presence() == ([], [])


def test_a_heartbeat_is_one_statement(database: None) -> None:
    heartbeats.beat(ProcessRole.SERVER)
    with CaptureQueriesContext(connection) as captured:
        heartbeats.beat(ProcessRole.SERVER)
    assert len(captured) == 1


# What waits


def test_the_oldest_unanswered_message_is_found_behind_the_answers_before_it(
    conversation: ConversationRef,
) -> None:
    assert figures.gather().unanswered.since is None
    writes.append(conversation, [event("first", is_input=True)])
    (asked,) = conversation_events(conversation)
    writes.append(conversation, [event("recorded"), event("second", is_input=True)])
    found = figures.gather().unanswered
    assert (found.count, found.since) == (1, asked)


def test_a_message_waits_though_a_clock_that_was_put_back_has_left_a_lease(
    conversation: ConversationRef,
) -> None:
    writes.append(conversation, [event("first", is_input=True)])
    leases.claim(conversation, this_process(), agent="")
    assert figures.gather().unanswered.count == 0
    AgentLoop.objects.of(conversation).update(lease_expires_at=timezone.now() + timedelta(hours=1))
    assert figures.gather().unanswered.count == 1


def conversation_events(conversation: ConversationRef) -> list[Any]:
    rows = Event.objects.filter(conversation_id=conversation.pk).order_by("seq")
    return list(rows.values_list("received_at", flat=True))


def test_figures_cost_as_many_statements_whatever_there_is(alice: User) -> None:
    with CaptureQueriesContext(connection) as few:
        figures.gather()
    for number in range(25):
        talk = creation.create(alice, conversation_id=f"talk-{number}")
        writes.append(talk, [event("Hello", is_input=True)])
        record(f"host-{number}", silent_s=100)
    with CaptureQueriesContext(connection) as many:
        figures.gather()
    assert len(many) - len(few) <= 1  # the first messages of those that wait
    assert len(many) <= STATEMENTS_MAX


# Locks


@contextmanager
def another_session(name: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url(), application_name=name) as session:
        yield session
        session.rollback()


UPDATE = f"UPDATE conversations_conversation SET title = '{SECRET}' WHERE public_id = 'talk'".encode()


@on_postgresql
@pytest.mark.no_second_try
def test_a_locked_row_is_shown_with_who_holds_it_and_who_waits_and_no_value(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "BLOCKED_S", 0.0)
    with (
        ThreadPoolExecutor(1) as thread,
        another_session("convserver worker 12 host") as waiter,
        held_row() as holder,
    ):
        waiting = thread.submit(waiter.execute, UPDATE)
        wait_until(lambda: any(each.waiting for each in waits.found()))
        (found,) = waits.found()
        assert found.holder == f"{TOOL} (session {found.session})"
        assert found.doing == "It is idle in its transaction, after SELECT on conversations_conversation."
        assert found.waiting == "convserver worker 12 host, UPDATE on conversations_conversation"
        assert found.conversation == "talk"
        assert SECRET not in repr(found)
        holder.rollback()
        waiting.result(WAIT_S)
        waiter.rollback()
        assert waits.found() == []


@on_postgresql
@pytest.mark.no_second_try
def test_an_idle_transaction_that_holds_rows_is_shown_without_anyone_that_waits(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_row():
        assert waits.found() == []  # most transactions are over soon
        monkeypatch.setattr(waits, "HELD_S", 0.0)
        (found,) = waits.found()
        assert (found.waiting, found.is_lock) == ("", True)
        assert found.holder == f"{TOOL} (session {found.session})"


@on_postgresql
@pytest.mark.no_second_try
def test_a_slow_statement_is_shown_but_not_a_backups(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "SLOW_S", 0.0)
    with ThreadPoolExecutor(2) as threads:
        for name in ("convserver serve 3 host", "convserver backup 4 host"):
            threads.submit(_sleep, name)
        wait_until(lambda: bool(waits.found()))
        assert {each.holder for each in waits.found()} == {"convserver serve 3 host"}
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"
            )


def _sleep(name: str) -> None:
    with another_session(name) as session, pytest.raises(psycopg.errors.QueryCanceled):
        session.execute("SELECT pg_sleep(30)")


def test_no_value_of_a_statement_is_shown() -> None:
    shown = {
        f"INSERT INTO conversations_event (text) VALUES ('{SECRET}')": "INSERT on conversations_event",
        f"SELECT '{SECRET} FROM secrets' FROM \"auth_user\"": "SELECT on auth_user",
        f"/* {SECRET} */ delete from public.conversations_event where text = '{SECRET}'": (
            "DELETE on conversations_event"
        ),
        f"UPDATE words SET a = '{SECRET}'": "UPDATE",
        f"{SECRET}": "a statement",
        "": "a statement",
    }
    assert {statement: waits.without_values(statement) for statement in shown} == shown


@on_sqlite
@pytest.mark.no_second_try
def test_another_program_that_holds_the_file_is_named_until_a_write_succeeds(
    database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "BLOCKED_S", 0.0)
    with held_file() as pid:
        (found,) = waits.found()
        if other_writers.LOCKS.exists():
            assert found.holder.endswith(f"process {pid}")
        assert found.is_lock
    heartbeats.beat(ProcessRole.SERVER)
    assert waits.found() == []


@on_sqlite
@pytest.mark.no_second_try
def test_a_thread_that_keeps_its_turn_for_long_is_shown(
    database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transaction.atomic():
        assert waits.found() == []
        monkeypatch.setattr(waits, "HELD_S", 0.0)
        (found,) = waits.found()
        assert found.holder == f"this server's thread {threading.current_thread().name}"
    assert waits.found() == []
    assert turns.of_file(str(connection.settings_dict["NAME"])).held is None


def test_a_long_wait_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    long = waits.LockWait("held 1", "a tool", "It is idle.", "", 12.0, "talk")
    for seconds in (2.0, 12.0, 22.0):
        waits.log([long._replace(seconds=seconds)])
    waits.log([])
    waits.log([long])
    waits.log([])
    lines = [entry for entry in caplog.records if "A lock is held for long" in entry.getMessage()]
    assert len(lines) == 2
    assert "a tool" in lines[0].getMessage()
    assert "talk" in lines[0].getMessage()
