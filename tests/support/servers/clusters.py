"""A server and workers on a PostgreSQL database of their own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from tests.support.people.clients import HTTP, Server, Worker, database_url
from tests.support.runner import migrated

NATIVE = "/api/native/conversations"
AGENT = "tests.support.people.agents.DirectedAgent"


class Cluster(NamedTuple):
    """One process that serves, and its database."""

    web: Server
    variables: dict[str, str]
    start_worker: Callable[..., Worker]
    """Starts one, which is killed at the end of the test."""

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.variables["DATABASE_URL"], autocommit=True) as session:
            cursor = session.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def say(self, talk: str, text: str) -> None:
        """Send a message by REST."""
        body = {"type": "message", "text": text}
        answer = HTTP.post(f"{self.web.url}{NATIVE}/{talk}/events", json=body)
        assert answer.status_code == 200, answer.text

    def texts(self, talk: str, kind: str) -> list[str]:
        events = HTTP.get(f"{self.web.url}{NATIVE}/{talk}/events").json()["events"]
        return [each["text"] for each in events if each["kind"] == kind]

    def holder(self, talk: str) -> int:
        """Return the process that holds, or last held, the conversation's loop."""
        statement = (
            "SELECT owner_pid FROM sessions_app_agentloop AS loop "
            "JOIN conversations_conversation AS c ON c.id = conversation_id WHERE public_id = %s"
        )
        return int(self.ask(statement, talk)[0][0])

    def run_code(self, code: str) -> None:
        """Run code with the settings of the cluster."""
        self.web.run(
            ["convserver", "manage", "shell", "-v", "0", "-c", code], **self.variables
        ).check_returncode()

    def jobs(self) -> int:
        return int(self.ask("SELECT count(*) FROM procrastinate_jobs")[0][0])


@contextmanager
def serving_cluster(directory: Path, **constants: float) -> Iterator[tuple[Server, dict[str, str]]]:
    """Start a process that serves, on a new database, which is removed afterwards."""
    name = f"cluster_{secrets.token_hex(6)}"
    migrated.make(name)
    url = urlunsplit(urlsplit(database_url())._replace(path=f"/{name}"))
    variables = {"DATABASE_URL": url, "CONVSERVER_MANAGER": "clustered", "CONVSERVER_TEST_RUN": name}
    web = Server(directory)
    try:
        web.start(constants=constants or None, **variables)
        yield web, variables
    finally:
        web.kill()
        with psycopg.connect(database_url(), autocommit=True) as outside:
            outside.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def workers_of(serving: tuple[Server, dict[str, str]], directory: Path) -> Iterator[Cluster]:
    """Return the cluster; the workers that are started in the block are killed after it."""
    web, variables = serving
    with ExitStack() as running:

        def start_worker(agent: str = AGENT, **constants: float) -> Worker:
            place = directory / uuid4().hex
            place.mkdir()
            worker = Worker(place)
            running.callback(worker.kill)
            worker.start(constants=constants, **variables, CONVSERVER_AGENT=agent)
            return worker

        yield Cluster(web, variables, start_worker)
