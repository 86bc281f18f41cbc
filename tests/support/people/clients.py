"""Clients that tests speak through: a socket in this process, and servers in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import IO, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import httpx
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.db import connection

from tests.support.runner import forks
from tests.support.runner.prepared_servers import prepared_servers
from tests.support.servers.ports import free_port

WAIT_S = 40.0
HTTP = httpx.Client(
    timeout=WAIT_S, trust_env=False, limits=httpx.Limits(max_connections=None, max_keepalive_connections=0)
)
"""Asks servers in other processes; there is one for all, since to make one reads many certificates."""


OF_THE_TESTS = ("CONVSERVER_", "PYTEST_")
"""Prefixes of variables that no program takes over: those of this run, and the name of the present test."""


class SocketClosed(Exception):
    """The server closed the socket."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


class Client:
    """One native socket, straight into the ASGI application."""

    def __init__(
        self,
        application: Any,
        path: str,
        *,
        token: str | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        given = {
            "host": "localhost",
            **({"authorization": f"Bearer {token}"} if token else {}),
            **(headers or {}),
        }
        address = f"{path}?{urlencode(query)}" if query else path
        raw = [(name.encode(), value.encode()) for name, value in given.items()]
        self._socket = WebsocketCommunicator(application, address, headers=raw)
        self.frames: list[dict[str, Any]] = []

    async def connect(self) -> None:
        """Connect. Raise SocketClosed when the handshake itself is refused."""
        accepted, code = await self._socket.connect(timeout=WAIT_S)
        if not accepted:
            raise SocketClosed(int(code or 0), "refused")

    async def send(self, frame: Mapping[str, Any] | str) -> None:
        """Send one frame, as JSON unless it is text."""
        await self._socket.send_to(text_data=frame if isinstance(frame, str) else json.dumps(frame))

    async def send_bytes(self, frame: bytes) -> None:
        """Send one binary frame, which no native socket takes."""
        await self._socket.send_to(bytes_data=frame)

    async def receive_text(self, *, within_s: float = WAIT_S) -> str:
        """Return the next frame's text. Raise SocketClosed or TimeoutError."""
        message = await self._socket.receive_output(within_s)
        if message["type"] == "websocket.close":
            raise SocketClosed(message.get("code", 1000), message.get("reason") or "")
        text = message["text"]
        assert isinstance(text, str)
        return text

    async def receive(self, *, within_s: float = WAIT_S) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self.receive_text(within_s=within_s))
        self.frames.append(frame)
        return frame

    async def receives_nothing(self, *, within_s: float) -> bool:
        """Say whether no frame comes for so long; the connection stays."""
        nothing: bool = await self._socket.receive_nothing(timeout=within_s)
        return nothing

    async def until(self, type: str, **members: Any) -> dict[str, Any]:
        """Return the next frame of this type with these members; the others are kept in `frames`."""
        while True:
            frame = await self.receive()
            if frame["type"] == type and members.items() <= frame.items():
                return frame

    async def events(self, count: int) -> list[dict[str, Any]]:
        return [await self.until("event") for _ in range(count)]

    async def replayed(self) -> list[dict[str, Any]]:
        """Return the `event` frames up to `replay_complete`."""
        start = len(self.frames)
        await self.until("replay_complete")
        return [frame for frame in self.frames[start:] if frame["type"] == "event"]

    async def closed(self) -> SocketClosed:
        """Return how the server closes the socket, passing over frames before that."""
        while True:
            try:
                await self.receive()
            except SocketClosed as closed:
                return closed

    async def leave(self) -> None:
        """Disconnect and wait for the server to notice."""
        with suppress(asyncio.CancelledError, TimeoutError):
            await self._socket.disconnect(timeout=WAIT_S)


class Server:
    """`convserver serve` as a process: started, killed and started again on one database and port."""

    command: Sequence[str] = ("convserver", "serve")

    def __init__(self, directory: Path, *, run_by: Sequence[str] = ()) -> None:
        """`run_by` is a program that becomes the server, and its arguments."""
        self.run_by = list(run_by)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ws_url = f"ws://127.0.0.1:{self.port}"
        self.log = directory / "server.log"
        self._directory = directory
        self._process: forks.Running | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def file(self) -> Path:
        """The database that it uses with DATABASE_URL="": a file of its own."""
        return Path(self.environment["CONVSERVER_DATA_DIR"]) / "convserver.sqlite3"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the server is started with."""
        return {**program_environment(self._directory), "PORT": str(self.port)}

    def start(self, *, constants: Mapping[str, float] | None = None, **environment: str) -> None:
        """Start and return once it answers; `constants` (dotted names) have other values there."""
        command = list(self.command)
        if constants:
            changes = [f"{name}={value}" for name, value in constants.items()]
            command = ["tests.support.servers.serve_with", *changes, "--", *self.command[1:]]
        with self.log.open("ab") as log:
            self._process = self._begun(command, {**self.environment, **environment}, log)
        deadline = time.monotonic() + 3 * WAIT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"The server did not start:\n{self.log.read_text()}")
            time.sleep(0.02)

    def _begun(self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> forks.Running:
        if not self.run_by and (copy := prepared_servers.start(command, environment, log, log)):
            return copy
        return forks.start(command, environment, stdout=log, stderr=log, run_by=self.run_by)

    def run(self, command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m command…` to its end with the server's variables, as the server would be run."""
        return forks.run(command, {**self.environment, **environment}, run_by=self.run_by)

    def kill(self) -> None:
        """End it at once, as a power cut would; nothing if it does not run."""
        self._signal(SIGKILL)

    def stop(self) -> None:
        """Ask it to end and wait until it has."""
        self._signal(SIGTERM)

    def signal(self, number: Signals) -> None:
        """Send a signal and do not wait."""
        os.kill(self.pid, number)

    def _signal(self, number: Signals) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(number)
            self._process.wait(timeout=2 * WAIT_S)
            self._process = None

    def _answers(self) -> bool:
        try:
            return HTTP.get(f"{self.url}/health").status_code == 200
        except httpx.TransportError:
            return False


class Worker(Server):
    """`convserver worker` as a process that answers probes."""

    @property
    def command(self) -> Sequence[str]:  # type: ignore[override]
        """Run a worker instead."""
        return ("convserver", "worker", "--probe-port", str(self.port))


def program_environment(directory: Path) -> dict[str, str]:
    """Return an environment in which a program uses this test's database and hints.

    It is the same for all tests but for the directory, so that their servers can be copies of one process.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_THE_TESTS)}
    return {
        **kept,
        "DATABASE_URL": database_url(),
        "CONVSERVER_DATA_DIR": str(directory / "data"),
        "CONVSERVER_SANDBOX": "off",  # a test that needs one says so
        "CONVSERVER_TEST_RUN": settings.TEST_RUN,
        "SECRET_KEY": settings.SECRET_KEY,  # one installation with the tests: they hear each other's hints
        "PYTHONWARNINGS": "default",
    }


def database_url() -> str:
    """Return the address of the database that the tests run on."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return urlunsplit(urlsplit(settings.CONFIGURATION.database_url)._replace(path=f"/{name}"))
