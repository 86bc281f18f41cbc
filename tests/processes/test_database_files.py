"""SQLite's files are removed, replaced, moved or have no room: nothing is acknowledged into nothing."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.sync.client import ClientConnection, connect

from conversations.engines import failures
from conversations.engines.failures import FULL
from conversations.engines.sqlite3.files import EMPTIED, GONE, READ_ONLY
from tests.conftest import on_sqlite
from tests.pure.test_configuration import refusal
from tests.support.people.clients import HTTP, WAIT_S, Server, SocketClosed
from tests.support.runner import migrated
from tests.support.servers.ports import free_port
from tests.support.servers.removing_server import TAKEN_WITH
from tests.support.wires.network import NetworkClient, wait_until
from tests.support.wires.socketio_clients import PythonClient
from tests.support.wires.v0_socket import Refused

pytestmark = [on_sqlite, pytest.mark.no_second_try]

BOUND_BY_RIGHTS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Runs a program as root, but without the right to pass over the rights of files."""
V1_TALK = "5d1e0000000000000000000000000001"
LOOKS = {"sessions_app.live.hub.POLL_S": 0.2}
EVENTS = "/api/native/conversations/talk/events"
DOORS = [
    ("POST", "/api/native/conversations"),
    ("POST", "/api/conversations"),
    ("GET", "/api/conversations"),
    ("GET", "/api/v1/app-conversations/search"),
    ("GET", "/agent/api/conversations/count"),
    ("GET", "/"),
    ("GET", "/admin/"),
]


class Files:
    """The files of a running server's database: what happens to them can be taken back."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._kept = file.parent.with_name("kept")

    def keep(self) -> None:
        """Give each a second name."""
        self._kept.mkdir()
        for each in self._all():
            (self._kept / each.name).hardlink_to(each)

    def put_back(self) -> None:
        """Let the same files be under their names again."""
        self.file.parent.mkdir(exist_ok=True)
        for each in self._all():
            each.unlink()
        for kept in self._kept.iterdir():
            kept.rename(self.file.parent / kept.name)
        self._kept.rmdir()

    def remove(self) -> None:
        for each in self._all():
            each.unlink()

    def remove_main(self) -> None:
        self.file.unlink()

    def remove_log(self) -> None:
        self.file.with_name(f"{self.file.name}-wal").unlink()

    def replace_by_a_copy(self) -> None:
        older = self.file.with_name("older")
        with closing(sqlite3.connect(self.file)) as source, closing(sqlite3.connect(older)) as target:
            source.backup(target)
        older.replace(self.file)

    def replace_directory(self) -> None:
        self.file.parent.rename(self.file.parent.with_name(f"moved-{secrets.token_hex(4)}"))
        self.file.parent.mkdir()

    def make_read_only(self) -> None:
        for each in self._all():
            each.chmod(0o444)

    def make_writable(self) -> None:
        for each in self._all():
            each.chmod(0o644)

    def _all(self) -> list[Path]:
        return list(self.file.parent.glob(f"{self.file.name}*"))


CHANGES = [
    Files.remove,
    Files.remove_main,
    Files.remove_log,
    Files.replace_by_a_copy,
    Files.replace_directory,
]


@pytest.fixture(scope="module")
def running(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on a database of its own, for all tests that put the files back; its sockets look often."""
    server = Server(tmp_path_factory.mktemp("server"), run_by=BOUND_BY_RIGHTS if is_root() else ())
    begin(server, constants=LOOKS)
    yield server
    server.kill()


@pytest.fixture
def files(running: Server) -> Iterator[Files]:
    """The files of its database; afterwards they are where they were."""
    found = Files(running.file)
    found.keep()
    yield found
    found.put_back()


def begin(server: Server, *, constants: Mapping[str, float] | None = None) -> None:
    """Start it on the database of its data directory, which was used before, with two conversations."""
    migrated.make(str(server.file))
    server.start(DATABASE_URL="", constants=constants)
    for id in ("talk", V1_TALK):
        HTTP.post(f"{server.url}/api/native/conversations", json={"id": id}).raise_for_status()


def is_root() -> bool:
    """Say whether rights of files bind nobody here, but for whom BOUND_BY_RIGHTS runs."""
    return os.geteuid() == 0 and shutil.which("setpriv") is not None


def post(server: Server) -> httpx.Response:
    """Let a new event be recorded."""
    id = secrets.token_hex(8)
    message = {"kind": "MessageEvent", "id": id, "source": "user", "llm_message": {"role": "user"}}
    return HTTP.post(f"{server.url}{EVENTS}", json={"type": "event", "id": id, "event": message})


def health(server: Server) -> tuple[int, Any]:
    answer = HTTP.get(f"{server.url}/health")
    return answer.status_code, answer.json()


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_acknowledged_that_is_not_in_the_file_under_the_path(
    running: Server, files: Files, change: Callable[[Files], None]
) -> None:
    assert post(running).status_code == 200
    change(files)
    answer = post(running)
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (503, "unavailable", GONE)
    assert health(running) == (503, {"code": "unavailable", "detail": GONE})


@pytest.mark.parametrize("change", CHANGES)
def test_once_the_right_file_is_back_it_goes_on_by_itself(
    running: Server, files: Files, change: Callable[[Files], None]
) -> None:
    change(files)
    assert health(running)[0] == 503
    files.put_back()
    files.keep()
    assert (health(running), post(running).status_code) == ((200, "OK"), 200)


def test_an_append_that_met_the_removal_is_called_unknown_if_it_was_committed_and_refused_if_not(
    server: Server,
) -> None:
    migrated.make(str(server.file))
    printed = server.run(["tests.support.servers.removed_file"], DATABASE_URL="").stdout
    assert "before the commit: OperationalError, 0, True\n" in printed
    assert "during the commit: OutcomeUnknown, 1, False\n" in printed


def test_an_append_by_rest_that_met_the_removal_is_called_unknown_though_nothing_can_be_read(
    server: Server,
) -> None:
    server.command = ["tests.support.servers.removing_server"]
    begin(server)
    address, aside = f"{server.url}{EVENTS}", server.file.with_name("aside")
    post(server)  # the first request of its sort is the view's
    met = {"type": "event", "id": TAKEN_WITH, "event": {"action": "note"}}
    answer = HTTP.post(address, json=met)
    assert (answer.status_code, answer.json()["code"]) == (503, "outcome_unknown")
    assert "retry-after" not in answer.headers
    aside.rename(server.file)
    again = HTTP.post(address, json=met)
    assert (again.status_code, again.json()["seq"]) == (200, 1)


@pytest.mark.parametrize(("method", "path"), DOORS)
def test_every_door_says_so_and_when_to_come_again_and_the_log_has_a_line(
    running: Server, files: Files, method: str, path: str
) -> None:
    line = f"The database failed on {method} {path}: {GONE}"
    before = running.log.read_text().count(line)
    files.remove()
    answer = HTTP.request(method, f"{running.url}{path}", json={} if method == "POST" else None)
    assert (answer.status_code, "retry-after" in answer.headers, GONE in answer.text) == (503, True, True)
    assert running.log.read_text().count(line) == before + 1


LIST = "/ws/conversations"
TALKS = ["/ws/conversations/talk", f"/sockets/events/{V1_TALK}", f"/sockets/session/{V1_TALK}"]
SOCKETS = [LIST, *TALKS]


def test_an_open_list_is_closed_with_a_code(running: Server, files: Files) -> None:
    with NetworkClient(running, LIST) as client:
        client.receive()
        files.remove()
        assert client.closed().code == 1011


@pytest.mark.parametrize("path", TALKS)
def test_who_writes_by_an_open_socket_is_told_or_cut_off_with_a_code(
    running: Server, files: Files, path: str
) -> None:
    with NetworkClient(running, path) as client:
        client.receive()
        files.remove()
        assert _told_or_cut_off(client)


@pytest.mark.parametrize("path", SOCKETS)
def test_a_socket_that_is_opened_meanwhile_is_closed_with_a_code(
    running: Server, files: Files, path: str
) -> None:
    files.remove()
    with NetworkClient(running, path) as client:
        assert client.closed().code in (1011, 1013)


async def test_who_writes_by_an_open_v0_socket_is_told(running: Server, files: Files) -> None:
    client = PythonClient(running)
    await client.connect("talk")
    files.remove()
    try:
        answer = await client.say("Hi")
        assert (answer["success"], "again" in answer["error"]) == (False, True)
        await client.until(lambda frame: frame.get("id") == "STATUS$ERROR")
    finally:
        await client.leave()


async def test_who_joins_by_v0_meanwhile_is_refused_with_a_sentence(running: Server, files: Files) -> None:
    files.remove()
    client = PythonClient(running)
    try:
        with pytest.raises(Refused, match="try again"):
            await client.connect("talk")
    finally:
        await client.leave()


def test_who_reads_a_socket_is_told(running: Server, files: Files) -> None:
    with connect(f"{running.ws_url}/ws/conversations/talk") as socket:
        _until(socket, "replay_complete")
        files.remove()
        socket.send('{"type": "message", "id": 1, "text": "hello"}')
        assert GONE in _until(socket, "error")


def test_the_log_says_so_without_a_trace(running: Server, files: Files) -> None:
    with NetworkClient(running, TALKS[0]) as client:
        client.until("replay_complete")
        files.remove()
        assert _told_or_cut_off(client)
    log = running.log.read_text()
    assert (GONE in log, "Traceback" in log) == (True, False)


def test_another_file_is_served_only_after_a_restart(server: Server) -> None:
    begin(server)
    files = Files(server.file)
    files.replace_by_a_copy()
    assert post(server).status_code == 503
    server.stop()
    server.start(DATABASE_URL="")
    assert post(server).status_code == 200


# Read-only

WRITES = [
    (EVENTS, {"type": "message", "text": "Hi"}),
    ("/api/conversations/talk/message", {"message": "Hi"}),
    (
        f"/agent/api/conversations/{V1_TALK}/events",
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ),
]


@pytest.fixture
def bound(running: Server) -> Server:
    """The running server, which may not write what is read-only."""
    if os.geteuid() == 0 and not running.run_by:
        pytest.skip("rights of files do not bind root, and setpriv is not installed here")
    return running


@pytest.fixture
def read_only(bound: Server, files: Files) -> Iterator[Files]:
    """The files of its database, which can only be read during the test."""
    files.make_read_only()
    yield files
    files.make_writable()


def test_what_is_acknowledged_while_files_become_read_only_is_stored(bound: Server, files: Files) -> None:
    acknowledged = [post(bound)]
    files.make_read_only()
    try:
        acknowledged += [post(bound) for _ in range(5)]
    finally:
        files.make_writable()
    ids = {answer.json()["id"] for answer in acknowledged if answer.status_code == 200}
    health(bound)
    page = HTTP.get(f"{bound.url}{EVENTS}").json()["events"]
    assert ids <= {event["id"] for event in page}


def test_read_only_files_are_told_and_everything_goes_on_once_they_can_be_written(
    bound: Server, read_only: Files
) -> None:
    unavailable = (503, {"code": "unavailable", "detail": READ_ONLY})
    assert health(bound) == unavailable
    assert (post(bound).status_code, post(bound).json()["detail"]) == (503, READ_ONLY)
    read_only.make_writable()
    assert (health(bound), post(bound).status_code) == ((200, "OK"), 200)


@pytest.mark.parametrize(("path", "body"), WRITES)
def test_whoever_writes_is_told_that_files_are_read_only(
    bound: Server, read_only: Files, path: str, body: Any
) -> None:
    health(bound)
    answer = HTTP.post(f"{bound.url}{path}", json=body)
    assert (answer.status_code, READ_ONLY in answer.text) == (503, True)


def test_what_is_there_can_be_read_while_files_are_read_only(bound: Server, read_only: Files) -> None:
    health(bound)
    assert HTTP.get(f"{bound.url}{EVENTS}").status_code == 200


def files_read_only(directory: Path) -> None:
    (directory / "convserver.sqlite3").touch()
    (directory / "convserver.sqlite3").chmod(0o444)


def directory_read_only(directory: Path) -> None:
    directory.chmod(0o555)


def directory_of_a_closed_database_read_only(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "convserver.sqlite3")) as connection:
        connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE something (id int)")
    directory.chmod(0o555)


@pytest.mark.parametrize(
    "spoil", [files_read_only, directory_read_only, directory_of_a_closed_database_read_only]
)
def test_a_start_where_nothing_may_be_written_says_so(
    bound: Server, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    directory = tmp_path / "database"
    directory.mkdir()
    spoil(directory)
    said = refusal(bound, PORT=str(free_port()), DATABASE_URL=f"sqlite:///{directory}/convserver.sqlite3")
    assert said == f"convserver: The server cannot start: {READ_ONLY}\n"


@pytest.fixture
def immutable(bound: Server) -> Iterator[Path]:
    """A running server's `-shm` file, which SQLite has mapped into its memory and nothing may change now."""
    file = bound.file.with_name(f"{bound.file.name}-shm")
    if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", file], check=False).returncode:
        pytest.skip("this file system or user cannot make files immutable")
    yield file
    subprocess.run(["chattr", "-i", file], check=True)


def test_a_server_that_the_system_kills_leaves_a_line(bound: Server, immutable: Path) -> None:
    """The kernel sends SIGBUS for a write into the mapped file, which no program can survive."""
    process = psutil.Process(bound.pid)
    with suppress(httpx.TransportError):
        while process.status() != psutil.STATUS_ZOMBIE:
            post(bound)
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
    assert "Fatal Python error: Bus error" in bound.log.read_text()


# A damaged file


@pytest.fixture
def stored(server: Server) -> Path:
    """The file of a running server's database, with all that was stored in it."""
    begin(server)
    assert post(server).status_code == 200
    with closing(sqlite3.connect(server.file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return server.file


def told(server: Server) -> list[tuple[int, str]]:
    """Return the status and the sentence of some answers; a connection may still have pages in its memory."""
    return [(each.status_code, each.json().get("detail", "")) for each in (post(server) for _ in range(5))]


@pytest.mark.parametrize(
    ("kept_bytes", "sentence"), [(0, EMPTIED), (8192, failures.DAMAGED)], ids=["empty", "beginning"]
)
def test_of_a_file_that_was_cut_off_everybody_is_told(
    server: Server, stored: Path, kept_bytes: int, sentence: str
) -> None:
    os.truncate(stored, kept_bytes)
    wait_until(lambda: all(each == (503, sentence) for each in told(server)))
    assert health(server) == (503, {"code": "unavailable", "detail": sentence})


def test_of_a_file_that_is_overwritten_everybody_is_told(server: Server, stored: Path) -> None:
    with stored.open("r+b") as file:
        file.write(b"x" * stored.stat().st_size)
    sentences = {failures.DAMAGED, failures.NO_DATABASE}
    wait_until(lambda: all(status == 503 and words in sentences for status, words in told(server)))
    status, answer = health(server)
    assert (status, answer["detail"] in sentences) == (503, True)


# Another program writes


def test_a_write_waits_for_another_program_once(server: Server, stored: Path) -> None:
    with closing(sqlite3.connect(stored, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert health(server)[0] == 200
        answer = post(server)  # tries to write for as long as others may have it
        assert (answer.status_code, answer.json()["detail"]) == (503, failures.LOCKED)
        assert "retry-after" in answer.headers
        locked = (503, {"code": "unavailable", "detail": failures.LOCKED})
        wait_until(lambda: health(server) == locked)  # it was locked for long
    assert (health(server)[0], post(server).status_code) == (200, 200)


# No room


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes where the server keeps its data."""
    disk = tmp_path / "data"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("only root can make a small disk, and not everywhere")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room on the disk; return the file that takes it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1024 * 1024, 4096):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                pass
    return ballast


UNHEALTHY = (503, {"code": "unavailable", "detail": FULL})


def test_with_a_full_disk_the_server_says_so_and_goes_on_once_there_is_room(
    server: Server, small_disk: Path
) -> None:
    begin(server)
    ballast = fill(small_disk)
    # SQLite's files have some room for a while.
    wait_until(lambda: post(server).json().get("detail") == FULL and health(server) == UNHEALTHY)
    ballast.unlink()
    assert (health(server), post(server).status_code) == ((200, "OK"), 200)


def test_a_start_on_a_full_disk_says_so(server: Server, small_disk: Path) -> None:
    fill(small_disk)
    said = refusal(server, DATABASE_URL=f"sqlite:///{small_disk}/convserver.sqlite3")
    assert said == f"convserver: The server cannot start: {FULL}\n"


def _told_or_cut_off(client: NetworkClient) -> bool:
    """Say something; return whether it is answered, or cut off with a code in the middle of the log."""
    told = re.compile(f"{re.escape(GONE)}|Send it again")
    try:
        client.send({"type": "auth"})  # V1 tells only clients that know this frame
        client.send(
            {"type": "message", "text": "Hi", "role": "user", "content": [{"type": "text", "text": "Hi"}]}
        )
        while not told.search(client.receive_text()):
            pass
    except SocketClosed as closed:
        return closed.code in (1011, 1013)
    return True


def _until(socket: ClientConnection, type: str) -> str:
    while f'"type":"{type}"' not in (frame := str(socket.recv(timeout=WAIT_S))):
        pass
    return frame
