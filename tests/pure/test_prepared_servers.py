"""Servers that are copies of a process which has loaded the application: each is a server of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conversations.models import Conversation
from tests.support.people.clients import HTTP, Server
from tests.support.runner import prepared_servers

pytestmark = [
    pytest.mark.one_engine,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every program is started as usual"),
]

SERVE = ["convserver", "serve"]
KEY = "the-key-of-this-server"
ENVIRONMENT = {"DATABASE_URL": "sqlite:////x", "SECRET_KEY": "k", "PORT": "1", "CONVSERVER_DATA_DIR": "/a"}


@pytest.mark.timeout(300)
def test_the_servers_of_one_configuration_have_ports_directories_and_ages_of_their_own(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "another").mkdir()
    servers = [server, Server(tmp_path / "another")]
    begun_at = 0.0
    for each in servers:
        begun_at = time.monotonic()
        each.start(CONVSERVER_AGENT="demo", DATABASE_URL=f"sqlite:///{each.file}")
    try:
        start = prepared_servers.start_of(
            server.command,
            {**server.environment, "CONVSERVER_AGENT": "demo", "DATABASE_URL": f"sqlite:///{server.file}"},
        )
        assert start in prepared_servers.prepared_servers.waiting_for
        assert [str(each.port) in each.log.read_text() for each in servers] == [True, True]
        info = HTTP.get(f"{servers[1].url}/server_info").json()
        assert info["uptime"] <= time.monotonic() - begun_at
        assert (tmp_path / "another" / "data" / "last_database").exists()
    finally:
        servers[1].kill()


def test_a_copy_has_the_key_the_agent_and_the_database_that_it_was_started_with(server: Server) -> None:
    server.start()
    assert HTTP.get(f"{server.url}/api/native/conversations").status_code == 200
    first = prepared_servers.start_of(server.command, server.environment)
    server.kill()
    own: dict[str, Any] = {"SESSION_API_KEY": KEY, "CONVSERVER_AGENT": "demo", "DATABASE_URL": ""}
    assert prepared_servers.start_of(server.command, {**server.environment, **own}) == first
    server.start(**own)
    # A copy that cannot take all of this over becomes `python -m convserver`.
    assert b"tests.support.runner.forks" in Path(f"/proc/{server.pid}/cmdline").read_bytes()
    assert HTTP.get(f"{server.url}/api/native/conversations").status_code == 401
    headers = {"X-Session-API-Key": KEY}
    assert HTTP.post(f"{server.url}/api/conversations", headers=headers, json={}).status_code == 200
    assert server.file.exists()
    assert not Conversation.objects.exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"PORT": "2", "CONVSERVER_DATA_DIR": "/b"},
        {"DATABASE_URL": ""},
        {"DATABASE_URL": "sqlite:////y"},
        {"SESSION_API_KEY": KEY},
        {"CONVSERVER_AGENT": "demo", "REDIS_URL": "redis://x"},
    ],
)
def test_servers_that_differ_in_what_is_read_later_are_copies_of_one_process(changed: dict[str, str]) -> None:
    start = prepared_servers.start_of(SERVE, ENVIRONMENT)
    assert start is not None
    assert start == prepared_servers.start_of(SERVE, {**ENVIRONMENT, **changed})


@pytest.mark.parametrize(
    "changed", [{"CONVSERVER_AUTH": "accounts"}, {"DATABASE_URL": "postgresql://x/y"}, {"SECRET_KEY": "l"}]
)
def test_servers_that_differ_in_what_modules_read_are_not(changed: dict[str, str]) -> None:
    start = prepared_servers.start_of(SERVE, ENVIRONMENT)
    assert start != prepared_servers.start_of(SERVE, {**ENVIRONMENT, **changed})


def test_servers_with_other_constants_are_not() -> None:
    start = prepared_servers.start_of(SERVE, ENVIRONMENT)
    assert start != prepared_servers.start_of(
        ["tests.support.servers.serve_with", "a.B=1", "--", "serve"], ENVIRONMENT
    )


@pytest.mark.parametrize(
    "command", [["convserver", "manage", "migrate"], ["convserver", "export"], ["timeit"]]
)
def test_other_programs_start_as_usual(command: list[str]) -> None:
    assert prepared_servers.start_of(command, ENVIRONMENT) is None


def test_a_server_that_finds_its_key_in_its_directory_starts_as_usual() -> None:
    assert prepared_servers.start_of(SERVE, {**ENVIRONMENT, "SECRET_KEY": ""}) is None
