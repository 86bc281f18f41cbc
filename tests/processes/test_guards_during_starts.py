"""Starts beside a server under load, some of them killed: at no moment can an event be changed or deleted."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from signal import SIGKILL
from typing import Any, Self

import psycopg
import pytest
from django.db import connection, transaction

from conversations.engines import guards
from conversations.log import writes
from conversations.models import ConversationRef, Event, GuardRepair
from tests.support.data.events import event
from tests.support.people.clients import HTTP, WAIT_S, Server, database_url, program_environment

pytestmark = pytest.mark.no_second_try

EVENTS = "/api/native/conversations/talk/events"
TRIES = [
    "DELETE FROM conversations_event WHERE seq = 0",
    "UPDATE conversations_event SET payload = '{}' WHERE seq = 1",
]
REFUSALS = (guards.NO_DELETE, guards.NO_UPDATE)
WRITERS = 3
CHANGED = ("event_refuse_delete", "event_refuse_update")
"""Guards of which every start finds an older form, and puts the newest in its place."""


class Beside:
    """Does something without pause in a thread of its own while the block lasts, and counts.

    The act returns whether it counts.
    """

    def __init__(self, act: Callable[[], bool]) -> None:
        self.count = 0
        self._act = act
        self._failure: Exception | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.count += self._act()
        except Exception as error:
            self._failure = error


class Intruder:
    """A connection of somebody's who tries to delete and to change events."""

    def __init__(self) -> None:
        self.let_through: list[str] = []
        if connection.vendor == "sqlite":
            name = str(connection.settings_dict["NAME"])
            self._outside: Any = sqlite3.connect(
                name, isolation_level=None, timeout=WAIT_S, check_same_thread=False
            )
        else:
            self._outside = psycopg.connect(database_url(), autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._outside.close()

    def attempt(self) -> bool:
        """Try each way once. Raise what is no refusal."""
        for statement in TRIES:
            try:
                self._outside.execute(statement)
            except (sqlite3.IntegrityError, psycopg.errors.RaiseException) as error:
                if not any(refusal in str(error) for refusal in REFUSALS):
                    raise
            else:
                self.let_through.append(statement)
        return True


class Starts:
    """Starts of servers, up to where each listens, one after the other (`lone_starts`)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> Self:
        self._log = (self._directory / "starts.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.servers.lone_starts"],
            env=program_environment(self._directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._process.communicate(timeout=WAIT_S)
        finally:
            self._process.kill()
            self._log.close()

    def make(self, kill_after_s: float | None) -> tuple[int, float]:
        """Make one, killed after so long; return its exit status, and the seconds that it took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{'' if kill_after_s is None else kill_after_s}\n")
        self._process.stdin.flush()
        status, seconds = self._process.stdout.readline().split()
        return int(status), float(seconds)

    def log(self) -> str:
        """Return what they have said."""
        self._log.seek(0)
        return self._log.read()


def make_older() -> None:
    """Let guards look as if an earlier release had placed them; they guard all the while."""
    with transaction.atomic(), connection.cursor() as cursor:
        for name in CHANGED:
            if connection.vendor == "postgresql":
                cursor.execute(f"COMMENT ON TRIGGER {name} ON {guards.EVENT} IS 'older'")
            else:
                cursor.execute("SELECT sql FROM sqlite_master WHERE name = %s", [name])
                (found,) = cursor.fetchone()
                cursor.execute(f"DROP TRIGGER {name}")
                cursor.execute(found.replace(" BEGIN ", " /* older */ BEGIN ", 1))


class Writer:
    """A client that appends one event after the other, and repeats what was refused for the moment.

    The intruder's statements hold SQLite's one lock about all the time, so an append may wait for it in vain.
    """

    def __init__(self, server: Server) -> None:
        self._address = f"{server.url}{EVENTS}"
        self._body = frame()

    def append(self) -> bool:
        """Append an event, or repeat the last one; return whether it was acknowledged."""
        answer = HTTP.post(self._address, json=self._body)
        if answer.status_code == 503:
            assert answer.headers["Retry-After"]
            return False
        assert answer.status_code == 200
        self._body = frame()
        return True


def frame() -> dict[str, Any]:
    return {"type": "event", "id": os.urandom(8).hex(), "event": json.loads(event().payload)}


@pytest.mark.timeout(1800)
@pytest.mark.slow(on="sqlite")
def test_no_start_lets_an_event_be_changed_or_deleted_even_if_it_is_killed(
    conversation: ConversationRef,
    server: Server,
    chance: random.Random,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left, kills = (90, 10) if pytestconfig.getoption("full") else (2, 1)
    writes.append(conversation, [event(), event()])
    ended: list[float] = []
    """The seconds that each start took which was left alone."""
    killed = 0
    with ExitStack() as beside:
        starts = beside.enter_context(Starts(tmp_path))
        server.start()
        intruder = beside.enter_context(Intruder())
        tried = beside.enter_context(Beside(intruder.attempt))
        appended = [beside.enter_context(Beside(Writer(server).append)) for _ in range(WRITERS)]
        while len(ended) < left or killed < kills:
            is_to_be_killed = bool(ended) and killed < kills and chance.random() < 2 * kills / left
            make_older()
            status, seconds = starts.make(chance.uniform(0, min(ended)) if is_to_be_killed else None)
            if status == -SIGKILL:
                killed += 1
            else:
                ended.append(seconds)
            assert status == 0 or is_to_be_killed, starts.log()
            assert guards.missing(connection) == set()
    with capsys.disabled():
        print(
            f"{len(ended) + killed} starts, {killed} of them killed, beside "
            f"{sum(each.count for each in appended)} appends; {tried.count * len(TRIES)} tries, "
            f"{len(intruder.let_through)} let through"
        )
    assert intruder.let_through == []
    assert not GuardRepair.objects.exists()
    assert Event.objects.of(conversation).count() == 2 + sum(each.count for each in appended)
    assert HTTP.get(f"{server.url}/health").status_code == 200
