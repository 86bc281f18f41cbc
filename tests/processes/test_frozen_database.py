"""PostgreSQL hangs: probes answer all the same, and the server goes on once it is back."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from tempfile import TemporaryDirectory

import psutil
import pytest

from convserver.serving.admission import THREADS
from tests.conftest import on_postgresql
from tests.support.people.clients import HTTP, WAIT_S, Server
from tests.support.servers.ports import free_port
from tests.support.wires.network import wait_until

pytestmark = [on_postgresql, pytest.mark.needs_engine]

PROGRAMS = "/usr/lib/postgresql/*/bin"
ANSWER_WITHIN_S = 5.0
"""A probe promises two seconds; a machine that tests keep busy is given more."""


@pytest.fixture
def cluster() -> Iterator[tuple[str, int]]:
    """A PostgreSQL server of this test's own: its address, and its first process."""
    programs = next((path for path in sorted(Path("/").glob(f"{PROGRAMS[1:]}")) if _is_whole(path)), None)
    run_as: list[str | Path] = [] if os.geteuid() else ["runuser", "-u", "postgres", "--"]
    if programs is None or (run_as and shutil.which("runuser") is None):
        pytest.skip("PostgreSQL's server programs are not installed here")
    with TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o777)
        data, port = place / "data", free_port()
        initdb: list[str | Path] = [
            programs / "initdb",
            "--auth=trust",
            "--no-sync",
            "-U",
            "postgres",
            "-D",
            data,
        ]
        subprocess.run([*run_as, *initdb, "-D", data], check=True, capture_output=True, cwd=place)
        options: list[str | Path] = [
            "-p",
            str(port),
            "-k",
            place,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "fsync=off",
        ]
        command: list[str | Path] = [*run_as, programs / "postgres", "-D", data, *options]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=place, start_new_session=True)
        try:
            pid_file = data / "postmaster.pid"
            deadline = time.monotonic() + WAIT_S
            while not (pid_file.exists() and "ready" in pid_file.read_text()):
                assert time.monotonic() < deadline
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres", int(pid_file.read_text().split()[0])
        finally:
            os.killpg(process.pid, SIGKILL)
            process.wait(timeout=WAIT_S)


def _is_whole(programs: Path) -> bool:
    return (programs / "initdb").exists() and (programs / "postgres").exists()


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process and its children, as they are, for the block."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for each in family:
        each.send_signal(SIGSTOP)
    try:
        yield
    finally:
        for each in family:
            each.send_signal(SIGCONT)


@contextmanager
def requests_that_wait(server: Server) -> Iterator[None]:
    """Have more requests under way than there are threads for."""
    request = b"GET /api/native/conversations HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as sockets:
        for _ in range(THREADS + 8):
            waiting = sockets.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            waiting.sendall(request)
        yield


def test_probes_answer_while_the_database_hangs_and_the_server_goes_on_once_it_is_back(
    server: Server, cluster: tuple[str, int]
) -> None:
    url, pid = cluster
    server.start(DATABASE_URL=url, REDIS_URL="")
    with frozen(pid), requests_that_wait(server):
        answers = {
            path: HTTP.get(f"{server.url}{path}", timeout=ANSWER_WITHIN_S).status_code
            for path in ("/health", "/ready", "/alive")
        }
        assert answers == {"/health": 503, "/ready": 503, "/alive": 200}
    assert HTTP.get(f"{server.url}/health").status_code == 200
    assert HTTP.get(f"{server.url}/api/native/conversations").status_code == 200


@pytest.mark.no_second_try
def test_sigterm_ends_a_server_whose_database_hangs_with_one_sentence(
    server: Server, cluster: tuple[str, int]
) -> None:
    url, pid = cluster
    soon = {"convserver.commands.serving.SHUTDOWN_WAIT_S": 1.0, "convserver.asgi.CLOSING_S": 2.0}
    server.start(DATABASE_URL=url, REDIS_URL="", constants=soon)
    process = psutil.Process(server.pid)
    assert HTTP.get(f"{server.url}/api/native/conversations").status_code == 200
    with frozen(pid), requests_that_wait(server):
        server.signal(SIGTERM)
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, within_s=3 * WAIT_S)
    written = server.log.read_text()
    assert "Traceback" not in written
    assert "The database has not answered for 2 s" in written
