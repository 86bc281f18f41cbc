"""Threads that write to a SQLite file take turns, in the order in which they came."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.db.utils import ConnectionHandler

from conversations.engines import failures
from conversations.engines.sqlite3 import turns
from conversations.engines.sqlite3.turns import WriteSlots
from tests.support.people.clients import WAIT_S
from tests.support.wires.network import wait_until

pytestmark = [pytest.mark.one_engine, pytest.mark.no_second_try]

INSERT = "INSERT INTO place (name) VALUES (%s)"
TIMEOUT_S = 1


class Threads:
    """A file, and threads that each have a connection to it."""

    def __init__(self, path: Path) -> None:
        options = {"transaction_mode": "IMMEDIATE", "timeout": TIMEOUT_S}
        engine = "conversations.engines.sqlite3"
        self.path = path
        self.connections: Any = ConnectionHandler(
            {"default": {"ENGINE": engine, "NAME": str(path), "OPTIONS": options}}
        )
        self.turns = turns.of_file(str(path))
        self._threads: list[ThreadPoolExecutor] = []

    def run(self, work: Callable[[Any], Any]) -> Future[Any]:
        """Run a function of a connection in a thread of its own."""
        thread = ThreadPoolExecutor(1)
        self._threads.append(thread)
        return thread.submit(lambda: work(self.connections["default"]))

    def waiting(self, count: int) -> None:
        """Return once so many wait for their turn."""
        wait_until(lambda: len(self.turns._waiting) == count)

    def end(self) -> None:
        for thread in self._threads:
            thread.submit(self.connections.close_all).result(WAIT_S)
            thread.shutdown()


@pytest.fixture
def threads(tmp_path: Path, django_db_blocker: Any) -> Iterator[Threads]:
    with django_db_blocker.unblock():
        threads = Threads(tmp_path / "turns.sqlite3")
        threads.run(lambda connection: execute(connection, "CREATE TABLE place (name TEXT)")).result(WAIT_S)
        yield threads
        threads.end()


def execute(connection: Any, statement: str, *values: object) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def insert(name: str) -> Callable[[Any], None]:
    def work(connection: Any) -> None:
        execute(connection, INSERT, name)

    return work


def insert_in_transaction(
    threads: Threads, name: str, held: threading.Event | None = None
) -> Callable[[Any], None]:
    def work(connection: Any) -> None:
        connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        execute(connection, INSERT, name)
        if held is not None:
            held.wait(WAIT_S)
        connection.commit()
        connection.set_autocommit(True)

    return work


def names(threads: Threads) -> list[str]:
    found = threads.run(lambda connection: execute(connection, "SELECT name FROM place ORDER BY rowid"))
    return [name for (name,) in found.result(WAIT_S)]


def test_turns_are_given_in_the_order_in_which_they_are_asked_for() -> None:
    line, order = WriteSlots(), list[int]()

    def take(number: int) -> None:
        assert line.take(WAIT_S)
        order.append(number)
        line.leave()

    assert line.take(0)
    with ThreadPoolExecutor(5) as pool:
        for number in range(5):
            pool.submit(take, number)
            wait_until(lambda expected=number + 1: len(line._waiting) == expected)  # type: ignore[misc]
        line.leave()
    assert order == list(range(5))


def test_who_waits_in_vain_takes_nobody_elses_turn() -> None:
    line = WriteSlots()
    assert line.take(0)
    assert not line.take(0)
    assert not line.take(0.01)
    line.leave()
    assert line.take(0)


def test_transactions_and_single_statements_write_in_the_order_in_which_they_came(threads: Threads) -> None:
    held = threading.Event()
    work = [threads.run(insert_in_transaction(threads, "a", held))]
    wait_until(lambda: threads.turns._is_taken)
    for count, following in enumerate((insert("b"), insert_in_transaction(threads, "c"), insert("d")), 1):
        work.append(threads.run(following))
        threads.waiting(count)
    held.set()
    for each in work:
        each.result(WAIT_S)
    assert names(threads) == ["a", "b", "c", "d"]


def test_reading_waits_for_no_turn(threads: Threads) -> None:
    held = threading.Event()
    writing = threads.run(insert_in_transaction(threads, "a", held))
    wait_until(lambda: threads.turns._is_taken)
    assert names(threads) == []
    held.set()
    writing.result(WAIT_S)


def begin(connection: Any) -> None:
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)


def fail(connection: Any) -> None:
    with pytest.raises(OperationalError):
        execute(connection, "INSERT INTO nowhere VALUES (1)")


def roll_back(connection: Any) -> None:
    begin(connection)
    connection.rollback()


def end_by_statement(connection: Any) -> None:
    execute(connection, "BEGIN IMMEDIATE")
    execute(connection, "ROLLBACK")


def close(connection: Any) -> None:
    begin(connection)
    connection.close()


@pytest.mark.parametrize("end", [fail, roll_back, end_by_statement, close])
def test_however_a_transaction_ends_the_next_one_has_its_turn(
    threads: Threads, end: Callable[[Any], None]
) -> None:
    threads.run(end).result(WAIT_S)
    assert not threads.turns._is_taken
    threads.run(insert("next")).result(WAIT_S)
    assert names(threads) == ["next"]


def test_who_waits_for_no_lock_waits_for_no_turn(threads: Threads) -> None:
    def at_once(connection: Any) -> None:
        with connection.waiting(0), pytest.raises(OperationalError, match="locked"):
            execute(connection, INSERT, "b")

    held = threading.Event()
    writing = threads.run(insert_in_transaction(threads, "a", held))
    wait_until(lambda: threads.turns._is_taken)
    threads.run(at_once).result(WAIT_S)
    held.set()
    writing.result(WAIT_S)
    assert names(threads) == ["a"]


def test_another_programs_lock_is_waited_for_as_long_as_without_turns(threads: Threads) -> None:
    other = sqlite3.connect(threads.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def refused(connection: Any) -> int:
        with pytest.raises(OperationalError, match="locked"):
            execute(connection, INSERT, "b")
        return int(execute(connection, "PRAGMA busy_timeout")[0][0])

    waiting = [threads.run(refused) for _ in range(3)]
    assert [each.result(WAIT_S) for each in waiting] == [1000 * TIMEOUT_S] * 3
    other.rollback()
    other.close()
    threads.run(insert("c")).result(WAIT_S)
    assert names(threads) == ["c"]


# Checkpoints: a library with the WAL-reset bug loses a commit that is made while a checkpoint begins

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"


def checkpoint(connection: Any) -> None:
    execute(connection, CHECKPOINT)


def test_a_checkpoint_waits_for_its_turn_among_the_writers(threads: Threads) -> None:
    held = threading.Event()
    writing = threads.run(insert_in_transaction(threads, "a", held))
    wait_until(lambda: threads.turns._is_taken)
    copying = threads.run(checkpoint)
    threads.waiting(1)
    following = threads.run(insert("b"))
    threads.waiting(2)
    held.set()
    for each in (writing, copying, following):
        each.result(WAIT_S)
    assert names(threads) == ["a", "b"]
    assert not threads.turns._is_taken


@pytest.mark.parametrize("work", [checkpoint, insert("b")])
def test_without_a_turn_nothing_is_copied_and_nothing_written_though_no_lock_is_held(
    threads: Threads, work: Callable[[Any], None]
) -> None:
    assert threads.turns.take(0)
    with pytest.raises(OperationalError, match="database is locked") as refused:
        threads.run(work).result(WAIT_S)
    assert failures.is_locked(refused.value)
    threads.turns.leave()
    threads.run(work).result(WAIT_S)
    assert names(threads) == ([] if work is checkpoint else ["b"])


def test_a_checkpoint_is_no_write_after_which_another_checkpoint_is_due(threads: Threads) -> None:
    threads.run(insert("a")).result(WAIT_S)
    before = threads.turns.ended
    threads.run(checkpoint).result(WAIT_S)
    assert threads.turns.ended == before
    threads.run(insert("b")).result(WAIT_S)
    assert threads.turns.ended == before + 1


def test_a_wait_that_is_shorter_in_a_block_is_so_for_turns_and_locks(threads: Threads) -> None:
    def refused(connection: Any) -> tuple[float, int]:
        began = time.monotonic()
        with connection.waiting(1), pytest.raises(OperationalError, match="locked"):
            execute(connection, INSERT, "b")
        return time.monotonic() - began, int(execute(connection, "PRAGMA busy_timeout")[0][0])

    assert threads.turns.take(0)
    took_s, after_ms = threads.run(refused).result(WAIT_S)
    assert (took_s < TIMEOUT_S, after_ms) == (True, 1000 * TIMEOUT_S)
    threads.turns.leave()
