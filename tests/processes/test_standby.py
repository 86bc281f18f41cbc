"""A standby without which commits are acknowledged is warned of, and a synchronous one is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psycopg
import pytest

from conversations.engines import durability
from faults.instances import Missing, PostgreSQL
from tests.conftest import on_postgresql
from tests.support.data.events import event
from tests.support.people.clients import HTTP, Server
from tests.support.wires.network import wait_until

pytestmark = [on_postgresql, pytest.mark.needs_engine]


@pytest.fixture
def primary() -> Iterator[PostgreSQL]:
    """A PostgreSQL of this test's own."""
    with TemporaryDirectory() as directory, ExitStack() as running:
        place = Path(directory)
        place.chmod(0o755)  # PostgreSQL runs as somebody else
        try:
            primary = PostgreSQL(place / "primary")
        except Missing as missing:
            pytest.skip(str(missing))
        running.callback(primary.kill)
        primary.start()
        yield primary


@pytest.fixture
def followed(primary: PostgreSQL) -> Iterator[PostgreSQL]:
    """A primary of this test's own that a standby follows."""
    with TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        standby = PostgreSQL(place / "standby", primary=primary)
        standby.start()
        yield primary
        standby.kill()


def warned(primary: PostgreSQL) -> list[str]:
    with psycopg.connect(primary.url) as session, session.cursor() as cursor:
        return durability.asynchronous_standby(cursor)


def test_a_standby_is_warned_of_until_commits_wait_for_it(followed: PostgreSQL) -> None:
    wait_until(lambda: bool(warned(followed)))  # a standby follows some time after it answers
    assert "may not be synchronous" in warned(followed)[0]
    followed.require_standby()
    wait_until(lambda: not warned(followed))
    followed.ask("ALTER SYSTEM SET synchronous_commit = 'local'")
    followed.ask("SELECT pg_reload_conf()")
    wait_until(lambda: bool(warned(followed)))


@pytest.fixture
def forsaken(primary: PostgreSQL, server: Server) -> PostgreSQL:
    """A primary whose commits wait for a standby that is gone, with a server that has started on it."""
    server.start(DATABASE_URL=primary.url)
    HTTP.post(f"{server.url}/api/native/conversations", json={"id": "talk"})
    primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'gone'")
    primary.ask("SELECT pg_reload_conf()")
    return primary


def end_waits(primary: PostgreSQL, how: str, ended: Future[httpx.Response]) -> httpx.Response:
    """End each commit that waits for the standby, until the request is answered."""

    def is_answered() -> bool:
        primary.ask(f"SELECT {how}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        return ended.done()

    wait_until(is_answered)
    return ended.result()


@pytest.mark.no_second_try
def test_a_commit_that_is_not_awaited_on_the_standby_is_called_unknown(
    forsaken: PostgreSQL, server: Server, subtests: pytest.Subtests
) -> None:
    talks = f"{server.url}/api/native/conversations"
    frame = {"type": "event", "id": "an id", "event": json.loads(event().payload)}
    key: dict[str, str] = {}
    requests = {
        "append": lambda: HTTP.post(f"{talks}/talk/events", json=frame),
        "create": lambda: HTTP.post(talks, json={}, headers=key),
        "change": lambda: HTTP.patch(f"{talks}/talk", json={"title": "Another title"}),
    }
    with ThreadPoolExecutor(1) as pool:
        for how in ("pg_cancel_backend", "pg_terminate_backend"):
            for name, request in requests.items():
                with subtests.test(how=how, request=name):
                    frame["id"] = key["Idempotency-Key"] = f"{how}-{name}"
                    answer = end_waits(forsaken, how, pool.submit(request))
                    assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
