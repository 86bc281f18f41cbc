"""PostgreSQL gives no connection for a while: who asks is told soon, and is served soon once one is free."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import pytest
from psycopg import sql

from conversations.engines import failures
from conversations.events import ConversationRef
from tests.conftest import on_postgresql
from tests.support.data.events import event
from tests.support.people.clients import HTTP, Server, database_url
from tests.support.wires.network import NetworkClient, wait_until

pytestmark = on_postgresql

TALK = "/api/native/conversations/talk"
CONNECTIONS = 12
ASKED = {
    "append": ("POST", f"{TALK}/events"),
    "read": ("GET", f"{TALK}/events"),
    "list": ("GET", "/api/native/conversations"),
}
WAIT_S = {"conversations.engines.postgresql.base.WAIT_S": 8.0}
"""So long that pauses which double would have grown to more than BACK_WITHIN_S."""
BACK_WITHIN_S = 4.0
"""Two seconds are promised; a machine that tests keep busy is given as much again."""
OFTEN = {
    "conversations.engines.postgresql.base.WAIT_S": 0.5,
    "sessions_app.loops.manager.SWEEP_S": 0.3,
    "sessions_app.loops.manager.RENEW_S": 0.3,
    "sessions_app.loops.manager.HOUSEKEEPING_S": 0.3,
    "sessions_app.loops.command_channel.LOOK_S": 0.3,
    "sessions_app.webhooks.dispatcher.POLL_S": 0.3,
    "sessions_app.search_indexer.POLL_S": 0.3,
    "sessions_app.live.hub.POLL_S": 0.3,
}
BACKGROUND = {
    "The search for agents to start failed": "The search for agents to start works again",
    "The renewal of leases failed": "The renewal of leases works again",
    "Housekeeping failed": "Housekeeping works again",
    "The look for commands failed": "The look for commands works again",
    "A round of the outbox failed": "The outbox works again",
    "A step of the search index failed": "The search index works again",
    "The states of conversations could not be read": "The states of conversations are read again",
}
"""What the log says when a round of the server's fails, and when it works again."""

SESSIONS = "FROM pg_stat_activity WHERE usename = %s AND application_name <> 'others'"


class Limited:
    """Somebody who may have so many connections to the database and no more, and others who take them."""

    def __init__(self, administration: psycopg.Connection) -> None:
        self._administration = administration
        self.name, password = f"few_{os.urandom(4).hex()}", os.urandom(8).hex()
        create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} CONNECTION LIMIT {} IN ROLE {}").format(
            sql.Identifier(self.name),
            sql.Literal(password),
            sql.Literal(CONNECTIONS),
            sql.Identifier(administration.info.user),
        )
        administration.execute(create)
        parts = urlsplit(database_url())
        place = parts.netloc.rpartition("@")[2]
        self.url = urlunsplit(parts._replace(netloc=f"{self.name}:{password}@{place}"))

    @contextmanager
    def all_taken(self) -> Iterator[None]:
        """Leave the server no connection but that of its probes."""
        (probes,) = self._administration.execute(
            f"SELECT pid {SESSIONS} AND query = 'ROLLBACK' ORDER BY query_start DESC LIMIT 1".encode(),
            [self.name],
        ).fetchall()
        with ExitStack() as taken:
            others = 0

            def take() -> bool:
                nonlocal others
                self.end_sessions(besides=probes[0])
                with suppress(psycopg.OperationalError):
                    while others < CONNECTIONS - 1:
                        one = psycopg.connect(self.url, application_name="others")
                        others += 1
                        taken.enter_context(one)
                return others == CONNECTIONS - 1

            wait_until(take)
            yield

    @contextmanager
    def rest_taken(self) -> Iterator[None]:
        """Leave the server the connections that it has, and no more."""
        with ExitStack() as taken:
            with suppress(psycopg.OperationalError):
                while True:
                    taken.enter_context(psycopg.connect(self.url, application_name="others"))
            yield

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Let the server in no more, as while PostgreSQL starts anew, and end the sessions that it has."""
        role = sql.Identifier(self.name)
        self._administration.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(role))
        try:
            self.end_sessions()
            yield
        finally:
            self._administration.execute(sql.SQL("ALTER ROLE {} LOGIN").format(role))

    def end_sessions(self, *, besides: int = 0) -> None:
        end = f"SELECT pg_terminate_backend(pid, 5000) {SESSIONS} AND pid <> %s"
        self._administration.execute(end.encode(), [self.name, besides])


@pytest.fixture
def limited(database: None) -> Iterator[Limited]:
    """Somebody who may have few connections."""
    with psycopg.connect(database_url(), autocommit=True) as administration:
        limited = Limited(administration)
        yield limited
        limited.end_sessions()
        administration.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(limited.name)))


def ask(server: Server, what: str) -> httpx.Response:
    method, path = ASKED[what]
    body = {"type": "event", "id": os.urandom(8).hex(), "event": json.loads(event().payload)}
    return HTTP.request(method, f"{server.url}{path}", json=body if method == "POST" else None)


def ask_all(server: Server) -> list[httpx.Response]:
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda what: ask(server, what), ASKED))


def is_served(server: Server) -> bool:
    answers = [*ask_all(server), HTTP.get(f"{server.url}/health")]
    for answer in answers:
        print(answer.request.url.path, answer.status_code, answer.text[:200])
    return {answer.status_code for answer in answers} == {200}


def test_without_connections_all_are_told_and_served_again_soon_after_one_is_free(
    conversation: ConversationRef, limited: Limited, server: Server
) -> None:
    server.start(constants=WAIT_S, DATABASE_URL=limited.url, REDIS_URL="")
    assert is_served(server)

    def details() -> set[str]:
        answers = ask_all(server)
        assert {answer.status_code for answer in answers} == {503}
        assert all("Retry-After" in answer.headers for answer in answers)
        return {answer.json()["detail"] for answer in answers}

    with limited.all_taken():
        # At first each may be given a connection whose session was ended, and is told of that.
        wait_until(lambda: failures.EXHAUSTED in details())
        health = HTTP.get(f"{server.url}/health")
        assert (health.status_code, health.json()["detail"]) == (503, failures.EXHAUSTED)
        assert HTTP.get(f"{server.url}/alive").status_code == 200
    free_at = time.monotonic()
    wait_until(lambda: is_served(server))
    assert time.monotonic() - free_at < BACK_WITHIN_S


def test_a_server_that_is_refused_more_connections_and_serves_with_those_it_has_is_healthy(
    conversation: ConversationRef, limited: Limited, server: Server
) -> None:
    server.start(DATABASE_URL=limited.url, REDIS_URL="")

    def serves_though_refused() -> bool:
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            answers = list(threads.map(lambda _: ask(server, "list"), range(2 * CONNECTIONS)))
        is_refused = "too many connections" in server.log.read_text()
        return is_refused and {answer.status_code for answer in answers} == {200}

    with limited.rest_taken():
        wait_until(serves_though_refused)
        assert HTTP.get(f"{server.url}/health").status_code == 200


def test_a_probe_whose_connection_was_ended_meanwhile_makes_another(limited: Limited, server: Server) -> None:
    server.start(DATABASE_URL=limited.url, REDIS_URL="")
    limited.end_sessions()
    assert HTTP.get(f"{server.url}/health").status_code == 200


def says(server: Server, *lines: str) -> bool:
    """Say whether all of these are in the server's log."""
    log = server.log.read_text()
    return all(line in log for line in lines)


def test_no_background_work_has_ended_after_the_database_was_away(
    conversation: ConversationRef, limited: Limited, server: Server
) -> None:
    server.start(constants=OFTEN, DATABASE_URL=limited.url, REDIS_URL="")
    with NetworkClient(server, "talk") as client:
        client.send({"type": "message", "text": "before"})
        client.until("event", kind="turn")
        with limited.refused():
            wait_until(lambda: says(server, *BACKGROUND))
        wait_until(lambda: says(server, *BACKGROUND.values()))
        client.send({"type": "message", "text": "afterwards"})
        client.until("event", kind="turn")
    found = f"{server.url}/api/native/search?q=afterwards"
    wait_until(lambda: "talk" in HTTP.get(found).text)
