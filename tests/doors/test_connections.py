"""What strangers may do to a server before it knows them: send slowly, endlessly or nothing at all."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvicorn

from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from convserver.serving import http_protocol
from convserver.serving.connections import HELD_MAX_BYTES, Connections
from convserver.serving.http_protocol import (
    DISCARDED_MAX_BYTES,
    HEAD_MAX_BYTES,
    HEAD_MAX_LINES,
    PIPELINED_MAX,
    BoundedHttp,
    State,
)
from convserver.serving.websocket_protocol import BoundedWebSocket
from sessions_app.identity.addresses import Networks
from sessions_app.sockets.native.frames import FRAME_MAX_BYTES
from tests.support.people.clients import HTTP, WAIT_S, Server
from tests.support.runner import migrated
from tests.support.wires.network import NetworkClient, wait_until
from tests.support.wires.v1 import START

pytestmark = pytest.mark.one_engine

MEGABYTE = 1024 * 1024
GROWTH_MAX_BYTES = 50 * MEGABYTE
CROWD = 500
FULL_CROWD = 2000
FEW = 20
ELSEWHERE = "127.0.0.2"
"""An address that is neither a proxy's nor that of programs on this machine."""
SERVED_WITHIN_S = 2.0
QUICK = {
    "convserver.serving.http_protocol.HEAD_S": 1.0,
    "convserver.serving.http_protocol.BODY_S": 1.0,
    "convserver.serving.http_protocol.SILENT_S": 1.5,
    "convserver.serving.http_protocol.DISCARDED_S": 1.0,
}
LITTLE_ROOM = {
    "convserver.serving.admission.BODIES_MAX_BYTES": FRAME_MAX_BYTES,
    "convserver.serving.admission.BODY_WAIT_S": 0.3,
}
KEY = "the-key-of-this-server"
NATIVE = "/api/native/conversations"
KNOWN = {"x-session-api-key": KEY}
GET = b"GET /alive HTTP/1.1\r\nHost: localhost\r\n"
LAST_GET = GET + b"Connection: close\r\n\r\n"
UPGRADE = (
    b"GET /ws/conversations HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def dial(server: Server, sent: bytes = b"", *, address: str = "127.0.0.1") -> socket.socket:
    """Connect and send something."""
    connection = socket.create_connection(
        ("127.0.0.1", server.port), timeout=WAIT_S, source_address=(address, 0)
    )
    connection.sendall(sent)
    return connection


def heard(connection: socket.socket) -> bytes:
    """Return all that the server says until it closes the connection."""
    said = b""
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            said += part
    return said


def status_of(connection: socket.socket) -> int | None:
    """Return the status that the server closes the connection with; None if it just closes it."""
    said = heard(connection)
    return int(said.split(b" ", 2)[1]) if said else None


def post(path: str, *, length: int | None, **headers: str) -> bytes:
    """Return the head of a request whose body is still to come."""
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", size]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


def is_served(server: Server) -> bool:
    """Say whether others are answered as usual."""
    start = time.monotonic()
    return HTTP.get(f"{server.url}/alive").status_code == 200 and time.monotonic() - start < SERVED_WITHIN_S


def resident_bytes(server: Server) -> int:
    return int(psutil.Process(server.pid).memory_info().rss)


def serving(directory: Path, *, constants: dict[str, float] | None, **environment: str) -> Iterator[Server]:
    """Serve with a database of its own to those who know the key."""
    server = Server(directory)
    migrated.make(str(server.file))
    try:
        server.start(constants=constants, DATABASE_URL="", SESSION_API_KEY=KEY, **environment)
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def patient(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as it is, except that an address may have few connections, and large bodies little room."""
    yield from serving(
        tmp_path_factory.mktemp("patient"),
        constants=LITTLE_ROOM,
        CONVSERVER_MAX_CONNECTIONS_PER_ADDRESS=str(FEW),
    )


@pytest.fixture(scope="module")
def quick(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that soon loses patience."""
    yield from serving(tmp_path_factory.mktemp("quick"), constants=QUICK)


# Heads that say two things


REPEATED = {
    "host": ("localhost", "localhost"),
    "authorization": ("Bearer cs_one", "Bearer cs_two"),
    "x-session-api-key": ("cs_one", "cs_two"),
    "origin": ("http://localhost", "http://evil.example"),
    "content-length": ("2", "2"),
    "content-type": ("application/json", "text/plain"),
    "transfer-encoding": ("chunked", "chunked"),
    "idempotency-key": ("one", "two"),
}


def test_a_header_of_one_value_that_is_repeated_is_refused_without_a_traceback(
    quick: Server, subtests: pytest.Subtests
) -> None:
    addresses = ("/", "/alive", "/api/conversations", "/api/native/conversations", "/socket.io/", "/mcp")
    before = len(quick.log.read_text())
    for name, values in REPEATED.items():
        for address in (*addresses, "/ws/conversations"):
            with subtests.test(name=name, address=address):
                host = [] if name == "host" else ["Host: localhost"]
                upgraded = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
                key = ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
                more = [*upgraded, *key] if address.startswith("/ws") else []
                lines = [f"GET {address} HTTP/1.1", *host, *more, *(f"{name}: {each}" for each in values)]
                with closing(dial(quick, "\r\n".join([*lines, "", ""]).encode())) as client:
                    assert status_of(client) == 400
    written = quick.log.read_text()[before:]
    assert "Traceback" not in written
    assert is_served(quick)


# Crowds


STRANGERS = {
    "silent": b"",
    "half_head": GET + b"X-Padding: " + b"x" * 20_000,
    "many_lines": GET + b"X-Line: x\r\n" * 90,
    "endless_head": GET + b"X-Padding: " + b"x" * 10 * HEAD_MAX_BYTES,
    "half_body": post(NATIVE, length=60_000) + b"x" * 50_000,
}


@pytest.mark.parametrize("sent", STRANGERS.values(), ids=STRANGERS)
def test_a_crowd_of_strangers_leaves_the_server_answering_others_in_little_memory(
    patient: Server, request: pytest.FixtureRequest, sent: bytes
) -> None:
    count = FULL_CROWD if request.config.getoption("--full") else CROWD
    assert is_served(patient)
    before = resident_bytes(patient)
    with ExitStack() as crowd:
        for number in range(count):
            with suppress(ConnectionError):  # of those that the server has closed by now
                crowd.enter_context(closing(dial(patient, sent)))
            if number % 100 == 0:
                assert is_served(patient)
        assert is_served(patient)
        assert resident_bytes(patient) - before < GROWTH_MAX_BYTES


def test_unfinished_requests_hold_a_bounded_amount_of_memory_in_all(patient: Server) -> None:
    half = post(NATIVE, length=60_000) + b"x" * 59_000
    with ExitStack() as crowd:
        first = crowd.enter_context(closing(dial(patient, half)))
        for _ in range(HELD_MAX_BYTES // 59_000 + 1):
            crowd.enter_context(closing(dial(patient, half)))
        assert heard(first) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_with_few_descriptors_those_are_answered_for_whom_there_is_room(
    django_db_setup: None, tmp_path: Path
) -> None:
    server = Server(tmp_path, run_by=("prlimit", "--nofile=300:300"))
    migrated.make(str(server.file))
    try:
        server.start(DATABASE_URL="")
        with ExitStack() as crowd:
            for number in range(400):
                crowd.enter_context(closing(dial(server, GET)))
                if number % 50 == 0:
                    assert is_served(server)
            assert is_served(server)
        wait_until(lambda: "There is room for connections again" in server.log.read_text())
        assert server.log.read_text().count("There is no room for more connections") == 1
    finally:
        server.kill()


def test_an_address_has_a_bounded_number_of_connections_and_others_are_served(patient: Server) -> None:
    with ExitStack() as crowd:
        for _ in range(FEW):
            crowd.enter_context(closing(dial(patient, address=ELSEWHERE)))
        assert status_of(crowd.enter_context(closing(dial(patient, address=ELSEWHERE)))) == 429
        assert is_served(patient)
    wait_until(lambda: is_answered(patient, address=ELSEWHERE))


def is_answered(server: Server, *, address: str) -> bool:
    with closing(dial(server, LAST_GET, address=address)) as client:
        return status_of(client) == 200


def test_a_socket_keeps_the_place_of_its_connection_until_it_ends(patient: Server) -> None:
    with ExitStack() as crowd:
        for _ in range(FEW - 1):
            crowd.enter_context(closing(dial(patient, address=ELSEWHERE)))
        with closing(dial(patient, UPGRADE, address=ELSEWHERE)) as upgraded:
            assert upgraded.recv(12) == b"HTTP/1.1 101"
            assert not is_answered(patient, address=ELSEWHERE)
        wait_until(lambda: is_answered(patient, address=ELSEWHERE))


# One at a time


def test_a_connection_on_which_nothing_comes_is_closed(quick: Server) -> None:
    with closing(dial(quick)) as silent, closing(dial(quick, GET + b"\r\n")) as idle:
        assert (heard(silent), status_of(idle)) == (b"", 200)


def test_a_socket_on_which_nothing_comes_stays_open(quick: Server) -> None:
    with NetworkClient(quick, "silence") as client:
        client.send({"type": "auth", "token": KEY})
        client.until("replay_complete")
        time.sleep(2 * QUICK["convserver.serving.http_protocol.SILENT_S"])
        client.send({"type": "message", "id": 1, "text": "Still there?"})
        client.until("ack")


def test_a_head_or_a_body_that_does_not_come_is_answered_with_408(quick: Server) -> None:
    with (
        closing(dial(quick, GET)) as head,
        closing(dial(quick, post(NATIVE, length=10) + b"{")) as body,
        closing(dial(quick, post(NATIVE, length=None) + b"1\r\n{")) as chunk,
    ):
        assert [status_of(each) for each in (head, body, chunk)] == [408, 408, 408]


@pytest.mark.parametrize("sent", [GET, post(NATIVE, length=1000), b""], ids=["head", "body", "lines_before"])
def test_bytes_that_come_one_by_one_do_not_keep_a_connection_open(quick: Server, sent: bytes) -> None:
    start = time.monotonic()
    with closing(dial(quick, sent)) as client, suppress(ConnectionError):
        while time.monotonic() < start + WAIT_S:
            client.sendall(b"\n" if not sent else b"x")
            time.sleep(0.05)
    assert time.monotonic() - start < WAIT_S / 2


def test_a_slow_body_that_makes_progress_is_read(quick: Server) -> None:
    body = json.dumps({"title": "x", "padding": "y" * 4000}).encode()
    with closing(dial(quick, post(NATIVE, length=len(body), connection="close", **KNOWN))) as slow:
        for start in range(0, len(body), 1500):
            slow.sendall(body[start : start + 1500])
            time.sleep(0.6)
        assert status_of(slow) == 201


HEADS = {
    "large": (b"X-Padding: %s\r\n" % (b"x" * (HEAD_MAX_BYTES - 200)), 200),
    "too_large": (b"X-Padding: %s\r\n" % (b"x" * HEAD_MAX_BYTES), 431),
    "long": (b"X-Line: x\r\n" * (HEAD_MAX_LINES - 2), 200),
    "too_long": (b"X-Line: x\r\n" * HEAD_MAX_LINES, 431),
}


@pytest.mark.parametrize(("lines", "status"), HEADS.values(), ids=HEADS)
def test_heads_have_a_limit_of_bytes_and_of_lines(quick: Server, lines: bytes, status: int) -> None:
    with closing(dial(quick, LAST_GET.removesuffix(b"\r\n") + lines + b"\r\n")) as client:
        assert status_of(client) == status


ENDLESS = {
    "lines_before_a_request": b"\r\n" * HEAD_MAX_BYTES,
    "lines_after_a_body": post(NATIVE, length=None) + b"0\r\n" + b"X-Line: x\r\n" * HEAD_MAX_LINES,
    "a_line_after_a_body": post(NATIVE, length=None) + b"0\r\nX-Line: " + b"x" * 3 * HEAD_MAX_BYTES,
    "an_extension_of_a_chunk": post(NATIVE, length=None) + b"1;x=" + b"x" * 3 * HEAD_MAX_BYTES,
}


@pytest.mark.parametrize("sent", ENDLESS.values(), ids=ENDLESS)
def test_what_belongs_to_no_head_and_no_body_has_the_same_limit(patient: Server, sent: bytes) -> None:
    with closing(dial(patient, sent)) as client:
        assert status_of(client) in (431, None)


def test_a_line_that_is_no_request_is_answered_with_400(quick: Server) -> None:
    with closing(dial(quick, b"no request\r\n\r\n")) as client:
        assert status_of(client) == 400


def test_requests_in_one_part_are_all_answered_up_to_a_limit(quick: Server) -> None:
    with closing(dial(quick, (GET + b"\r\n") * 20 + LAST_GET)) as client:
        assert heard(client).count(b"HTTP/1.1 200") == 21
    with closing(dial(quick, (GET + b"\r\n") * 3 * PIPELINED_MAX)) as client:
        assert heard(client).count(b"HTTP/1.1 200") <= PIPELINED_MAX


# Bodies


DOORS = {
    "native": (NATIVE, 401),
    "v0": ("/api/conversations", 401),
    "v1_app": ("/api/v1/app-conversations", 401),
    "v1_agent": ("/agent/api/conversations", 401),
    "login": ("/ui/login", 413),
    "key": ("/ui/key", 413),
    "admin": ("/admin/login/", 413),
    "socket_io": ("/socket.io/?EIO=4&transport=polling&sid=unknown", 413),
}


def test_a_large_body_of_an_unknown_client_is_refused_before_it_is_read(
    quick: Server, subtests: pytest.Subtests
) -> None:
    for (name, (path, status)), key in product(DOORS.items(), [None, "another-key-of-a-server"]):
        with subtests.test(name, key=key):
            headers = {"x-session-api-key": key} if key else {}
            with closing(dial(quick, post(path, length=UNKNOWN_BODY_MAX_BYTES + 1, **headers))) as client:
                assert int(client.recv(12).split()[1]) == status


def test_a_large_body_without_a_length_is_refused_once_it_is_large(quick: Server) -> None:
    chunk = b"%x\r\n%s\r\n" % (UNKNOWN_BODY_MAX_BYTES + 1, b"x" * (UNKNOWN_BODY_MAX_BYTES + 1))
    with closing(dial(quick, post(NATIVE, length=None) + chunk)) as client:
        assert int(client.recv(12).split()[1]) == 401


@pytest.mark.parametrize("length", [UNKNOWN_BODY_MAX_BYTES + 1, None])
def test_a_large_body_of_a_known_client_is_read(quick: Server, length: int | None) -> None:
    body = json.dumps({"title": "x"}).encode().ljust(UNKNOWN_BODY_MAX_BYTES + 1)
    sent = body if length else b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with closing(dial(quick, post(NATIVE, length=length, connection="close", **KNOWN) + sent)) as client:
        assert status_of(client) == 201


def test_a_body_that_was_refused_is_not_read_for_ever(quick: Server) -> None:
    with closing(dial(quick, post(NATIVE, length=10**12))) as client, suppress(ConnectionError):
        for _ in range(2 * DISCARDED_MAX_BYTES // MEGABYTE):
            client.sendall(b"x" * MEGABYTE)
        raise AssertionError("The server has read all of it.")


def test_after_a_refused_body_the_connection_takes_the_next_request(quick: Server) -> None:
    body = b"x" * (UNKNOWN_BODY_MAX_BYTES + 1)
    with closing(dial(quick, post(NATIVE, length=len(body)) + body + LAST_GET)) as client:
        said = heard(client)
    assert (said.count(b"HTTP/1.1 401"), said.count(b"HTTP/1.1 200")) == (1, 1)


def test_a_body_for_which_there_is_no_room_is_refused_before_it_is_asked_for(patient: Server) -> None:
    def asking(length: int, **headers: str) -> bytes:
        return post(NATIVE, length=length, expect="100-continue", connection="close", **KNOWN)

    body = json.dumps({"title": "x"}).encode().ljust(UNKNOWN_BODY_MAX_BYTES + 1)
    with closing(dial(patient, asking(FRAME_MAX_BYTES))) as holding:
        assert holding.recv(12) == b"HTTP/1.1 100"
        with closing(dial(patient, asking(len(body)))) as client:
            said = heard(client)
        assert said.startswith(b"HTTP/1.1 429")
        assert b"retry-after: 5\r\n" in said
        with closing(dial(patient, asking(2) + b"{}")) as client:
            assert b"HTTP/1.1 201" in heard(client)

    def is_read() -> bool:
        with closing(dial(patient, asking(len(body)) + body)) as client:
            return b"HTTP/1.1 201" in heard(client)

    wait_until(is_read)


# Sockets whose client is not known yet

UUID = "3c294d95-9ff6-4d2d-9c53-0a5849f2c4a0"
SOCKETS = {
    "native": "/ws/conversations/large",
    "list": "/ws/conversations",
    "events": f"/sockets/events/{UUID}",
    "session": f"/agent/sockets/session/{UUID}",
    "v0": "/socket.io/?EIO=4&transport=websocket&conversation_id=large",
}
TOO_LARGE = 1009
LARGE = UNKNOWN_BODY_MAX_BYTES + 1


def upgrade(path: str, **headers: str) -> bytes:
    """Return the request that opens a socket."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
    return UPGRADE.replace(b"/ws/conversations", path.encode()).replace(b"Host:", lines + b"Host:")


def masked(payload: bytes, *, opcode: int = 1, is_last: bool = True) -> bytes:
    """Return a frame as a client sends it, with a mask that changes nothing."""
    head = bytes([opcode | (0x80 if is_last else 0), 0x80 | (127 if len(payload) > 125 else len(payload))])
    length = len(payload).to_bytes(8) if len(payload) > 125 else b""
    return head + length + bytes(4) + payload


def close_code_in(said: bytes) -> int | None:
    """Return the code of the close frame that ends what a server said."""
    at = said.rfind(b"\x88")
    return int.from_bytes(said[at + 2 : at + 4]) if at >= 0 else None


def hear(connection: socket.socket, words: bytes) -> None:
    """Read until the server has said this. Fail if it closes the connection first."""
    said = b""
    while words not in said:
        part = connection.recv(65536)
        assert part, said[-1000:]
        said += part


def test_a_large_message_of_a_client_that_is_not_known_is_not_read_at_any_socket(quick: Server) -> None:
    huge = (16 * MEGABYTE).to_bytes(8)
    starts = {
        "one frame": b"\x81\xff" + huge + bytes(4),
        "many frames": masked(b"x", is_last=False) + masked(b"x" * 60_000, opcode=0, is_last=False) * 2,
        "empty frames": masked(b"", is_last=False) + masked(b"", opcode=0, is_last=False) * LARGE,
        "a binary frame": b"\x82\xff" + huge + bytes(4),
    }
    codes = {}
    for door, path in SOCKETS.items():
        for kind, start in starts.items():
            with closing(dial(quick, upgrade(path))) as client:
                assert client.recv(12) == b"HTTP/1.1 101"
                with suppress(ConnectionError):  # what is sent after the refusal is not read
                    client.sendall(start)
                codes[door, kind] = close_code_in(heard(client))
    assert {each: code for each, code in codes.items() if code != TOO_LARGE} == {}


def test_a_client_that_is_known_is_read_however_early_it_sends_a_large_message(quick: Server) -> None:
    text = "x" * LARGE
    said = {"type": "message", "id": "large", "text": text}, {"role": "user", "content": text}
    native, v1 = (masked(json.dumps(each).encode()) for each in said)
    auths = {"type": "auth", "token": KEY}, {"type": "auth", "session_api_key": KEY}
    native_auth, v1_auth = (masked(json.dumps(each).encode()) for each in auths)
    HTTP.post(f"{quick.url}/agent/api/conversations", json={**START, "conversation_id": UUID}, headers=KNOWN)
    for door, auth, message, answer in (
        ("native", native_auth, native, b'"ack","id":"large"'),
        ("list", native_auth, native, b"There is no frame"),
        ("events", v1_auth, v1, text.encode()),
        ("session", v1_auth, v1, text.encode()),
    ):
        for head, sent in (
            (upgrade(SOCKETS[door]), auth + message),
            (upgrade(SOCKETS[door], **KNOWN), message),
        ):
            with closing(dial(quick, head)) as client:
                assert client.recv(12) == b"HTTP/1.1 101"
                client.sendall(sent)
                hear(client, answer)


def test_a_socket_io_client_is_read_once_it_has_joined(quick: Server) -> None:
    action = {"action": "message", "args": {"content": "x" * LARGE}}
    with closing(dial(quick, upgrade(SOCKETS["v0"], **KNOWN))) as client:
        hear(client, b'"pingInterval"')
        client.sendall(masked(b"40"))
        hear(client, b"40{")
        client.sendall(masked(b"427" + json.dumps(["oh_user_action", action]).encode()))
        hear(client, b"437[{")


def test_a_socket_io_client_that_has_not_joined_posts_nothing_large(quick: Server) -> None:
    opened = HTTP.get(f"{quick.url}/socket.io/?EIO=4&transport=polling").text
    transport = json.loads(opened[1:])["sid"]
    path = f"/socket.io/?EIO=4&transport=polling&sid={transport}"
    with closing(dial(quick, post(path, length=LARGE))) as client:
        assert status_of(client) == 413


class WrittenOnly(asyncio.Transport):
    """A connection whose client reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return MEGABYTE

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        """Nothing: the test brings what is read."""

    def close(self) -> None:
        """Nothing: the test ends it."""

    def abort(self) -> None:
        self.aborted.set()


async def test_pings_of_a_client_that_does_not_read_are_not_answered() -> None:
    accepted = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        accepted.set()
        await receive()

    config = uvicorn.Config(application, ws_ping_interval=None, log_config=None)
    everybody = Connections(limit=1, per_address=0, exempt=Networks())
    client, connection = BoundedWebSocket(config, State(everybody), {}), WrittenOnly()
    client.connection_made(connection)
    client.data_received(UPGRADE)
    await accepted.wait()
    ping = masked(b"x" * 100, opcode=9)
    answers = []
    for pause in (client.resume_writing, client.pause_writing, client.resume_writing):
        connection.written = b""
        pause()
        client.data_received(ping * 1000)
        await asyncio.sleep(0)
        answers.append(connection.written.count(b"\x8a\x64"))
    client.connection_lost(None)
    assert answers == [1000, 0, 1000]


def answered_by_the_test(number: int) -> list[BoundedHttp]:
    """Return the server's side of connections; their application does nothing."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        pass

    config = uvicorn.Config(application, log_config=None)
    room = Connections(limit=number, per_address=0, exempt=Networks())
    return [BoundedHttp(config, State(room), app_state={}) for _ in range(number)]


async def test_an_answer_that_nobody_reads_is_given_up_and_one_that_is_read_on_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "UNREAD_S", 0.01)

    clients = answered_by_the_test(2)
    connections = [WrittenOnly() for _ in clients]
    for client, connection in zip(clients, connections, strict=True):
        client.connection_made(connection)
        client.pause_writing()
    clients[1].resume_writing()
    await connections[0].aborted.wait()
    assert not connections[1].aborted.is_set()
    for client in clients:
        client.connection_lost(None)


class SlowlyRead(WrittenOnly):
    """A connection whose client has read a little more of one large answer at each look, then no more."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks_left = looks
        self._unread_bytes = MEGABYTE

    def get_write_buffer_size(self) -> int:
        if self.looks_left:
            self.looks_left -= 1
            self._unread_bytes -= http_protocol.PROGRESS_BYTES
        return self._unread_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not say it")
def test_what_the_kernel_has_still_to_deliver_counts_as_unread() -> None:
    server, client = socket.socketpair()
    with server, client:
        server.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                server.send(bytes(MEGABYTE))
        before = http_protocol.unsent(server)
        assert len(client.recv(before)) > 0
        assert http_protocol.unsent(server) < before
    assert http_protocol.unsent(server) == http_protocol.unsent(None) == 0


async def test_an_answer_that_is_read_slowly_is_given_up_once_nothing_more_of_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "UNREAD_S", 0.001)

    (client,), connection = answered_by_the_test(1), SlowlyRead(looks=20)
    client.connection_made(connection)
    client.pause_writing()
    await connection.aborted.wait()
    assert connection.looks_left == 0
    client.connection_lost(None)


@pytest.mark.one_engine
@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_server_that_may_open_too_few_files_says_so_at_its_start(tmp_path: Path) -> None:
    server = Server(tmp_path, run_by=("prlimit", "--nofile=64:64"))
    ended = server.run(["convserver", "serve"])
    assert ended.returncode == 2
    assert "may open 64 files at a time and needs at least 128" in ended.stderr
