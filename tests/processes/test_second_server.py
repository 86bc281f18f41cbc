"""A second server on one SQLite file is refused; commands are not, and a killed server leaves no lock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import on_sqlite
from tests.support.people.clients import HTTP, Server

RECORDED = Path(__file__).parent.parent / "data" / "claude-code"

pytestmark = [on_sqlite, pytest.mark.no_second_try]


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Server]:
    """A server on the same file, at another port and with a directory of its own; not started yet."""
    directory = tmp_path / "second"
    directory.mkdir()
    server = Server(directory)
    yield server
    server.kill()


def test_a_second_server_is_refused_with_what_to_do_and_starts_once_the_first_is_killed(
    server: Server, second: Server
) -> None:
    server.start()
    refused = second.run(["convserver", "serve"])
    assert (refused.returncode, refused.stdout) == (2, "")
    (said,) = refused.stderr.splitlines()
    assert said.startswith("convserver: The server cannot start: another one, or a restore, uses ")
    assert said.endswith(
        "Stop it, or set CONVSERVER_DATA_DIR or DATABASE_URL to a database of this server's own."
    )
    assert HTTP.get(f"{server.url}/health").status_code == 200
    server.kill()
    second.start()


def test_commands_work_beside_the_server(server: Server, second: Server, tmp_path: Path) -> None:
    server.start()
    for command in (
        ["convserver", "manage", "migrate"],
        ["convserver", "import", "claude-code", str(RECORDED)],
        ["convserver", "backup", str(tmp_path / "backups")],
        ["convserver", "verify"],
    ):
        done = second.run(command)
        assert (command, done.returncode) == (command, 0), done.stderr
