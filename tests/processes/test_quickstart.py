"""What `serve` prints to begin with works exactly as it is printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from sessions_app.models import ApiToken
from tests.conftest import once
from tests.support.people.clients import HTTP, WAIT_S, Server

pytestmark = once

ROOT = Path(__file__).parents[2]

LAST = "Hello over the socket"
"""What the last printed line says."""

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")


@pytest.fixture
def printed(server: Server) -> str:
    """What a started server has printed."""
    server.start()
    return until_in(server.log, LAST)


def until_in(path: Path, text: str) -> str:
    """Return what the file holds once the text is in it."""
    deadline = time.monotonic() + WAIT_S
    while text not in (found := path.read_text()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def step(printed: str, number: int) -> str:
    """Return what stands under one of the printed headings."""
    found = re.search(rf"^# {number}\. .*\n((?:.+\n)+)", printed, re.MULTILINE)
    assert found is not None, printed
    return found[1]


def paste(commands: str, **environment: str) -> str:
    """Run commands in the directory where the server was started, and return what they print."""
    return subprocess.check_output(
        ["bash", "-c", commands], cwd=ROOT, text=True, timeout=60, env={**os.environ, **environment}
    )


def test_the_address_is_printed_when_it_is_served_and_not_before(server: Server) -> None:
    command = [sys.executable, "-m", "convserver", "serve"]
    with subprocess.Popen(command, env=server.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first_line = process.stdout.readline()
        status = HTTP.get(f"{server.url}/health").status_code
        process.terminate()
    assert first_line == f"convserver is running at {server.url} (press Ctrl-C to stop it).\n"
    assert status == 200


@needs_curl
def test_the_curl_commands_bring_an_answer(printed: str) -> None:
    commands = step(printed, 1)
    shown = paste(commands)
    deadline = time.monotonic() + WAIT_S
    while '"text":"You said: Hello' not in shown:
        assert time.monotonic() < deadline, shown
        shown = paste(commands.splitlines()[-1])  # a slow machine: read the log again


def test_the_python_program_shows_the_answer_each_time_that_it_is_pasted(printed: str) -> None:
    first, second = paste(step(printed, 2)), paste(step(printed, 2))
    assert first.startswith("user: Hello from Python\nagent: You said: Hello from Python\n")
    assert second == "user: Hello from Python\nagent: You said: Hello from Python\n"


@contextmanager
def typed(commands: str, output: Path) -> Iterator[None]:
    """Run the first line, type the others into it, and leave it open."""
    command, *lines = commands.splitlines()
    with (
        output.open("w") as shown,
        subprocess.Popen(
            ["bash", "-c", command], cwd=ROOT, stdin=subprocess.PIPE, stdout=shown, text=True
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write("\n".join([*lines, ""]))
        process.stdin.flush()
        yield
        process.stdin.close()


def test_the_socket_session_shows_the_answer(printed: str, tmp_path: Path) -> None:
    output = tmp_path / "session.log"
    with typed(step(printed, 3), output):
        shown = until_in(output, '"kind":"turn"')
    assert '"text":"You said: Hello over the socket' in shown


@needs_curl
def test_with_a_server_key_the_key_is_brought_along_and_not_printed(server: Server) -> None:
    server.start(SESSION_API_KEY="k3y")
    printed = until_in(server.log, LAST)
    assert "k3y" not in printed
    assert "agent: You said" in paste(step(printed, 2), SESSION_API_KEY="k3y")
    assert '"type": "ack"' in paste("\n".join(step(printed, 1).splitlines()[:2]), SESSION_API_KEY="k3y")


@needs_curl
def test_the_examples_of_the_next_start_work_as_those_of_the_first_did(server: Server) -> None:
    for _ in range(2):
        server.start()
        created = paste(step(until_in(server.log, LAST), 1).splitlines()[0])
        assert '"last_seq":-1' in created.replace(" ", "")
        server.stop()
        server.log.unlink()


@needs_curl
def test_with_accounts_a_token_opens_the_door(server: Server, bob: User) -> None:
    server.start(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="example.org", SECRET_KEY="k" * 50)
    printed = until_in(server.log, LAST)
    _, token = ApiToken.issue(bob.pk, "first steps")
    assert "agent: You said" in paste(step(printed, 2), TOKEN=token)
    assert '"type": "ack"' in paste("\n".join(step(printed, 1).splitlines()[:2]), TOKEN=token)
