"""Servers that are copies of a process which has loaded the application: each is a server of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests import prepared_servers
from tests.clients import HTTP, Server

pytestmark = [
    pytest.mark.one_engine,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every program is started as usual"),
]

ENVIRONMENT = {"DATABASE_URL": "sqlite:////x", "SECRET_KEY": "k", "PORT": "1", "CONVSERVER_DATA_DIR": "/a"}


@pytest.mark.timeout(300)
def test_the_servers_of_one_configuration_have_ports_directories_and_ages_of_their_own(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "another").mkdir()
    servers = [server, Server(tmp_path / "another")]
    begun_at = 0.0
    for each in (server, server, *servers):  # the second one begins the process that is copied
        each.kill()
        begun_at = time.monotonic()
        each.start(CONVSERVER_AGENT="demo")
    try:
        start = prepared_servers.start_of(server.command, {**server.environment, "CONVSERVER_AGENT": "demo"})
        assert start in prepared_servers.prepared_servers.waiting_for
        assert [str(each.port) in each.log.read_text() for each in servers] == [True, True]
        info = HTTP.get(f"{servers[1].url}/server_info").json()
        assert info["uptime"] <= time.monotonic() - begun_at
        assert (tmp_path / "another" / "data" / "last_database").exists()
    finally:
        servers[1].kill()


def test_only_servers_that_differ_in_port_and_directory_are_copies_of_one_process() -> None:
    serve = ["convserver", "serve"]
    start = prepared_servers.start_of(serve, ENVIRONMENT)
    assert start is not None
    assert start == prepared_servers.start_of(
        serve, {**ENVIRONMENT, "PORT": "2", "CONVSERVER_DATA_DIR": "/b"}
    )
    assert start != prepared_servers.start_of(serve, {**ENVIRONMENT, "CONVSERVER_AGENT": "demo"})
    assert start != prepared_servers.start_of(["tests.serve_with", "a.B=1", "--", "serve"], ENVIRONMENT)


@pytest.mark.parametrize(
    "command", [["convserver", "manage", "migrate"], ["convserver", "export"], ["timeit"]]
)
def test_other_programs_start_as_usual(command: list[str]) -> None:
    assert prepared_servers.start_of(command, ENVIRONMENT) is None


@pytest.mark.parametrize("missing", ["DATABASE_URL", "SECRET_KEY"])
def test_a_server_that_finds_its_database_or_key_in_its_directory_starts_as_usual(missing: str) -> None:
    assert prepared_servers.start_of(["convserver", "serve"], {**ENVIRONMENT, missing: ""}) is None
