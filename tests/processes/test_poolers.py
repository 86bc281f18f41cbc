"""A connection pooler in front of PostgreSQL: one with sessions works, any other is refused at the start."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from faults.instances import unprivileged
from tests.conftest import on_postgresql
from tests.support.data.events import event
from tests.support.people.clients import HTTP, WAIT_S, Server, database_url
from tests.support.servers.ports import free_port
from tests.support.wires.network import wait_until

pytestmark = [on_postgresql, pytest.mark.needs_engine]

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
_SETTINGS = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
ignore_startup_parameters = options
"""

StartPooler = Callable[[str], str]


@pytest.fixture
def start_pooler(database: None) -> Iterator[StartPooler]:
    """Start a PgBouncer in a mode; return the address of the tests' database by way of it."""
    if PGBOUNCER is None:
        pytest.skip("PgBouncer is not installed.")
    with TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)  # PgBouncer does not run as root
        running: list[subprocess.Popen[bytes]] = []

        def start(mode: str) -> str:
            address, own_port = urlsplit(database_url()), free_port()
            user = address.username or "postgres"
            values = {"host": address.hostname or "127.0.0.1", "port": address.port or 5432, "user": user}
            settings = place / f"{mode}.ini"
            settings.write_text(_SETTINGS.format(**values, own_port=own_port, mode=mode))
            running.append(
                subprocess.Popen([*unprivileged(), str(PGBOUNCER), str(settings)], stderr=subprocess.DEVNULL)
            )
            url = urlunsplit(address._replace(netloc=f"{user}@127.0.0.1:{own_port}"))
            wait_until(lambda: answers(url))
            return url

        yield start
        for process in running:
            process.terminate()
            process.wait(WAIT_S)


def answers(url: str) -> bool:
    with suppress(psycopg.OperationalError), psycopg.connect(url):
        return True
    return False


def test_a_pooler_without_sessions_is_refused_at_the_start(
    start_pooler: StartPooler, server: Server, subtests: pytest.Subtests
) -> None:
    for mode, sentence in (
        ("transaction", "leads to a connection pooler in transaction mode"),
        ("statement", "cannot be used: transaction blocks not allowed in statement pooling mode"),
    ):
        url = start_pooler(mode)
        for command in ("serve", "backup"):
            with subtests.test(mode=mode, command=command):
                ended = server.run(["convserver", command], DATABASE_URL=url)
                assert ended.returncode != 0
                assert sentence in ended.stderr


def test_a_pooler_with_sessions_serves(start_pooler: StartPooler, server: Server) -> None:
    server.start(DATABASE_URL=start_pooler("session"))
    frame = {"type": "event", "id": "an id", "event": json.loads(event().payload)}
    HTTP.post(f"{server.url}/api/native/conversations", json={"id": "talk"})
    answer = HTTP.post(f"{server.url}/api/native/conversations/talk/events", json=frame)
    assert answer.json()["type"] == "ack"
    assert HTTP.get(f"{server.url}/api/native/conversations/talk/events").json()["events"]
