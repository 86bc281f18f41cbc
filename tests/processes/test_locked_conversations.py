"""What somebody else keeps locked: those who would change it are told so in time, and nobody else waits."""

from __future__ import annotations

import gc
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from itertools import cycle, islice
from typing import Any, NamedTuple

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction

from conversations.models import Version
from conversations.store import creation
from sessions_app.models import ApiToken
from tests.conftest import on_sqlite
from tests.support.people.clients import HTTP, WAIT_S, Server, database_url

pytestmark = pytest.mark.no_second_try

WRITERS = 40
"""More than there are threads for requests."""
LOCKED = "0123456789abcdef0123456789abcdef"
FREE = "fedcba9876543210fedcba9876543210"
CSRF = "c" * 32
READS = [
    "/alive",
    "/health",
    "/ready",
    "/api/native/conversations",
    "/api/conversations?limit=20",
    f"/api/conversations/{LOCKED}",
    f"/agent/api/conversations/{LOCKED}/events/search",
    "/",
    f"/c/{LOCKED}",
    f"/c/{FREE}",
]


class Write(NamedTuple):
    """A request that changes a conversation."""

    method: str
    path: str
    body: Any


TITLE = {"title": "new"}
EVENT = {"action": "run", "args": {"command": "true"}}
RENAME = Write("PATCH", f"/api/native/conversations/{LOCKED}", TITLE)
WRITES = [
    RENAME,
    Write("PATCH", f"/api/conversations/{LOCKED}", TITLE),
    Write("PATCH", f"/agent/api/conversations/{LOCKED}", TITLE),
    Write("PATCH", f"/api/v1/app-conversations/{LOCKED}", TITLE),
    Write("POST", f"/api/native/conversations/{LOCKED}/events", {"type": "message", "id": 1, "text": "Hi"}),
    Write("POST", f"/api/conversations/{LOCKED}/events", EVENT),
    Write("POST", f"/api/conversations/{LOCKED}/stop", {}),
    Write("POST", f"/agent/api/conversations/{LOCKED}/run", {}),
    Write("POST", f"/c/{LOCKED}/rename", None),
    Write("DELETE", f"/api/native/conversations/{LOCKED}", None),
]


@pytest.fixture(autouse=True)
def talks(alice: User) -> None:
    """The conversation that is locked, and another one."""
    for public_id in (LOCKED, FREE):
        creation.create(alice, conversation_id=public_id, version=Version.V1)


@contextmanager
def locked() -> Iterator[None]:
    """Keep the conversation locked, as another program would; where rows have no locks, the whole file."""
    if connection.vendor == "sqlite":
        with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as outside:
            outside.execute("BEGIN EXCLUSIVE")
            yield
    else:
        with psycopg.connect(database_url()) as outside_row:
            select = "SELECT 1 FROM conversations_conversation WHERE public_id = %s FOR UPDATE"
            outside_row.execute(select, [LOCKED])
            yield


@contextmanager
def sent(server: Server, writes: list[Write]) -> Iterator[list[HTTPConnection]]:
    """Send the requests, all at once, and leave the answers to be read."""
    with ExitStack() as sockets:
        connections = []
        for method, path, body in writes:
            one = HTTPConnection("127.0.0.1", server.port, timeout=3 * WAIT_S)
            sockets.callback(one.close)
            headers = {"Content-Type": "application/json", "X-CSRFToken": CSRF, "Cookie": f"csrftoken={CSRF}"}
            one.request(method, path, None if body is None else json.dumps(body), headers)
            connections.append(one)
        yield connections


def test_nobody_else_waits_for_those_who_wait_for_a_lock(server: Server, alice: User) -> None:
    _, token = ApiToken.issue(alice.pk, "never used")  # to use it is noted, but not waited for
    headers = {"Authorization": f"Bearer {token}"}
    server.start(DATABASE_LOCK_TIMEOUT_S="300")
    with ExitStack() as until_free:
        until_free.enter_context(locked())
        for _ in range(WRITERS // 4):  # whoever hangs up and comes again takes no other thread
            with sent(server, [RENAME] * 4):
                assert HTTP.get(f"{server.url}/alive").status_code == 200
        with sent(server, [RENAME] * WRITERS) as waiting:
            for path in READS:
                assert HTTP.get(f"{server.url}{path}", headers=headers).status_code == 200, path
            if connection.vendor == "postgresql":
                event = {"type": "event", "id": "e1", "event": EVENT}
                url = f"{server.url}/api/native/conversations/{FREE}/events"
                assert HTTP.post(url, json=event).status_code == 200
            until_free.close()
            assert [one.getresponse().status for one in waiting] == [200] * WRITERS


def test_whoever_waits_for_a_lock_too_long_is_told_to_try_again(server: Server) -> None:
    constants = {"sessions_app.loops.command_channel.WAIT_S": 1.0}
    server.start(constants=constants, DATABASE_LOCK_TIMEOUT_S="1")
    writes = list(islice(cycle(WRITES), WRITERS))
    with locked(), sent(server, writes) as waiting:
        for write, one in zip(writes, waiting, strict=True):
            answer = one.getresponse()
            body = answer.read().decode()
            assert (answer.status, answer.getheader("Retry-After")) == (503, "5"), (write, body)
            if write.path.startswith("/api/native/"):
                assert json.loads(body)["code"] in ("busy", "unavailable"), write
            elif not write.path.startswith("/c/"):
                assert list(json.loads(body)) == ["detail"], write
    assert "Traceback" not in server.log.read_text()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Collect garbage only when the test asks for it."""
    gc.disable()
    yield
    gc.enable()


@on_sqlite
def test_what_is_left_of_a_failed_wait_holds_up_no_other_thread(database: None, uncollected: None) -> None:
    has_failed = threading.Event()

    def wait(milliseconds: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {milliseconds}")
        with suppress(OperationalError), transaction.atomic():  # the error and its traceback keep each other
            pass

    def wait_twice() -> None:
        with closing(connection):
            wait(0)
            has_failed.set()
            wait(int(WAIT_S * 1000))

    waiting = threading.Thread(target=wait_twice)
    with locked():
        waiting.start()
        assert has_failed.wait(WAIT_S)
        waiting.join(0.3)
        gc.collect()
        assert waiting.is_alive(), "what was collected has waited for it"
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
